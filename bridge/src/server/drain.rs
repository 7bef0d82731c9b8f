//! The way down: `Serving → Draining → Ending`.
//!
//! Draining, no new connection is taken and open answers go on; `/health` says so on the connections still open.
//! Ending, the grace is over: a stream has a last moment to say `response.failed` before its connection is cut.

use tokio::sync::watch;

#[derive(Debug, Clone)]
pub struct Drain(watch::Sender<Stage>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Serving,
    Draining,
    Ending,
}

impl Drain {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(Stage::Serving))
    }

    pub fn is_draining(&self) -> bool {
        *self.0.borrow() >= Stage::Draining
    }

    /// Ready when the grace is over; a stream that waits beside it can end itself properly.
    pub async fn ending(&self) {
        let mut stages = self.0.subscribe();
        // The sender lives in `self`, so the wait cannot fail.
        let _ = stages.wait_for(|stage| *stage >= Stage::Ending).await;
    }

    pub(super) fn begin(&self) {
        self.0.send_replace(Stage::Draining);
    }

    pub(super) fn end(&self) {
        self.0.send_replace(Stage::Ending);
    }
}
