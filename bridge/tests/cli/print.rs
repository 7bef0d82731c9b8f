//! What is printed for a reader that leaves early, as `| head -1` does.

use std::process::{Command, Stdio};

use pretty_assertions::assert_eq;

use crate::{text, tiny_model};

#[test]
fn a_reader_that_has_left_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let model = tiny_model(folder.path()).display().to_string();
    let written = folder.path().join("written").display().to_string();
    for arguments in [
        &["inspect", model.as_str()][..],
        &["pull", model.as_str()],
        &["--check"],
        &["--init", written.as_str()],
        &["--help"],
        &["--version"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = Command::new(env!("CARGO_BIN_EXE_codex-bridge"))
            .args(arguments)
            .env_clear()
            .stdout(Stdio::from(writer))
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        assert_eq!(
            (output.status.code(), text(&output.stderr)),
            (Some(0), String::new()),
            "{arguments:?}"
        );
    }
}

#[cfg(target_os = "linux")]
#[test]
fn what_cannot_be_written_is_status_74_and_one_line() {
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_codex-bridge"))
        .arg("--check")
        .env_clear()
        .stdout(full)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(
        (output.status.code(), text(&output.stderr)),
        (
            Some(74),
            "stdout: No space left on device (os error 28)\n".to_owned()
        )
    );
}
