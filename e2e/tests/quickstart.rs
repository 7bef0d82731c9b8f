//! The README's first command, in both its forms.

use std::process::Command;

use anyhow::Result;
use codex_bridge_e2e::bridge;
use pretty_assertions::assert_eq;

fn quickstart(arguments: &[&str]) -> Result<(bool, String, String)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quickstart"));
    // Built already, and in this profile.
    command.env("CODEX_BRIDGE_BIN", bridge::binary()?);
    let output = command.args(arguments).output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((
        output.status.success(),
        text(&output.stdout),
        text(&output.stderr),
    ))
}

#[test]
fn quickstart_prints_an_answer_of_the_bundled_engine_and_ends() -> Result<()> {
    let (success, stdout, stderr) = quickstart(&["Say hello."])?;

    assert!(success, "{stderr}");
    assert!(
        stdout.contains("> Say hello.\n\n") && stdout.contains("from its own engine."),
        "{stdout}"
    );
    assert!(!stderr.contains("llama.cpp"), "{stderr}");
    Ok(())
}

#[test]
fn quickstart_can_use_a_llama_cpp_server_instead() -> Result<()> {
    let (success, stdout, stderr) = quickstart(&["--llama-cpp", "Say hello."])?;

    assert!(success, "{stderr}");
    let answered = stdout
        .lines()
        .filter(|line| line.contains("answered in"))
        .count();
    assert_eq!(answered, 1, "{stdout}");
    assert!(stdout.contains("from http://127.0.0.1:"), "{stdout}");
    Ok(())
}
