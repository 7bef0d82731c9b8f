//! `--init`: three files that belong together, for the model that is really served.

use std::{collections::BTreeMap, fs, path::Path};

use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::{codex_bridge, in_repository, server, text, told};

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
    // A file that is nothing yet: its name is known, its window assumed.
    let (told, entry, ..) = initialised(&["--model", "./demo.gguf"], &[]);
    assert_eq!(entry["slug"], "demo");
    assert_eq!(told[1], "context: 32768 (assumed; --context sets it)");
}
