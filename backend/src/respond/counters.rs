//! What happened to the responses of a backend since it started.

use std::sync::atomic::{AtomicU64, Ordering};

/// Shared by the backend and every response that it makes.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) completed: AtomicU64,
    /// Of `completed`, those that were ended because their text only repeated itself.
    pub(crate) looped: AtomicU64,
    pub(crate) incomplete: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// Dropped before their end.
    pub(crate) cancelled: AtomicU64,
    /// Finished calls.
    pub(crate) calls: AtomicU64,
    /// Of `calls`, those whose arguments did not satisfy the tool's schema.
    pub(crate) invalid_calls: AtomicU64,
}

/// Counts are only ever read for people, so nothing is ordered by them.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
