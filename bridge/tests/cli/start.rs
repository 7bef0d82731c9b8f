//! What a start tells, and how it ends.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::{codex_bridge, text, tiny_model};

#[test]
fn a_window_beyond_the_models_is_status_78_and_names_file_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let model = tiny_model(folder.path());
    let file = folder.path().join("bridge.json");
    let written = |engine: Value| {
        let settings = json!({"listen": {"port": 0}, "upstream": {"bundled": engine}});
        fs::write(&file, settings.to_string()).unwrap();
    };
    let shown = file.display().to_string();
    let problem = "upstream.bundled.contextLength: 8193; at most 8192 is allowed, what this model was trained for";

    written(json!({"model": model, "contextLength": 8193}));
    let output = codex_bridge(&[&shown], &[]);
    let last = text(&output.stderr)
        .lines()
        .last()
        .unwrap_or_default()
        .to_owned();
    assert_eq!(
        (output.status.code(), last),
        (Some(78), format!("{shown}: {problem}"))
    );

    written(json!({"model": model}));
    let variable = "CODEX_BRIDGE__UPSTREAM__BUNDLED__CONTEXT_LENGTH";
    let output = codex_bridge(&[&shown], &[(variable, "8193")]);
    assert_eq!(output.status.code(), Some(78));
    let line = format!("{variable}: {problem}\n");
    assert!(text(&output.stderr).ends_with(&line), "{output:?}");
}

#[test]
fn a_model_server_that_is_not_there_is_told_at_the_start_and_the_stop_says_how_long_it_takes() {
    // Port 1 is reserved for a service that nobody runs.
    let mut bridge = Command::new(env!("CARGO_BIN_EXE_codex-bridge"))
        .args([
            "--listen",
            "127.0.0.1:0",
            "--upstream",
            "http://127.0.0.1:1/v1",
        ])
        .env_clear()
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(bridge.stderr.take().unwrap()).lines();
    let mut line = || lines.next().map_or_else(String::new, Result::unwrap);

    let first = line();
    assert!(first.starts_with("codex-bridge listening on "), "{first}");
    let warning = line();
    assert!(
        warning.contains("WARN")
            && warning
                .contains("the model server at 127.0.0.1:1 cannot be reached: Connection refused")
            && warning.ends_with("; a request waits 60s for it"),
        "{warning}"
    );

    let id = bridge.id().to_string();
    assert!(Command::new("kill").arg(&id).status().unwrap().success());
    let stopping = line();
    assert!(
        stopping.ends_with(
            "stopping; open answers may go on for 10s, a second signal ends them at once"
        ),
        "{stopping}"
    );
    assert_eq!(line(), "");
    assert_eq!(bridge.wait().unwrap().code(), Some(0));
}
