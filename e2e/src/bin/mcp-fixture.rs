//! The MCP fixture over stdio. Its one argument is the file in which it keeps what it was asked.

use std::path::PathBuf;

use anyhow::{Context, Result};

fn main() -> Result<()> {
    let journal = std::env::args_os()
        .nth(1)
        .context("usage: mcp-fixture JOURNAL")?;
    codex_bridge_e2e::mcp::serve_stdio(&PathBuf::from(journal))
}
