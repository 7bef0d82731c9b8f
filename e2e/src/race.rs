//! The bundled engine against a llama-server compiled for this machine: same model, same HTTP API, same requests.
//!
//! ```text
//! client ──> codex-bridge, its engine inside | llama-server        (one of them runs at a time, started for it)
//! ```
//!
//! A round visits the sessions ([`session`]) one after the other, and each session every contestant, in an order that
//! turns with the round. The answers are greedy. What machine limits there are is measured between ([`limit`]).

pub mod contestant;
pub mod limit;
pub mod prose;
pub mod report;
pub mod rows;
pub mod session;
mod spin;
mod stream;
mod turn;
