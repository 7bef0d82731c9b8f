//! Two members on one core: each waits for what the other would do. While another process has a core, the kernel leaves two threads together on the next one for
//! hundreds of milliseconds, because three threads on two cores cannot be fair; so a member that finds itself with another moves to a core that no member has.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A member moves when it has found another on its core in so many regions running: where a core is idle, the kernel parts them sooner.
const FIRST: u32 = 2;
/// Where moving does not help, as with more members than cores, it is tried less and less often, up to once in so many regions.
const LAST: u32 = 2 << 10;

/// Parked, or not seen yet.
const NOWHERE: usize = usize::MAX;

/// The core that each member was last seen on.
#[derive(Debug)]
pub(super) struct Places(Box<[Place]>);

/// On its own cache line, which changes only when the member moves.
#[derive(Debug)]
#[repr(align(128))]
struct Place(AtomicUsize);

/// How often a member has met another, without a region alone between.
#[derive(Debug)]
pub(super) struct Meetings {
    count: u32,
    /// When it moves.
    limit: u32,
}

impl Default for Meetings {
    fn default() -> Meetings {
        Meetings {
            count: 0,
            limit: FIRST,
        }
    }
}

impl Places {
    pub(super) fn new(members: usize) -> Places {
        let places = (0..members).map(|_| Place(AtomicUsize::new(NOWHERE)));
        Places(places.collect())
    }

    /// A member takes part in a region, on `core`. True when it is time to move.
    pub(super) fn meet(&self, member: usize, core: usize, meetings: &mut Meetings) -> bool {
        self.set(member, core);
        // Of two, the one with the higher number moves; so the caller never does.
        if !taken(&self.0[..member], core) {
            *meetings = Meetings::default();
            return false;
        }
        meetings.count += 1;
        let is_time = meetings.count == meetings.limit;
        if is_time {
            meetings.count = 0;
            meetings.limit = (2 * meetings.limit).min(LAST);
        }
        is_time
    }

    /// A member that does nothing is in nobody's way.
    pub(super) fn park(&self, member: usize) {
        self.set(member, NOWHERE);
    }

    pub(super) fn is_taken(&self, core: usize) -> bool {
        taken(&self.0, core)
    }

    fn set(&self, member: usize, core: usize) {
        let place = &self.0[member].0;
        if place.load(Ordering::Relaxed) != core {
            place.store(core, Ordering::Relaxed);
        }
    }
}

fn taken(places: &[Place], core: usize) -> bool {
    let mut cores = places.iter().map(|place| place.0.load(Ordering::Relaxed));
    cores.any(|other| other == core)
}

#[cfg(target_os = "linux")]
pub(super) mod core {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

    pub(crate) fn current() -> Option<usize> {
        Some(sched_getcpu())
    }

    /// Moves this thread to a core that it may use and that is `free`, if there is one; it is not held there.
    pub(crate) fn leave_for(free: impl Fn(usize) -> bool) {
        let Ok(allowed) = sched_getaffinity(None) else {
            return;
        };
        let mut cores = 0..CpuSet::MAX_CPU;
        let Some(core) = cores.find(|core| allowed.is_set(*core) && free(*core)) else {
            return;
        };
        let mut only = CpuSet::new();
        only.set(core);
        // Whoever forbids it has reasons of his own; the team works without.
        if sched_setaffinity(None, &only).is_ok() {
            let _ = sched_setaffinity(None, &allowed);
        }
    }
}

/// Elsewhere the system gives no say.
#[cfg(not(target_os = "linux"))]
pub(super) mod core {
    pub(crate) fn current() -> Option<usize> {
        None
    }

    pub(crate) fn leave_for(_: impl Fn(usize) -> bool) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_one_of_two_moves_after_some_meetings_in_a_row() {
        let places = Places::new(3);
        let mut meetings = Meetings::default();
        assert!(!places.meet(0, 1, &mut Meetings::default()));
        let met = |meetings: &mut Meetings, core| places.meet(1, core, meetings);
        assert!(!met(&mut meetings, 1));
        assert!(!met(&mut meetings, 0));
        assert!(!met(&mut meetings, 1));
        assert!(met(&mut meetings, 1));
        assert!(places.is_taken(1) && !places.is_taken(0));
        // It did not help: twice as many, until it does.
        let again = (1..).find(|_| met(&mut meetings, 1));
        assert_eq!(again, Some(4));
        // The first one does not move for it.
        let mut first = Meetings::default();
        assert!((0..10).all(|_| !places.meet(0, 1, &mut first)));
        places.park(0);
        assert!(!met(&mut meetings, 1));
        assert!(!places.meet(0, 1, &mut first));
        assert_eq!((1..).find(|_| met(&mut meetings, 1)), Some(2));
    }
}
