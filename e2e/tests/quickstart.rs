//! The README's first command.

use std::process::Command;

use anyhow::Result;
use codex_bridge_e2e::bridge;

#[test]
fn quickstart_prints_an_answer_and_ends() -> Result<()> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quickstart"));
    // Built already, and in this profile.
    command
        .env("CODEX_BRIDGE_BIN", bridge::binary()?)
        .arg("Say hello.");

    let output = command.output()?;

    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{stderr}");
    assert!(
        stdout.contains("> Say hello.\n\n") && stdout.contains("answered in"),
        "{stdout}"
    );
    Ok(())
}
