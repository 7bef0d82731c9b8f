//! What a start tells, and how it ends.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    process::{Child, ChildStderr, Command, Stdio},
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

/// A bridge before a server that is not there, with its stderr.
fn started(arguments: &[&str]) -> (Child, BufReader<ChildStderr>) {
    let mut bridge = Command::new(env!("CARGO_BIN_EXE_codex-bridge"))
        .args(["--listen", "127.0.0.1:0"])
        // Port 1 is reserved for a service that nobody runs.
        .args(["--upstream", "http://127.0.0.1:1/v1"])
        .args(arguments)
        .env_clear()
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = BufReader::new(bridge.stderr.take().unwrap());
    (bridge, stderr)
}

fn terminate(bridge: &Child) {
    let id = bridge.id().to_string();
    assert!(Command::new("kill").arg(&id).status().unwrap().success());
}

/// The address in a ready line.
fn address(line: &str) -> String {
    let (_, rest) = line.split_once("listening on http://").unwrap();
    rest.split(' ').next().unwrap().to_owned()
}

#[test]
fn a_log_of_json_has_no_other_lines() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bridge.json");
    fs::write(&file, r#"{"log": {"format": "json"}}"#).unwrap();
    let (mut bridge, stderr) = started(&[&file.display().to_string()]);
    let mut messages = Vec::new();
    for line in stderr.lines() {
        let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
        assert!(
            line["timestamp"].is_string() && line["level"].is_string(),
            "{line}"
        );
        messages.push(line["message"].as_str().unwrap().to_owned());
        if messages.len() == 2 {
            terminate(&bridge);
        }
    }
    assert!(
        messages[0].starts_with("codex-bridge listening on "),
        "{messages:?}"
    );
    assert!(messages[1].contains("cannot be reached"), "{messages:?}");
    assert_eq!(bridge.wait().unwrap().code(), Some(0));

    // And so are the last words.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let output = codex_bridge(&[&file.display().to_string(), "--listen", &taken], &[]);
    assert_eq!(output.status.code(), Some(69));
    let last: Value = serde_json::from_str(text(&output.stderr).trim()).unwrap();
    assert_eq!(last["level"], "ERROR");
    let message = last["message"].as_str().unwrap();
    assert!(
        message.starts_with(&format!("cannot listen on {taken}: ")),
        "{message}"
    );
}

#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    let (mut bridge, mut stderr) = started(&[]);
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    drop(stderr);
    let address = address(&line);
    for _ in 0..3 {
        let mut connection = TcpStream::connect(&address).unwrap();
        let request = "GET /nowhere HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        connection.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    }
    terminate(&bridge);
    assert_eq!(bridge.wait().unwrap().code(), Some(0));
}
