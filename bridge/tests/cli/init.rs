//! `--init`: three files that belong together, for the model that is really served.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::{codex_bridge, in_repository, serve, server, text, tiny_model, told};

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
fn init_asks_a_llama_server_below_a_path_where_the_bridge_will() {
    let props =
        json!({"default_generation_settings": {"n_ctx": 8192}, "modalities": {"vision": true}});
    let address = server(vec![
        ("/llama/props", 200, props),
        ("/llama/v1/models", 200, json!({"data": [{"id": "m"}]})),
    ]);
    let url = format!("http://{address}/llama/v1");
    let (told, ..) = initialised(&["--upstream", &url], &[]);
    assert_eq!(told[1], format!("context: 8192 (told by {url})"));
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
            format!("the model server at {address} answered 404 Not Found to GET /v1/models"),
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
            "upstream": "bundled",
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
fn init_for_the_bundled_engine_takes_the_window_from_what_is_known_of_the_model() {
    let known = initialised(&["--model", "llama-3.2-1b"], &[]);
    assert_eq!(
        known.0[..3],
        [
            "model: llama-3.2-1b (of the bundled engine, whose model is not here yet)",
            "context: 131072 (of the bundled engine, whose model is not here yet)",
            "images: no (of the bundled engine, whose model is not here yet)",
        ]
    );
    assert_eq!(
        known.3,
        json!({
            "listen": {"host": "127.0.0.1", "port": 10901},
            "upstream": {"bundled": {"model": "llama-3.2-1b"}},
        })
    );
    let chosen = [("CODEX_BRIDGE__UPSTREAM__BUNDLED__CONTEXT_LENGTH", "4096")];
    let (_, entry, codex, _) = initialised(&[], &chosen);
    assert_eq!(
        (&entry["slug"], &entry["context_window"]),
        (&json!("smollm2-135m"), &json!(4096))
    );
    assert_eq!(codex["model_context_window"].as_integer(), Some(4096));
    // A file that was not fetched yet: its name is known, its window assumed.
    let (told, entry, ..) = initialised(&["--model", "hf:a/b/demo.gguf"], &[]);
    assert_eq!(entry["slug"], "demo");
    assert_eq!(told[1], "context: 32768 (assumed; --context sets it)");
    let warning = "warning: nobody told the context window; where it is not 32768 tokens, ";
    assert!(told[3].starts_with(warning), "{told:?}");
    let (told, ..) = initialised(&["--model", "hf:a/b/demo.gguf", "--context", "4096"], &[]);
    assert!(
        !told.iter().any(|line| line.contains("warning")),
        "{told:?}"
    );
}

/// Runs `--init` with what cannot be served: status and line. No file is written.
#[track_caller]
fn refused(arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("new");
    let shown = folder.display().to_string();
    let output = codex_bridge(&[arguments, &["--init", &shown]].concat(), variables);
    let (status, stdout, stderr) = told(&output);
    assert_eq!((stdout.as_str(), folder.exists()), ("", false), "{stderr}");
    (status, stderr)
}

#[test]
fn init_writes_paths_that_hold_in_every_folder() {
    let root = tempfile::tempdir().unwrap();
    // As the system names it, where the temporary folder lies behind a link.
    let folder = root.path().canonicalize().unwrap();
    tiny_model(&folder);
    for (home, given) in [
        ("", "My.Model.gguf"),
        ("", "./My.Model.gguf"),
        (".", "~/My.Model.gguf"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_codex-bridge"))
            .args(["--init", "--force", "--model", given])
            .current_dir(&folder)
            .env_clear()
            .env("CODEX_BRIDGE__UPSTREAM__BUNDLED__WARM_START_DIR", "warm")
            .env("HOME", home)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let written = fs::read(folder.join("bridge.config.json")).unwrap();
        let written: Value = serde_json::from_slice(&written).unwrap();
        assert_eq!(
            written["upstream"]["bundled"],
            json!({"model": folder.join("My.Model.gguf"), "warmStartDir": folder.join("warm")}),
            "{given}"
        );
    }
}

#[test]
fn init_refuses_a_model_that_is_not_there_or_is_none() {
    assert_eq!(
        refused(&["--model", "./demo.gguf"], &[]),
        (
            Some(66),
            "./demo.gguf: there is no such file or folder\n".to_owned()
        )
    );
    let (status, line) = refused(&["--model", "llama-3.2-4b"], &[]);
    assert_eq!((status, line.lines().count()), (Some(66), 1), "{line}");
    assert!(
        line.starts_with("\"llama-3.2-4b\" names no model: ") && line.contains("llama-3.2-3b"),
        "{line}"
    );
    let root = tempfile::tempdir().unwrap();
    let page = root.path().join("page.gguf");
    fs::write(&page, "<!doctype html>").unwrap();
    let shown = page.display().to_string();
    let (status, line) = refused(&["--model", &shown], &[]);
    assert_eq!((status, line.lines().count()), (Some(65), 1), "{line}");
    assert!(line.starts_with(&shown), "{line}");
}

#[test]
fn init_refuses_a_window_beyond_the_models() {
    let folder = tempfile::tempdir().unwrap();
    let model = tiny_model(folder.path()).display().to_string();
    let context = |tokens: &str| {
        let arguments = ["--model", model.as_str(), "--context", tokens];
        refused(&arguments, &[])
    };
    assert_eq!(
        context("100000"),
        (
            Some(78),
            "--context: 100000; at most 8192 is allowed, what My.Model was trained for\n"
                .to_owned()
        )
    );
    let (told, ..) = initialised(&["--model", &model, "--context", "8192"], &[]);
    assert_eq!(told[1], "context: 8192 (from --context)");
    let smaller = tempfile::tempdir().unwrap();
    let output = codex_bridge(
        &[
            "--init",
            &smaller.path().display().to_string(),
            "--model",
            &model,
            "--context",
            "4096",
        ],
        &[],
    );
    assert_eq!(output.status.code(), Some(0));
    let written: Value =
        serde_json::from_str(&files(smaller.path())["bridge.config.json"]).unwrap();
    // The engine is to have the window that Codex is told of.
    assert_eq!(
        written["upstream"],
        json!({"bundled": {"model": model, "contextLength": 4096}})
    );
    assert_eq!(
        refused(&["--context", "8193"], &[]),
        (
            Some(78),
            "--context: 8193; at most 8192 is allowed, what smollm2-135m was trained for\n"
                .to_owned()
        )
    );
    let variable = "CODEX_BRIDGE__UPSTREAM__BUNDLED__CONTEXT_LENGTH";
    assert_eq!(
        refused(&["--context", "8000"], &[(variable, "4096")]),
        (
            Some(78),
            "--context: 8000; at most 4096 is allowed, what upstream.bundled.contextLength says\n"
                .to_owned()
        )
    );
    assert_eq!(
        refused(&[], &[(variable, "100000")]),
        (
            Some(78),
            format!(
                "{variable}: upstream.bundled.contextLength: 100000; at most 8192 is allowed, \
                 what smollm2-135m was trained for\n"
            )
        )
    );
}

#[test]
fn init_waits_for_a_server_that_is_loading() {
    let mut loading = 4;
    let address = serve(move |path, _| {
        if loading > 0 {
            loading -= 1;
            return (
                503,
                json!({"error": {"type": "unavailable_error", "message": "Loading model"}}),
            );
        }
        match path {
            "/v1/models" => (200, json!({"data": [{"id": "m", "meta": {"n_ctx": 8192}}]})),
            _ => (404, json!({})),
        }
    });
    let root = tempfile::tempdir().unwrap();
    let shown = root.path().display().to_string();
    let url = format!("http://{address}/v1");
    let (status, stdout, stderr) =
        told(&codex_bridge(&["--init", &shown, "--upstream", &url], &[]));
    assert_eq!(
        (status, stderr),
        (
            Some(0),
            format!(
                "the model server at {address} is still loading its model; waiting up to 60s\n"
            )
        )
    );
    assert!(
        stdout.starts_with(&format!(
            "model: m (told by {url})\ncontext: 8192 (told by {url})\n"
        )),
        "{stdout}"
    );
}

#[test]
fn init_says_why_a_server_tells_nothing() {
    const WAY_OUT: &str = "; with --model and --context it need not be asked\n";
    let at_once = |url: &str| json!({"baseUrl": url, "waitForReady": "off"}).to_string();
    let refusal = |url: &str, arguments: &[&str]| {
        let upstream = at_once(url);
        refused(arguments, &[("CODEX_BRIDGE__UPSTREAM", upstream.as_str())])
    };
    let loading = server(vec![(
        "/props",
        503,
        json!({"error": {"type": "unavailable_error", "message": "Loading model"}}),
    )]);
    let nameless = server(vec![("/v1/models", 200, json!({"data": []}))]);
    let nothing = server(vec![]);
    // Port 1 is reserved for a service that nobody runs.
    let nobody = "127.0.0.1:1".to_owned();
    for (address, cause) in [
        (
            &nobody,
            "cannot be reached: Connection refused (os error 111)",
        ),
        (&loading, "is still loading its model"),
        (&nothing, "answered 404 Not Found to GET /v1/models"),
    ] {
        let line = format!("nothing written: the model server at {address} {cause}{WAY_OUT}");
        let url = format!("http://{address}/v1");
        assert_eq!(refusal(&url, &[]), (Some(1), line.clone()));
        assert_eq!(
            refusal(&url, &["--context", "4096"]),
            (Some(1), line.clone())
        );
        assert_eq!(refusal(&url, &["--model", "m"]), (Some(1), line));
        let (told, entry, ..) = initialised(
            &["--upstream", &url, "--model", "m", "--context", "4096"],
            &[],
        );
        assert_eq!(told[0], format!("the model server at {address} {cause}"));
        assert_eq!(
            (&entry["slug"], &entry["context_window"]),
            (&json!("m"), &json!(4096))
        );
    }
    assert_eq!(
        refusal(&format!("http://{nameless}/v1"), &[]),
        (
            Some(1),
            "nothing written: the model server does not say which model it serves; --model names it\n"
                .to_owned()
        )
    );
}
