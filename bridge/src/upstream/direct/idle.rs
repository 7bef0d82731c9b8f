//! Connections to the upstream that wait for the next request.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{
    runtime::{self, Handle},
    time::{Instant, sleep_until},
};

use super::Link;
use crate::upstream::client::POOL_IDLE;

/// Connections that wait for the next request, the one used last at the end. Each waits for a request of the runtime it
/// was made in: from another thread every event would wake two.
#[derive(Default)]
pub(super) struct Idle(Mutex<HashMap<runtime::Id, Vec<(Instant, Link)>>>);

impl Idle {
    fn waiting(&self) -> MutexGuard<'_, HashMap<runtime::Id, Vec<(Instant, Link)>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn take(&self) -> Option<Link> {
        let mut waiting = self.waiting();
        let links = waiting.get_mut(&Handle::current().id())?;
        while let Some((_, mut link)) = links.pop() {
            if link.is_free() {
                return Some(link);
            }
        }
        None
    }

    pub(super) fn put(self: &Arc<Self>, mut link: Link) {
        if !link.is_free() {
            return;
        }
        let runtime = Handle::current().id();
        let mut waiting = self.waiting();
        let is_swept = waiting.contains_key(&runtime);
        let links = waiting.entry(runtime).or_default();
        links.push((Instant::now(), link));
        // A runtime that is ending drops the task at once, and the task's end needs the lock.
        drop(waiting);
        if !is_swept {
            let idle = Arc::clone(self);
            tokio::spawn(Sweep { idle, runtime }.run());
        }
    }

    /// Closes what has waited for too long in `runtime`; tells when to look again, if anything is left.
    fn close_old(&self, runtime: runtime::Id) -> Option<Instant> {
        let mut waiting = self.waiting();
        let links = waiting.get_mut(&runtime)?;
        let now = Instant::now();
        let old = links.partition_point(|(since, _)| *since + POOL_IDLE <= now);
        links.drain(..old);
        links.first().map(|(since, _)| *since + POOL_IDLE)
    }
}

/// Closes the idle connections of one runtime in time, and all of them when that runtime ends.
struct Sweep {
    idle: Arc<Idle>,
    runtime: runtime::Id,
}

impl Sweep {
    async fn run(self) {
        while let Some(next) = self.idle.close_old(self.runtime) {
            sleep_until(next).await;
        }
    }
}

impl Drop for Sweep {
    fn drop(&mut self) {
        self.idle.waiting().remove(&self.runtime);
    }
}

impl std::fmt::Debug for Idle {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Idle")
            .field(
                "links",
                &self.waiting().values().map(Vec::len).sum::<usize>(),
            )
            .finish()
    }
}
