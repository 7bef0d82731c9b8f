//! Every fault of a configuration is one line: the place, the key as it was written, what came, what is allowed.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{fs, path::PathBuf};

use codex_bridge::config::{Environment, Flags, Sources};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

const URL: &str = "an http:// or https:// URL without credentials, query or fragment is allowed";
const URL_OR_BUNDLED: &str =
    "an http:// or https:// URL without credentials, query or fragment, or \"bundled\", is allowed";
const TIME: &str =
    "\"250ms\", \"15s\", \"30m\", \"1h\" or whole seconds, up to one year, are allowed";
const TIME_OR_OFF: &str = "\"250ms\", \"15s\", \"30m\", \"1h\" or whole seconds, up to one year, or \"off\" or 0 are allowed";
const TEXT: &str = "a non-empty string is allowed";
const PORT: &str = "a whole number from 0 to 65535 is allowed";
const BYTES: &str = "a whole number of bytes above 0 is allowed";
const SECRET: &str = "printable ASCII without spaces is allowed";
const VARIABLE: &str = "the name of an environment variable that holds the key is allowed";
const HOST: &str = "a host name or IP address is allowed";

/// The line for a file of this text; `FILE` stands for its path.
fn fault(name: &str, text: &str, variables: &[(&str, &str)], flags: Flags) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    let environment: Environment = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let error = Sources {
        path: Some(path.clone()),
        environment,
        flags,
    }
    .load()
    .unwrap_err();
    error
        .to_string()
        .replace(&path.display().to_string(), "FILE")
}

#[track_caller]
fn check(cases: &[(Value, String)]) {
    for (settings, expected) in cases {
        let line = fault(
            "a.json",
            &settings.to_string(),
            &[("SPACED", "a b"), ("EMPTY", "")],
            Flags::default(),
        );
        assert_eq!(line, format!("FILE: {expected}"), "{settings}");
    }
}

#[test]
fn unknown_and_doubled_keys() {
    let top = "listen, maxRequestBodyBytes, upstream, webSearchTool, mcpProxy, excludedMcpTools, phase, keepAlive, \
               unknownTools, systemMessages, modelAliases, defaultReasoningEffort, repairPatchMarkers, limits, \
               shutdownGrace, log";
    check(&[
        (
            json!({"webSearchTol": {}}),
            "webSearchTol: unknown key; did you mean `webSearchTool`?".into(),
        ),
        (
            json!({"web_search_tol": {}}),
            "web_search_tol: unknown key; did you mean `web_search_tool`?".into(),
        ),
        (
            json!({"host": "h"}),
            "host: unknown key; did you mean `listen.host`?".into(),
        ),
        (
            json!({"log": {"colour": 1}}),
            "log.colour: unknown key; the keys here are format, filter".into(),
        ),
        (
            json!({"a\nb": 1, "listen": 5}),
            format!("a b: unknown key; the keys here are {top}"),
        ),
        (
            json!({"excludedMcpTools": [{"namespace": "a", "tool": []}]}),
            "excludedMcpTools[0].tool: unknown key; did you mean `excludedMcpTools[0].tools`?"
                .into(),
        ),
        (
            json!({"keepAlive": 1, "keep_alive": 1}),
            "keepAlive: given as both `keepAlive` and `keep_alive`; one spelling is allowed".into(),
        ),
    ]);
}

#[test]
fn where_clients_come_in() {
    check(&[
        (json!({"listen": 5}), "listen: 5; a table of keys is allowed".into()),
        (json!({"listen": null}), "listen: null; a table of keys is allowed".into()),
        (json!({"listen": {"port": "80"}}), format!("listen.port: \"80\"; {PORT}")),
        (json!({"listen": {"port": 70000}}), format!("listen.port: 70000; {PORT}")),
        (json!({"listen": {"port": 80.5}}), format!("listen.port: 80.5; {PORT}")),
        (json!({"listen": {"port": true}}), format!("listen.port: true; {PORT}")),
        (json!({"listen": {"host": 127}}), format!("listen.host: 127; {HOST}")),
        (json!({"listen": {"host": "a b"}}), format!("listen.host: \"a b\"; {HOST}")),
        (json!({"listen": {"apiKey": "a\nb"}}), format!("listen.apiKey: a string with other characters; {SECRET}")),
        (json!({"listen": {"apiKey": ""}}), format!("listen.apiKey: an empty string; {SECRET}")),
        (json!({"listen": {"apiKey": 12345}}), format!("listen.apiKey: a number; {SECRET}")),
        (json!({"listen": {"apiKeyEnv": "NO_SUCH"}}), format!("listen.apiKeyEnv: \"NO_SUCH\" is not set; {VARIABLE}")),
        (json!({"listen": {"apiKeyEnv": "EMPTY"}}), format!("listen.apiKeyEnv: \"EMPTY\" is empty; {VARIABLE}")),
        (
            json!({"listen": {"api_key_env": "SPACED"}}),
            format!("listen.api_key_env: \"SPACED\" holds more than printable ASCII without spaces; {VARIABLE}"),
        ),
        (
            json!({"listen": {"apiKey": "k", "apiKeyEnv": "K"}}),
            "listen.apiKeyEnv: given beside `apiKey`; one of the two is allowed".into(),
        ),
        (
            json!({"listen": {"allowedHosts": ["h:80"]}}),
            "listen.allowedHosts[0]: \"h:80\"; a list of host names without port is allowed".into(),
        ),
        (
            json!({"listen": {"allowedOrigins": ["*"]}}),
            "listen.allowedOrigins[0]: \"*\"; a list of origins such as \"http://localhost:3000\" is allowed".into(),
        ),
    ]);
}

#[test]
fn other_machines_need_a_key() {
    let line = |host: &str| {
        format!(
            "listen.host: {host:?} is reachable from other machines, and neither `listen.apiKey` nor \
             `listen.apiKeyEnv` is set; a loopback address, or any address with a key is allowed"
        )
    };
    check(&[
        (json!({"listen": {"host": "0.0.0.0"}}), line("0.0.0.0")),
        (json!({"listen": {"host": "::"}}), line("::")),
        // What the system would make of it.
        (json!({"listen": {"host": "0"}}), line("0.0.0.0")),
        (
            json!({"listen": {"host": "Box.example"}}),
            line("box.example"),
        ),
    ]);
}

#[test]
fn the_upstream() {
    let shapes = "a URL, \"bundled\" or a table with `baseUrl` or `bundled` is allowed";
    check(&[
        (json!({"upstream": null}), format!("upstream: null; {shapes}")),
        (json!({"upstream": 5}), format!("upstream: 5; {shapes}")),
        (json!({"upstream": "bundeld"}), format!("upstream: \"bundeld\"; {URL_OR_BUNDLED}")),
        (json!({"upstream": "http://u:p@h/v1"}), format!("upstream: a URL with credentials; {URL_OR_BUNDLED}")),
        (
            json!({"upstream": {"baseUrl": "http://h/v1?a=b"}}),
            format!("upstream.baseUrl: a URL with a query; {URL}"),
        ),
        (json!({"upstream": {"kind": "auto"}}), format!("upstream.baseUrl: missing; {URL}")),
        (json!({"upstream": {"api_key": "k"}}), format!("upstream.baseUrl: missing; {URL}")),
        (json!({"upstream": {}}), format!("upstream.baseUrl: missing; {URL}")),
        (
            json!({"upstream": {"baseUrl": "http://h", "bundled": {}}}),
            "upstream: `bundled` beside settings of an HTTP upstream; one of `baseUrl` and `bundled` is allowed".into(),
        ),
        (
            json!({"upstream": {"baseUrl": "http://h", "kind": "vllm"}}),
            "upstream.kind: \"vllm\"; \"auto\", \"llama.cpp\" or \"responses\" is allowed".into(),
        ),
        (
            json!({"upstream": {"baseUrl": "http://h", "idleTimeout": "abc"}}),
            format!("upstream.idleTimeout: \"abc\"; {TIME_OR_OFF}"),
        ),
        (
            json!({"upstream": {"baseUrl": "http://h", "idle_timeout": -5}}),
            format!("upstream.idle_timeout: -5; {TIME_OR_OFF}"),
        ),
    ]);
}

#[test]
fn the_bundled_engine() {
    let device = "\"auto\" or \"cpu\" is allowed; CUDA is not in this release";
    let batch = "a whole number from 1 to 1024 is allowed";
    let kv_cache = "\"auto\", \"f32\", \"f16\", \"bf16\" or \"q8\" is allowed";
    let tools = "\"auto\", \"full\", \"compact\" or \"off\" is allowed";
    let model = "a path, an alias, hf:owner/repo/file or pip:package==version/file is allowed";
    let line = |key: &str, value: Value, expected: String| {
        (json!({"upstream": {"bundled": {key: value}}}), expected)
    };
    check(&[
        line(
            "contextLength",
            json!("8k"),
            "upstream.bundled.contextLength: \"8k\"; a whole number of tokens above 0 is allowed".into(),
        ),
        line(
            "context_length",
            json!(0),
            "upstream.bundled.context_length: 0; a whole number of tokens above 0 is allowed".into(),
        ),
        line("device", json!("cuda:0"), format!("upstream.bundled.device: \"cuda:0\"; {device}")),
        line("maxBatch", json!(1025), format!("upstream.bundled.maxBatch: 1025; {batch}")),
        line("max_batch", json!(0), format!("upstream.bundled.max_batch: 0; {batch}")),
        line("threads", json!(5000), format!("upstream.bundled.threads: 5000; {batch}")),
        line("kvCache", json!("fp8"), format!("upstream.bundled.kvCache: \"fp8\"; {kv_cache}")),
        line("tools", json!("short"), format!("upstream.bundled.tools: \"short\"; {tools}")),
        line("warmStart", json!("yes"), "upstream.bundled.warmStart: \"yes\"; true or false is allowed".into()),
        line("warmStartBytes", json!(0), format!("upstream.bundled.warmStartBytes: 0; {BYTES}")),
        line("waitForReady", json!("long"), format!("upstream.bundled.waitForReady: \"long\"; {TIME_OR_OFF}")),
        line("model", json!(""), format!("upstream.bundled.model: \"\"; {model}")),
        line(
            "contextlength",
            json!(1),
            "upstream.bundled.contextlength: unknown key; did you mean `upstream.bundled.contextLength`?".into(),
        ),
    ]);
}

#[test]
fn a_model_beside_a_server() {
    let flags = Flags {
        model: Some("m.gguf".to_owned()),
        ..Flags::default()
    };
    assert_eq!(
        fault("a.json", r#"{"upstream": "http://h/v1"}"#, &[], flags),
        "--model: upstream.bundled.model: \"m.gguf\" beside an HTTP upstream, which serves its own model; \
         a model of the bundled engine is allowed; `--upstream bundled` chooses it"
    );
    let flags = Flags {
        model: Some(" ".to_owned()),
        ..Flags::default()
    };
    assert_eq!(
        fault("a.json", "{}", &[], flags),
        "--model: upstream.bundled.model: \" \"; a path, an alias, hf:owner/repo/file or \
         pip:package==version/file is allowed"
    );
}

#[test]
fn tools() {
    let search = "a table with `namespace` and `tool` is allowed";
    let excluded = "a list of tables with `namespace` and `tools` is allowed";
    check(&[
        (json!({"webSearchTool": null}), format!("webSearchTool: null; {search}")),
        (json!({"webSearchTool": []}), format!("webSearchTool: a list; {search}")),
        (json!({"webSearchTool": {"namespace": "a"}}), format!("webSearchTool.tool: missing; {TEXT}")),
        (
            json!({"webSearchTool": {"namespace": "a", "tool": " "}}),
            format!("webSearchTool.tool: \" \"; {TEXT}"),
        ),
        (
            json!({"webSearchTool": {"namespace": "a", "tool": "b"},
                   "excludedMcpTools": [{"namespace": "a", "tools": ["b"]}]}),
            "webSearchTool: \"b\" of \"a\" also stands in `excludedMcpTools`; a tool that is not excluded is allowed"
                .into(),
        ),
        (json!({"excludedMcpTools": {}}), format!("excludedMcpTools: a table; {excluded}")),
        (json!({"excludedMcpTools": ["a"]}), format!("excludedMcpTools[0]: \"a\"; {excluded}")),
        (
            json!({"excludedMcpTools": [{"namespace": "a", "tools": ["b", ""]}]}),
            "excludedMcpTools[0].tools[1]: \"\"; a list of non-empty strings is allowed".into(),
        ),
        (json!({"mcpProxy": {}}), format!("mcpProxy.baseUrl: missing; {URL}")),
        (json!({"mcpProxy": "http://h"}), "mcpProxy: \"http://h\"; a table with `baseUrl` is allowed".into()),
    ]);
}

#[test]
fn everything_else() {
    check(&[
        (json!({"maxRequestBodyBytes": 0}), format!("maxRequestBodyBytes: 0; {BYTES}")),
        (json!({"max_request_body_bytes": -1}), format!("max_request_body_bytes: -1; {BYTES}")),
        (json!({"limits": {"headerTimeout": "off"}}), format!("limits.headerTimeout: \"off\"; {TIME}")),
        (
            json!({"limits": {"maxConnections": 1_000_001}}),
            "limits.maxConnections: 1000001; a whole number from 1 to 1000000 is allowed".into(),
        ),
        (json!({"phase": "later"}), "phase: \"later\"; \"stream\" or \"hold\" is allowed".into()),
        (json!({"phase": {"hold": null}}), "phase: a table; \"stream\" or \"hold\" is allowed".into()),
        (json!({"unknownTools": "keep"}), "unknownTools: \"keep\"; \"refuse\" or \"drop\" is allowed".into()),
        (
            json!({"systemMessages": "no"}),
            "systemMessages: \"no\"; \"auto\", \"merge\" or \"keep\" is allowed".into(),
        ),
        (
            json!({"modelAliases": {"gpt-5": 5}}),
            "modelAliases.gpt-5: 5; a table from a model name or \"*\" to a non-empty model name is allowed".into(),
        ),
        (
            json!({"model_aliases": {"a": "b", "gpt\n5.5": null}}),
            "model_aliases.gpt 5.5: null; a table from a model name or \"*\" to a non-empty model name is allowed".into(),
        ),
        (
            json!({"excludedMcpTools": [{"namespace": "a", "tools": ["b", 5]}]}),
            "excludedMcpTools[0].tools[1]: 5; a list of non-empty strings is allowed".into(),
        ),
        (
            json!({"modelAliases": {"gpt-5.5": ""}}),
            "modelAliases.gpt-5.5: \"\"; a table from a model name or \"*\" to a non-empty model name is allowed".into(),
        ),
        (
            json!({"defaultReasoningEffort": "Very High"}),
            "defaultReasoningEffort: \"Very High\"; one lower-case word is allowed, e.g. \"low\" or \"high\"".into(),
        ),
        (json!({"repairPatchMarkers": 1}), "repairPatchMarkers: 1; true or false is allowed".into()),
        (json!({"log": {"format": "xml"}}), "log.format: \"xml\"; \"text\" or \"json\" is allowed".into()),
        (
            json!({"log": {"filter": "a=b=c"}}),
            "log.filter: \"a=b=c\"; a filter such as \"info\" or \"codex_bridge=debug\" is allowed".into(),
        ),
    ]);
}

#[test]
fn a_number_beyond_every_machine_word() {
    for number in ["1e999", "99999999999999999999999999"] {
        let text = format!(r#"{{"maxRequestBodyBytes": {number}}}"#);
        let line = fault("a.json", &text, &[], Flags::default());
        assert!(
            line.starts_with("FILE: maxRequestBodyBytes: ") && line.ends_with(BYTES),
            "{line}"
        );
    }
}

#[test]
fn a_variable_is_named() {
    for (variable, text, expected) in [
        (
            "CODEX_BRIDGE__LISTEN__PORT",
            "abc",
            format!("listen.port: \"abc\"; {PORT}"),
        ),
        (
            "CODEX_BRIDGE__LISTEN__PORT",
            "70000",
            format!("listen.port: 70000; {PORT}"),
        ),
        (
            "CODEX_BRIDGE__LISTEN__PROT",
            "1",
            "listen.prot: unknown key; did you mean `listen.port`?".into(),
        ),
        (
            "CODEX_BRIDGE__PHASE__X",
            "1",
            "phase: a table; \"stream\" or \"hold\" is allowed".into(),
        ),
        (
            "CODEX_BRIDGE__LISTEN",
            r#"{"apiKey": "k-test",}"#,
            "listen: text that is not JSON; a table of keys is allowed".into(),
        ),
        (
            "CODEX_BRIDGE__EXCLUDED_MCP_TOOLS",
            r#"[{"namespace": "a"}]"#,
            "excluded_mcp_tools[0].tools: missing; a list of non-empty strings is allowed".into(),
        ),
    ] {
        let line = fault("a.json", "{}", &[(variable, text)], Flags::default());
        assert_eq!(line, format!("{variable}: {expected}"));
    }
    let twice = [
        ("CODEX_BRIDGE__UPSTREAM", "http://h"),
        ("CODEX_BRIDGE__UPSTREAM__API_KEY", "k"),
    ];
    assert_eq!(
        fault("a.json", "{}", &twice, Flags::default()),
        "CODEX_BRIDGE__UPSTREAM__API_KEY: upstream.api_key: another variable sets the same key, or one above it; \
         one variable for each key is allowed"
    );
}

#[test]
fn a_flag_is_named() {
    let flags = Flags {
        listen: Some(("a b".to_owned(), 1)),
        ..Flags::default()
    };
    assert_eq!(
        fault("a.json", "{}", &[], flags),
        format!("--listen: listen.host: \"a b\"; {HOST}")
    );
    let flags = Flags {
        upstream: Some("h:8080".to_owned()),
        ..Flags::default()
    };
    assert_eq!(
        fault("a.json", "{}", &[], flags),
        format!("--upstream: upstream: \"h:8080\"; {URL_OR_BUNDLED}")
    );
}

#[test]
fn a_file_that_is_no_configuration() {
    for (name, text, expected) in [
        (
            "a.json",
            "{\"listen\": }",
            "FILE: not JSON: expected value at line 1 column 12",
        ),
        (
            "a.json",
            "[]",
            "FILE: not an object; { \"listen\": …, \"upstream\": … } is allowed",
        ),
        (
            "a.toml",
            "a = 1\nb = x\n",
            "FILE: not TOML: string values must be quoted, expected literal string at line 2 column 5",
        ),
    ] {
        assert_eq!(fault(name, text, &[], Flags::default()), expected);
    }
    let sources = Sources {
        path: Some(PathBuf::from("no/such.json")),
        ..Sources::default()
    };
    assert_eq!(
        sources.load().unwrap_err().to_string(),
        "no/such.json: cannot be read: No such file or directory (os error 2)"
    );
}

#[test]
fn a_number_without_a_value_is_no_number() {
    for (text, key) in [
        ("keep_alive = inf", "keep_alive"),
        ("[listen]\nport = nan", "listen.port"),
        ("[limits]\nmax_connections = -inf", "limits.max_connections"),
        (
            "[[excluded_mcp_tools]]\nnamespace = \"a\"\ntools = [\"b\", nan]",
            "excluded_mcp_tools[0].tools[1]",
        ),
    ] {
        assert_eq!(
            fault("a.toml", text, &[], Flags::default()),
            format!("FILE: {key}: `inf` or `nan`; a number with a value is allowed")
        );
    }
}
