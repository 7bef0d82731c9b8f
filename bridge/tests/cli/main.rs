//! The real binary: exit statuses, the one line on stderr, and the files of `--init`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod init;
mod model;
mod print;
mod start;

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
};

use backend::testing::TinyLlama;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// With nothing of the surrounding environment.
fn codex_bridge(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_codex-bridge"))
        .args(arguments)
        .env_clear()
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Status, stdout, stderr.
fn told(output: &Output) -> (Option<i32>, String, String) {
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// A model trained for 8192 tokens, in `folder`.
fn tiny_model(folder: &Path) -> PathBuf {
    let path = folder.join("My.Model.gguf");
    let tiny = TinyLlama {
        context: 8192,
        ..TinyLlama::default()
    };
    tiny.write_gguf(&path).unwrap();
    path
}

fn in_repository(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(path)
        .display()
        .to_string()
}

/// Answers each request with the body for its path, or 404, for ever. Returns the address.
fn server(answers: Vec<(&'static str, u16, Value)>) -> String {
    serve(move |path, head| {
        let authorised = head.to_lowercase().contains("authorization: bearer k-test");
        match answers.iter().find(|(answered, ..)| *answered == path) {
            Some((_, 401, _)) if authorised => (200, json!({"status": "ok"})),
            Some((_, status, body)) => (*status, body.clone()),
            None => (404, json!({})),
        }
    })
}

/// Answers each request as told by its path and head, for ever. Returns the address.
fn serve(mut answer: impl FnMut(&str, &str) -> (u16, Value) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
                head.push(byte[0]);
            }
            let head = text(&head);
            let path = head.split(' ').nth(1).unwrap_or_default();
            let (status, body) = answer(path, &head);
            let body = body.to_string();
            let length = body.len();
            write!(
                stream,
                "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            )
            .unwrap();
        }
    });
    address
}

#[test]
fn wrong_usage_is_status_2() {
    for arguments in [
        &["--no-such"][..],
        &["--listen", "127.0.0.1"],
        &["--force"],
        &["--context", "4096"],
        &["pull"],
        &["inspect", "a.gguf", "--context", "0"],
        &["--listen", "127.0.0.1:0", "pull", "m"],
        &["--check", "--health"],
        &["--init", "d", "--context", "many"],
        &["--init", "d", "--context", "9223372036854775808"],
        &["--init", "d", "--model", ""],
        &["--init", "d", "--model", " \n"],
        &["a.json", "b.json"],
    ] {
        let (status, stdout, stderr) = told(&codex_bridge(arguments, &[]));
        assert_eq!(
            (status, stdout.as_str()),
            (Some(2), ""),
            "{arguments:?}: {stderr}"
        );
    }
}

#[test]
fn help_and_version_go_to_stdout() {
    let version = format!("codex-bridge {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(
        told(&codex_bridge(&["--version"], &[])),
        (Some(0), version, String::new())
    );
    let (status, stdout, stderr) = told(&codex_bridge(&["--help"], &[]));
    assert_eq!((status, stderr.as_str()), (Some(0), ""));
    for option in [
        "pull",
        "inspect",
        "--listen",
        "--upstream",
        "--init",
        "--force",
        "--model",
        "--context",
        "--check",
        "--health",
    ] {
        assert!(stdout.contains(option), "{option}");
    }
}

#[test]
fn a_wrong_configuration_is_status_78_and_one_line() {
    let port = "CODEX_BRIDGE__LISTEN__PORT: listen.port: \"abc\"; a whole number from 0 to 65535 is allowed\n";
    let missing = "no-such.json: cannot be read: No such file or directory (os error 2)\n";
    let url = "--upstream: upstream: a URL with credentials; \
               an http:// or https:// URL without credentials, query or fragment, or \"bundled\", is allowed\n";
    for (arguments, variables, line) in [
        (&["--upstream", "http://u:p@h"][..], &[][..], url),
        (&["no-such.json"], &[], missing),
        (&[], &[("CODEX_BRIDGE__LISTEN__PORT", "abc")], port),
        (&["--check"], &[("CODEX_BRIDGE__LISTEN__PORT", "abc")], port),
        (
            &["--health"],
            &[("CODEX_BRIDGE__LISTEN__PORT", "abc")],
            port,
        ),
        (
            &["--init", "never"],
            &[("CODEX_BRIDGE__LISTEN__PORT", "abc")],
            port,
        ),
    ] {
        let expected = (Some(78), String::new(), line.to_owned());
        assert_eq!(
            told(&codex_bridge(arguments, variables)),
            expected,
            "{arguments:?}"
        );
    }
}

#[test]
fn check_prints_the_effective_configuration_with_keys_masked() {
    let variables = [
        ("CODEX_BRIDGE__LISTEN__API_KEY", "k-test"),
        ("CODEX_BRIDGE__LISTEN__HOST", "0.0.0.0"),
    ];
    let output = codex_bridge(&["--check", "--upstream", "http://h/v1/"], &variables);
    assert_eq!(
        (output.status.code(), text(&output.stderr)),
        (Some(0), String::new())
    );
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        printed,
        json!({
            "listen": {"host": "0.0.0.0", "port": 10901, "apiKey": "********", "allowedHosts": [], "allowedOrigins": []},
            "maxRequestBodyBytes": 16_777_216,
            "upstream": {"baseUrl": "http://h/v1", "kind": "auto", "connectTimeout": "10s", "idleTimeout": "30m",
                         "waitForReady": "1m"},
            "excludedMcpTools": [],
            "phase": "stream",
            "keepAlive": "15s",
            "unknownTools": "refuse",
            "systemMessages": "auto",
            "modelAliases": {},
            "repairPatchMarkers": false,
            "limits": {"maxEventBytes": 8_388_608, "maxHeldBytes": 8_388_608, "maxResponseBytes": 67_108_864,
                       "maxConnections": 1024, "headerTimeout": "10s"},
            "shutdownGrace": "10s",
            "log": {"format": "text", "filter": "info"},
        })
    );
}

#[test]
fn health_is_zero_only_for_200() {
    for (status, body, expected) in [
        (200, json!({"status": "ok"}), 0),
        (503, json!({"status": "draining"}), 1),
    ] {
        let address = server(vec![("/health", status, body.clone())]);
        let output = codex_bridge(&["--health", "--listen", &address], &[]);
        assert_eq!(
            told(&output),
            (Some(expected), format!("{body}\n"), String::new())
        );
    }
}

#[test]
fn health_sends_the_key() {
    let address = server(vec![("/health", 401, json!({"error": {}}))]);
    let key = [("CODEX_BRIDGE__LISTEN__API_KEY", "k-test")];
    let without = codex_bridge(&["--health", "--listen", &address], &[]);
    let with = codex_bridge(&["--health", "--listen", &address], &key);
    assert_eq!(
        (without.status.code(), with.status.code()),
        (Some(1), Some(0))
    );
}

#[test]
fn health_without_an_answer_is_one_line() {
    // Port 1 is reserved for a service that nobody runs.
    let (status, stdout, stderr) =
        told(&codex_bridge(&["--health", "--listen", "127.0.0.1:1"], &[]));
    assert_eq!(
        (status, stdout.as_str(), stderr.lines().count()),
        (Some(1), "", 1),
        "{stderr}"
    );
    assert!(
        stderr.starts_with("http://127.0.0.1:1/health: Connection refused"),
        "{stderr}"
    );
    let line =
        "listen.port is 0, so the running bridge's port is not known here; give it with --listen\n"
            .to_owned();
    let output = codex_bridge(&["--health", "--listen", "127.0.0.1:0"], &[]);
    assert_eq!(told(&output), (Some(1), String::new(), line));
}

#[test]
fn every_example_loads() {
    for name in ["bridge.config.json", "bridge.config.toml"] {
        let output = codex_bridge(
            &["--check", &in_repository(&format!("examples/{name}"))],
            &[],
        );
        assert_eq!(
            (output.status.code(), text(&output.stderr)),
            (Some(0), String::new()),
            "{name}"
        );
    }
    let unit = fs::read_to_string(in_repository("examples/codex-bridge.service")).unwrap();
    let command = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="))
        .unwrap();
    let arguments: Vec<&str> = command.split(' ').collect();
    assert_eq!(
        arguments,
        [
            "/usr/bin/codex-bridge",
            "/etc/codex-bridge/bridge.config.json"
        ]
    );
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_not_utf8_is_told_and_never_taken_for_unset() {
    use std::os::unix::ffi::OsStrExt as _;
    let garbled = std::ffi::OsStr::from_bytes(b"k\xff");
    let of_upstream = r#"{"baseUrl":"http://h/v1","apiKeyEnv":"MODEL_KEY"}"#;
    let keyed = "CODEX_BRIDGE__UPSTREAM: upstream.apiKeyEnv: \"MODEL_KEY\" is not UTF-8; the name of an environment \
                 variable that holds the key is allowed\n";
    for (name, line) in [
        (
            "CODEX_BRIDGE__LISTEN__API_KEY",
            "CODEX_BRIDGE__LISTEN__API_KEY: not UTF-8; text is allowed\n",
        ),
        (
            "CODEX_BRIDGE_CONFIG",
            "CODEX_BRIDGE_CONFIG: not UTF-8; text is allowed\n",
        ),
        ("MODEL_KEY", keyed),
        ("SOMETHING_ELSE", ""),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_codex-bridge"));
        command.arg("--check").env_clear().env(name, garbled);
        match name {
            "MODEL_KEY" => command.env("CODEX_BRIDGE__UPSTREAM", of_upstream),
            _ => command.env("CODEX_BRIDGE__UPSTREAM", "http://h/v1"),
        };
        let output = command.output().unwrap();
        let status = if line.is_empty() { 0 } else { 78 };
        assert_eq!(
            (output.status.code(), text(&output.stderr)),
            (Some(status), line.to_owned()),
            "{name}"
        );
    }
}

#[cfg(unix)]
#[test]
fn a_pipe_or_a_folder_is_no_configuration_and_nobody_waits_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe.json");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    for path in [pipe.as_path(), folder.path()] {
        let shown = path.display().to_string();
        for arguments in [&["--check", &shown][..], &[&shown]] {
            assert_eq!(
                told(&codex_bridge(arguments, &[])),
                (
                    Some(78),
                    String::new(),
                    format!("{shown}: not a file; a JSON or TOML file is allowed\n")
                )
            );
        }
    }
}
