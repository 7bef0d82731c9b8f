//! How many connections a lane has, counted by the accepting thread and by the lane's own.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Connections, those on their way to the lane among them.
#[derive(Debug, Clone, Default)]
pub(super) struct Load(Arc<AtomicUsize>);

/// The load of a lane that takes no more.
const CLOSED: usize = usize::MAX;

impl Load {
    /// `None`: the lane takes no more.
    pub(super) fn get(&self) -> Option<usize> {
        Some(self.0.load(Relaxed)).filter(|load| *load != CLOSED)
    }

    /// Counts a connection until what comes back is dropped; `None` when the lane takes no more.
    pub(super) fn one_more(&self) -> Option<Counting> {
        let more = |load| (load != CLOSED).then(|| load + 1);
        self.0.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(Counting(self.clone()))
    }

    /// The lane takes no more, unless something is on its way to it.
    pub(super) fn close(&self) -> bool {
        let closed = self.0.compare_exchange(0, CLOSED, Relaxed, Relaxed);
        closed.is_ok()
    }
}

/// One connection in a lane's load.
#[derive(Debug)]
pub(super) struct Counting(Load);

impl Drop for Counting {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_closes_only_when_nothing_is_on_its_way() {
        let load = Load::default();
        let counted = load.one_more().unwrap();
        assert!(!load.close());
        assert_eq!(load.get(), Some(1));
        drop(counted);
        assert!(load.close());
        assert_eq!(load.get(), None);
        assert!(load.one_more().is_none());
    }
}
