//! One response: what the engine generates becomes native Responses events.
//!
//! Invariants: events come in the order of the Responses API with `sequence_number` 0, 1, 2, …; there is exactly one terminal event, the last; its
//! `output` is the list of the items that were streamed.

use std::task::{Context, Poll};

use protocol::{Object, event::Event};

/// Which response, which moment: for ids and `created_at`. Tests pass fixed ones.
#[derive(Clone, Debug)]
pub struct Stamp {
    pub ids: protocol::Ids,
    /// Seconds since 1970.
    pub now: u64,
}

/// A response being made. Dropping it cancels the generation at the engine's next step.
#[derive(Debug)]
pub struct Responding {}

impl Responding {
    /// What grammar compilation had to leave out of tools' schemas, one sentence each, e.g. `exec_command.cmd: pattern`. Empty: nothing.
    pub fn relaxed(&self) -> &[String] {
        unimplemented!()
    }

    /// `resp_…`.
    pub fn id(&self) -> &str {
        unimplemented!()
    }

    /// The next event; `None` after the terminal one.
    pub async fn next(&mut self) -> Option<Event> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// [`Responding::next`] for a caller that implements `Stream` itself.
    pub fn poll_next(&mut self, _context: &mut Context<'_>) -> Poll<Option<Event>> {
        unimplemented!()
    }

    /// Runs to the end and gives the response resource of the terminal event, whatever its status.
    pub async fn collect(self) -> Object {
        unimplemented!()
    }
}
