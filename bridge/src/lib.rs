//! The bridge between Codex and a local model server.

pub mod cli;
pub mod config;
pub mod health_check;
pub mod init;
pub mod stream;
pub mod translate;
pub mod upstream;
