//! The built `codex-bridge` with the real Codex CLI before it, and behind it a model server, real or scripted, or nothing:
//! then its own engine answers.
//!
//! A scenario (`tests/*.rs`, one a file) starts three parts and then looks at both ends: what the model server was
//! asked, and what Codex did with the answer.
//!
//! ```text
//! codex::Codex ──HTTP──> bridge::Bridge ──HTTP──> script::Upstream   (answers chosen by the test, chunk by chunk)
//!  real binary            built binary      or──> llama::Llama       (real llama.cpp server)
//!                                           or    engine             (the bundled engine, in the same process)
//!      └───MCP, stdio or Streamable HTTP──> mcp::Fixture
//! ```
//!
//! [`client`] asks what Codex does not ask; [`invariants`] and [`client::lawful`] hold the laws of both directions, [`patch`]
//! the grammar of Codex's patches.
//! [`install`] fetches the pinned real programs once into `.cache/e2e/` of the workspace, through npm and pip.
//! Everything listens on loopback with a port the system chose. Every child dies with the value that owns it.
//! No test sleeps: gates decide the order of things ([`script::Gate`]).

pub mod bench;
pub mod bridge;
pub mod child;
pub mod client;
pub mod codex;
pub mod engine;
pub mod event;
pub mod gguf;
pub mod install;
pub mod invariants;
pub mod llama;
pub mod mcp;
pub mod models;
pub mod patch;
pub mod race;
pub mod rig;
pub mod script;
pub mod tap;
pub mod workspace;
