//! The server in process, on a port of its own, with scripted servers behind it. Nothing here sleeps: a test waits for
//! the event it is about, and `soon` only keeps a failing one from waiting for ever.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "the helpers are tests too"
)]

mod bundled;
mod crowd;
mod drain;
mod engine;
mod guard;
mod health;
mod limits;
mod log;
mod mcp;
mod models;
mod routes;
mod scripted;
mod support;
