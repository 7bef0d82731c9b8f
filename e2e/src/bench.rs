//! The benchmark's parts: a fake model server, a load generator, the bridges under test, and the table.
//!
//! ```text
//! load generator ──> direct | npm bridge | gateway | codex-bridge ──> fake model server
//! ```
//!
//! Both ends live in one process, so a delta carries the moment it left and its delay needs no second clock. The
//! model's name says what the answer shall be ([`plan`]): every bridge gets the same traffic, and no bridge knows.

pub mod clock;
pub mod frames;
pub mod http;
pub mod measure;
pub mod plan;
pub mod process;
pub mod report;
pub mod rows;
pub mod soak;
pub mod target;
pub mod upstream;
pub mod wire;
