//! The bridge between Codex and a local model: one behind a server, or one that the bundled engine runs.

#![forbid(unsafe_code)]

pub mod cli;
mod codex_model;
pub mod config;
pub mod headers;
pub mod health_check;
pub mod init;
pub mod inspect;
pub mod mcp;
pub mod metrics;
pub mod pull;
pub mod server;
pub mod stream;
pub mod telemetry;
pub mod translate;
pub mod upstream;
