//! The bridge between Codex and a local model server.

pub mod config;
pub mod headers;
pub mod mcp;
pub mod metrics;
pub mod server;
pub mod telemetry;
pub mod upstream;
