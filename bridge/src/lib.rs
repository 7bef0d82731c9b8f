//! The bridge between Codex and a local model server.

#![forbid(unsafe_code)]

pub mod cli;
pub mod config;
pub mod headers;
pub mod health_check;
pub mod init;
pub mod mcp;
pub mod metrics;
pub mod pull;
pub mod server;
pub mod stream;
pub mod telemetry;
pub mod translate;
pub mod upstream;
