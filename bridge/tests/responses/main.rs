//! `POST /v1/responses` in process: a bridge on a port of its own, and behind it a model server whose every answer, chunk
//! by chunk, is given by the test itself. Nothing sleeps: a test waits for the event it is about.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "the helpers are tests too"
)]

mod cancel;
mod client;
mod connection;
mod direct;
mod event;
mod failure;
mod limits;
mod live;
mod model;
mod order;
mod request;
#[path = "../server/scripted.rs"]
#[allow(dead_code, reason = "the server's tests use the rest")]
mod scripted;
mod silence;
mod status;
#[path = "../server/support.rs"]
#[allow(dead_code, reason = "the server's tests use the rest")]
mod support;
mod wait;
mod whole;
