//! The real binary: exit statuses, the one line on stderr, and the files of `--init`.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    path::Path,
    process::{Command, Output},
    thread,
};

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

fn in_repository(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(path)
        .display()
        .to_string()
}

/// Answers each request with the body for its path, or 404, for ever. Returns the address.
fn server(answers: Vec<(&'static str, u16, Value)>) -> String {
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
            let authorised = head.to_lowercase().contains("authorization: bearer k-test");
            let (status, body) = match answers.iter().find(|(answered, ..)| *answered == path) {
                Some((_, 401, _)) if authorised => (200, json!({"status": "ok"})),
                Some((_, status, body)) => (*status, body.clone()),
                None => (404, json!({})),
            };
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
        &["--model", "m"],
        &["--check", "--health"],
        &["--init", "d", "--context", "many"],
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
    let engine = "upstream: \"bundled\" is the default, but the bundled engine is not in this release; \
                  name a server with `--upstream http://127.0.0.1:8080/v1` or the configuration key `upstream`\n";
    let port = "CODEX_BRIDGE__LISTEN__PORT: listen.port: \"abc\"; a whole number from 0 to 65535 is allowed\n";
    let missing = "no-such.json: cannot be read: No such file or directory (os error 2)\n";
    let url = "--upstream: upstream: a URL with credentials; \
               an http:// or https:// URL without credentials, query or fragment is allowed\n";
    for (arguments, variables, line) in [
        (&[][..], &[][..], engine),
        (&["--upstream", "bundled"], &[], engine),
        (&["--upstream", "http://u:p@h"], &[], url),
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

/// The files of a folder by name.
fn files(folder: &Path) -> BTreeMap<String, String> {
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            (
                path.file_name().unwrap().to_str().unwrap().to_owned(),
                fs::read_to_string(path).unwrap(),
            )
        })
        .collect()
}

#[test]
fn init_writes_the_examples() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("new/folder");
    let shown = folder.display().to_string();
    let output = codex_bridge(&["--init", &shown], &[]);
    assert_eq!(
        (output.status.code(), text(&output.stderr)),
        (Some(0), String::new())
    );
    let written: BTreeMap<String, String> = files(&folder)
        .into_iter()
        .map(|(name, text)| (name, text.replace(&shown, "/path/to")))
        .collect();
    let examples = [
        "bridge.config.json",
        "codex.config.toml",
        "model-catalog.json",
    ]
    .map(|name| {
        (
            name.to_owned(),
            fs::read_to_string(in_repository(&format!("examples/{name}"))).unwrap(),
        )
    });
    assert_eq!(written, BTreeMap::from(examples));
}

#[test]
fn init_writes_nothing_where_a_file_exists_unless_forced() {
    let root = tempfile::tempdir().unwrap();
    let shown = root.path().display().to_string();
    let existing = root.path().join("codex.config.toml");
    fs::write(&existing, "mine").unwrap();
    let line = format!(
        "nothing written: {} is already there; --force replaces\n",
        existing.display()
    );
    assert_eq!(
        told(&codex_bridge(&["--init", &shown], &[])),
        (Some(1), String::new(), line)
    );
    assert_eq!(
        files(root.path()),
        BTreeMap::from([("codex.config.toml".to_owned(), "mine".to_owned())])
    );
    assert_eq!(
        codex_bridge(&["--init", &shown, "--force"], &[])
            .status
            .code(),
        Some(0)
    );
    let names: Vec<String> = files(root.path()).into_keys().collect();
    assert_eq!(
        names,
        [
            "bridge.config.json",
            "codex.config.toml",
            "model-catalog.json"
        ]
    );
}

/// What `--init` tells, and the catalog entry and Codex configuration it writes.
fn initialised(
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> (Vec<String>, Value, toml::Table, Value) {
    let root = tempfile::tempdir().unwrap();
    let shown = root.path().display().to_string();
    let output = codex_bridge(&[arguments, &["--init", &shown]].concat(), variables);
    assert_eq!(
        (output.status.code(), text(&output.stderr)),
        (Some(0), String::new())
    );
    let files = files(root.path());
    let catalog: Value = serde_json::from_str(&files["model-catalog.json"]).unwrap();
    let told = text(&output.stdout).lines().map(str::to_owned).collect();
    let bridge = serde_json::from_str(&files["bridge.config.json"]).unwrap();
    (
        told,
        catalog["models"][0].clone(),
        files["codex.config.toml"].parse().unwrap(),
        bridge,
    )
}

#[test]
fn init_asks_the_upstream_for_the_running_window_and_modalities() {
    let address = server(vec![
        (
            "/props",
            200,
            json!({"default_generation_settings": {"n_ctx": 8192}, "modalities": {"vision": true}}),
        ),
        (
            "/v1/models",
            200,
            json!({"data": [{"id": "demo/coder-8b", "meta": {"n_ctx": 8192, "n_ctx_train": 131_072}}]}),
        ),
    ]);
    let url = format!("http://{address}/v1");
    let (told, entry, codex, bridge) = initialised(&["--upstream", &url], &[]);
    assert_eq!(
        told[..3],
        [
            format!("model: demo/coder-8b (told by {url})"),
            format!("context: 8192 (told by {url})"),
            format!("images: yes (told by {url})"),
        ]
    );
    assert_eq!(
        [
            &entry["slug"],
            &entry["context_window"],
            &entry["auto_compact_token_limit"],
            &entry["input_modalities"],
            &entry["apply_patch_tool_type"]
        ],
        [
            &json!("demo/coder-8b"),
            &json!(8192),
            &json!(6554),
            &json!(["text", "image"]),
            &json!("freeform")
        ]
    );
    assert_eq!(
        (
            codex["model"].as_str(),
            codex["model_context_window"].as_integer()
        ),
        (Some("demo/coder-8b"), Some(8192))
    );
    assert_eq!(
        bridge,
        json!({"listen": {"host": "127.0.0.1", "port": 10901}, "upstream": url})
    );
}

#[test]
fn init_takes_the_users_word_over_the_upstreams_silence() {
    let address = server(vec![]);
    let url = format!("http://{address}/v1");
    let (told, entry, codex, _) = initialised(
        &[
            "--upstream",
            &url,
            "--model",
            "a \"b\"",
            "--context",
            "16384",
        ],
        &[],
    );
    assert_eq!(
        told[..4],
        [
            format!("{url} did not say which model it serves"),
            "model: a \"b\" (from --model)".to_owned(),
            "context: 16384 (from --context)".to_owned(),
            "images: no (assumed)".to_owned(),
        ]
    );
    assert_eq!(
        [&entry["slug"], &entry["input_modalities"]],
        [&json!("a \"b\""), &json!(["text"])]
    );
    assert_eq!(codex["model"].as_str(), Some("a \"b\""));
}

#[test]
fn init_copies_no_key_and_keeps_what_was_chosen() {
    let variables = [
        ("CODEX_BRIDGE__LISTEN__API_KEY", "k-test"),
        (
            "CODEX_BRIDGE__WEB_SEARCH_TOOL",
            r#"{"namespace": "mcp__finder", "tool": "query"}"#,
        ),
    ];
    let (told, _, codex, bridge) = initialised(&["--listen", "0.0.0.0:7000"], &variables);
    assert!(
        told.iter()
            .any(|line| line.starts_with("listen.apiKey was not copied:")),
        "{told:?}"
    );
    assert_eq!(
        bridge,
        json!({
            "listen": {"host": "0.0.0.0", "port": 7000, "apiKeyEnv": "CODEX_BRIDGE_API_KEY"},
            "upstream": "http://127.0.0.1:8080/v1",
            "webSearchTool": {"namespace": "mcp__finder", "tool": "query"},
        })
    );
    let provider = &codex["model_providers"]["codex_bridge"];
    assert_eq!(
        (
            provider["base_url"].as_str(),
            provider["env_key"].as_str(),
            codex["web_search"].as_str()
        ),
        (
            Some("http://127.0.0.1:7000/v1"),
            Some("CODEX_BRIDGE_API_KEY"),
            Some("live")
        )
    );
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
