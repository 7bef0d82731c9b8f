//! The bridge between Codex and a local model server.

pub mod config;
pub mod stream;
pub mod translate;
pub mod upstream;
