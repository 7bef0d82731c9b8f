//! The thread team: one parallel region an operation, a few hundred regions a token.
//!
//! A region is a number of chunks. Every member of the team first takes the chunks of its own contiguous share (so that it streams through memory), then
//! helps the others with theirs. The caller is a member and never waits for one that has not begun: when another process takes a core, the region
//! takes as long as the rest of the team needs. For a member that has begun and lost its core, regions of [`Team::pieces`] do not wait either.
//! Members spin for some microseconds between regions, then park.
//!
//! Invariant: a member touches what is posted only while it is counted in `state`; the caller takes it back only when the region is closed and the count
//! is zero. All `unsafe` outside `cpu/simd` is here, in `slices` and in `parts`: the borrowed job, and the disjoint parts of a slice that the members write.

use std::{
    cell::UnsafeCell,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle, Thread},
};

mod parts;
mod pieces;
mod place;
mod slices;

pub(crate) use pieces::{Board, Pieces};
use place::{Meetings, Places, core};

/// Turns of the spin loop before a member parks: some tens of microseconds, longer than the serial part between two regions of a step.
const SPINS: u32 = 4_000;
/// Turns before the caller, which waits for the last chunks, offers its core to the members that run them. More than [`SPINS`]: a member that was taken
/// off its core is rare, and giving this one away costs a step more than waiting does.
const CALLER_SPINS: u32 = 20_000;

/// Bits of `Shared::state`: members inside the region, the region takes members, the team ends; above them the number of the region.
const ACTIVE: u64 = 0xffff;
const OPEN: u64 = 1 << 16;
const STOP: u64 = 1 << 17;
const REGION: u64 = 1 << 18;

type Job<'a> = dyn Fn(usize, usize) + Sync + 'a;

pub(crate) struct Team {
    shared: Arc<Shared>,
    handles: Vec<JoinHandle<()>>,
}

struct Shared {
    state: AtomicU64,
    posted: UnsafeCell<Posted>,
    queues: Box<[Queue]>,
    parked: Box<[AtomicBool]>,
    places: Places,
    panicked: AtomicBool,
}

/// What members find in an open region.
enum Posted {
    Nothing,
    /// Lives until the region has been closed and left by all.
    Borrowed(*const Job<'static>),
    /// Members keep it for as long as they are at it, and leave the region at once.
    Shared(Arc<dyn Pieces>),
}

// SAFETY: `posted` is the only part that is not `Sync` by itself. It is written by the caller while no member is counted in `state`, and read by members
// while they are; what it points to is `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointer is only followed under that protocol.
unsafe impl Send for Shared {}

/// A member's share of the chunks. On its own cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Queue {
    next: AtomicUsize,
    end: AtomicUsize,
}

impl Team {
    /// A team of `threads` members, the caller of [`Team::run`] among them.
    pub(crate) fn new(threads: usize) -> std::io::Result<Team> {
        let threads = threads.clamp(1, 1024);
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            posted: UnsafeCell::new(Posted::Nothing),
            queues: (0..threads).map(|_| Queue::default()).collect(),
            parked: (0..threads).map(|_| AtomicBool::new(false)).collect(),
            places: Places::new(threads),
            panicked: AtomicBool::new(false),
        });
        let mut team = Team {
            shared,
            handles: Vec::new(),
        };
        for member in 1..threads {
            let shared = Arc::clone(&team.shared);
            team.handles.push(
                thread::Builder::new()
                    .name(format!("cpu-{member}"))
                    .spawn(move || shared.serve(member))?,
            );
        }
        Ok(team)
    }

    pub(crate) fn threads(&self) -> usize {
        self.handles.len() + 1
    }

    /// Calls `job(member, chunk)` once for every chunk in `0..chunks`; returns when all calls have returned. `member < self.threads()`, and no two calls of one
    /// region run at the same time with the same member.
    pub(crate) fn run(&mut self, chunks: usize, job: &Job<'_>) {
        if self.handles.is_empty() || chunks <= 1 {
            (0..chunks).for_each(|chunk| job(0, chunk));
            return;
        }
        let shared = &*self.shared;
        let members = shared.queues.len();
        for (member, queue) in shared.queues.iter().enumerate() {
            queue
                .next
                .store(chunks * member / members, Ordering::Relaxed);
            queue
                .end
                .store(chunks * (member + 1) / members, Ordering::Relaxed);
        }
        // SAFETY: only the lifetime changes. `region` returns when it has closed the region and seen the last member leave, on every path.
        let posted = unsafe {
            std::mem::transmute::<*const Job<'_>, *const Job<'static>>(std::ptr::from_ref(job))
        };
        self.region(Posted::Borrowed(posted), || shared.work(0, job));
        assert!(
            !shared.panicked.swap(false, Ordering::Relaxed),
            "a member of the thread team panicked"
        );
    }

    /// Opens a region with `posted` for the members, does the caller's part, closes the region and waits until no member is counted in it.
    fn region(&self, posted: Posted, own: impl FnOnce()) {
        let shared = &*self.shared;
        // SAFETY: the last region is closed and left by all members, so nobody reads this now.
        unsafe { *shared.posted.get() = posted };
        if let Some(core) = core::current() {
            shared.places.meet(0, core, &mut Meetings::default());
        }
        let region = shared.state.load(Ordering::Relaxed) & !(REGION - 1);
        shared
            .state
            .store(region.wrapping_add(REGION) | OPEN, Ordering::SeqCst);
        for (parked, handle) in shared.parked[1..].iter().zip(&self.handles) {
            if parked.load(Ordering::SeqCst) {
                Thread::unpark(handle.thread());
            }
        }
        let outcome = catch_unwind(AssertUnwindSafe(own));
        shared.state.fetch_and(!OPEN, Ordering::SeqCst);
        let mut spins = 0u32;
        while shared.state.load(Ordering::Acquire) & ACTIVE != 0 {
            spins = spins.saturating_add(1);
            if spins < CALLER_SPINS {
                std::hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
        // SAFETY: as above. What was shared is not kept from its owner.
        unsafe { *shared.posted.get() = Posted::Nothing };
        if let Err(panic) = outcome {
            resume_unwind(panic);
        }
    }
}

/// Hands out chunks until none is left, those of the member's own queue first: `each(queue, chunk)`.
fn deal(queues: &[Queue], member: usize, mut each: impl FnMut(usize, usize)) {
    for turn in 0..queues.len() {
        let index = (member + turn) % queues.len();
        let queue = &queues[index];
        let end = queue.end.load(Ordering::Relaxed);
        // The load keeps helpers from writing to a line whose owner still needs it.
        while queue.next.load(Ordering::Relaxed) < end {
            let chunk = queue.next.fetch_add(1, Ordering::Relaxed);
            if chunk >= end {
                break;
            }
            each(index, chunk);
        }
    }
}

impl Shared {
    /// Does chunks until none is left.
    fn work(&self, member: usize, job: &Job<'_>) {
        deal(&self.queues, member, |_, chunk| job(member, chunk));
    }

    fn serve(&self, member: usize) {
        let mut seen = 0;
        let mut meetings = Meetings::default();
        while let Some(region) = self.enter(member, seen) {
            seen = region;
            let is_shared =
                core::current().is_some_and(|core| self.places.meet(member, core, &mut meetings));
            // SAFETY: this member is counted in `state`, so the caller does not write here, until it leaves.
            match unsafe { &*self.posted.get() } {
                Posted::Nothing => self.leave(),
                Posted::Borrowed(job) => {
                    let outcome = catch_unwind(AssertUnwindSafe(|| {
                        // SAFETY: this member is counted, so the caller is still inside `run` and the job it borrowed is alive.
                        self.work(member, unsafe { &**job });
                    }));
                    if outcome.is_err() {
                        self.panicked.store(true, Ordering::Relaxed);
                    }
                    self.leave();
                }
                Posted::Shared(work) => {
                    let work = Arc::clone(work);
                    self.leave();
                    // After a panic the piece is not done, and the caller, who does it again, panics itself.
                    let _ = catch_unwind(AssertUnwindSafe(|| pieces::take(&*work, member)));
                }
            }
            if is_shared {
                core::leave_for(|core| !self.places.is_taken(core));
            }
        }
    }

    fn leave(&self) {
        self.state.fetch_sub(1, Ordering::Release);
    }

    /// Waits for an open region after `seen` and joins it; `None` when the team ends.
    fn enter(&self, member: usize, seen: u64) -> Option<u64> {
        let mut spins = 0;
        loop {
            let state = self.state.load(Ordering::SeqCst);
            if state & STOP != 0 {
                return None;
            }
            let region = state / REGION;
            if state & OPEN != 0 && region != seen {
                if self
                    .state
                    .compare_exchange(state, state + 1, Ordering::SeqCst, Ordering::Relaxed)
                    .is_ok()
                {
                    return Some(region);
                }
                continue;
            }
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
                continue;
            }
            // The caller reads the flag after it has opened a region; the state is read again after the flag is set. One of the two sees the other.
            self.places.park(member);
            self.parked[member].store(true, Ordering::SeqCst);
            let now = self.state.load(Ordering::SeqCst);
            if now & STOP == 0 && (now & OPEN == 0 || now / REGION == seen) {
                thread::park();
            }
            self.parked[member].store(false, Ordering::SeqCst);
            spins = 0;
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.state.fetch_or(STOP, Ordering::SeqCst);
        for handle in self.handles.drain(..) {
            handle.thread().unpark();
            // A member that panicked has said so already.
            let _ = handle.join();
        }
    }
}

impl fmt::Debug for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Team")
            .field("threads", &self.threads())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chunk_runs_once_in_thousands_of_regions() {
        let mut team = Team::new(4).unwrap();
        for chunks in (0..3000).map(|region| region % 37) {
            let counts: Vec<AtomicUsize> = (0..chunks).map(|_| AtomicUsize::new(0)).collect();
            team.run(chunks, &|member, chunk| {
                assert!(member < 4);
                counts[chunk].fetch_add(1, Ordering::Relaxed);
            });
            assert!(
                counts
                    .iter()
                    .all(|count| count.load(Ordering::Relaxed) == 1)
            );
        }
    }

    #[test]
    fn members_without_work_park_and_wake_for_the_next_region() {
        let mut team = Team::new(3).unwrap();
        for _ in 0..20 {
            let shared = Arc::clone(&team.shared);
            while !shared.parked[1..]
                .iter()
                .all(|parked| parked.load(Ordering::SeqCst))
            {
                thread::yield_now();
            }
            let count = AtomicUsize::new(0);
            team.run(30, &|_, _| {
                count.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(count.load(Ordering::Relaxed), 30);
        }
    }

    #[test]
    fn a_panic_in_a_chunk_reaches_the_caller_and_the_team_goes_on() {
        let mut team = Team::new(3).unwrap();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            team.run(30, &|_, chunk| assert_ne!(chunk, 17, "on purpose"));
        }));
        assert!(panicked.is_err());
        let count = AtomicUsize::new(0);
        team.run(30, &|_, _| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.load(Ordering::Relaxed), 30);
    }
}
