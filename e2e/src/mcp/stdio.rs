//! The fixture over standard input and output: one JSON-RPC message a line.

use std::{
    fs::{self, OpenOptions},
    io::{self, BufRead, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::workspace;

/// The fixture's own executable, built beside the running one.
pub fn binary() -> Result<PathBuf> {
    Ok(workspace::profile_dir()?.join("mcp-fixture"))
}

/// Serves until its input ends; every message it gets is appended to `journal`.
pub fn serve_stdio(journal: &Path) -> Result<()> {
    let mut journal = OpenOptions::new()
        .create(true)
        .append(true)
        .open(journal)
        .context("open the journal")?;
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line = line?;
        writeln!(journal, "{line}")?;
        let message = serde_json::from_str(&line).context("a line that is not JSON")?;
        if let Some(answer) = super::answer(&message) {
            writeln!(out, "{answer}")?;
            out.flush()?;
        }
    }
    Ok(())
}

/// The `tools/call` parameters in a journal, in order.
pub fn calls(journal: &Path) -> Result<Vec<Value>> {
    let text =
        fs::read_to_string(journal).with_context(|| format!("read {}", journal.display()))?;
    let messages = text
        .lines()
        .map(serde_json::from_str::<Value>)
        .collect::<Result<Vec<_>, _>>()?;
    let calls = messages
        .into_iter()
        .filter(|message| message["method"] == "tools/call");
    Ok(calls.map(|message| message["params"].clone()).collect())
}
