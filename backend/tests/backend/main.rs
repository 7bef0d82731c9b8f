//! The whole engine through its façade: model files that the tests write, and SmolLM2 where it is at hand.

#![allow(clippy::unwrap_used, reason = "a failing test may panic")]

mod guarantees;
mod refusals;
mod scripted;
mod smollm2;
mod support;
