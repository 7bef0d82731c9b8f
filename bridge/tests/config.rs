//! The layers of the configuration, from text to `Config`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{fs, path::PathBuf, time::Duration};

use codex_bridge::config::{
    Config, Device, Environment, Exclusion, Flags, KvCache, Loaded, LogFormat, NamespacedTool,
    PhasePolicy, Sources, SystemMessages, ToolsMode, UnknownTools, UpstreamConfig, UpstreamKind,
    WarmStart,
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// A file in a folder of its own, loaded with these variables and flags.
fn load(name: &str, text: &str, variables: &[(&str, &str)], flags: Flags) -> Loaded {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    Sources {
        path: Some(path),
        environment: environment(variables),
        flags,
    }
    .load()
    .unwrap()
}

fn environment(variables: &[(&str, &str)]) -> Environment {
    variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn json_file(settings: &Value) -> Loaded {
    load("bridge.json", &settings.to_string(), &[], Flags::default())
}

#[test]
fn the_older_bridges_file_loads_unchanged() {
    let config = json_file(&json!({
        "listen": {"host": " 127.0.0.1 ", "port": 5656},
        "maxRequestBodyBytes": 1024,
        "upstream": "HTTP://Models.example:80/v1/",
        "webSearchTool": {"namespace": "mcp__finder", "tool": "query"},
        "mcpProxy": {"baseUrl": "http://127.0.0.1:9000/servers/"},
        "excludedMcpTools": [{"namespace": "mcp__finder", "tools": ["purge", "drop"]}],
    }))
    .config;
    let Config {
        listen,
        limits,
        upstream: UpstreamConfig::Http(upstream),
        policy,
        mcp_proxy,
        log,
        shutdown_grace,
    } = config
    else {
        panic!("not an HTTP upstream");
    };
    assert_eq!(
        (listen.host.as_str(), listen.port, listen.api_key),
        ("127.0.0.1", 5656, None)
    );
    assert_eq!(listen.allowed_hosts, Vec::<String>::new());
    assert_eq!(listen.allowed_origins, Vec::<String>::new());
    assert_eq!(
        (
            limits.max_request_body_bytes,
            limits.max_event_bytes,
            limits.max_held_bytes,
            limits.max_response_bytes
        ),
        (1024, 8 << 20, 8 << 20, 64 << 20)
    );
    assert_eq!(
        (limits.max_connections, limits.header_timeout),
        (1024, Duration::from_secs(10))
    );
    assert_eq!(
        (upstream.base_url.as_str(), upstream.kind),
        ("http://models.example/v1", UpstreamKind::Auto)
    );
    assert_eq!(
        (
            upstream.api_key,
            upstream.connect_timeout,
            upstream.idle_timeout,
            upstream.wait_for_ready
        ),
        (
            None,
            Duration::from_secs(10),
            Some(Duration::from_secs(1800)),
            Some(Duration::from_secs(60))
        )
    );
    assert_eq!(
        policy.web_search_tool,
        Some(NamespacedTool {
            namespace: "mcp__finder".into(),
            tool: "query".into()
        })
    );
    assert_eq!(
        policy.excluded_mcp_tools,
        [Exclusion {
            namespace: "mcp__finder".into(),
            tools: vec!["purge".into(), "drop".into()]
        }]
    );
    assert_eq!(
        (policy.unknown_tools, policy.phase, policy.system_messages),
        (
            UnknownTools::Refuse,
            PhasePolicy::Stream,
            SystemMessages::Auto
        )
    );
    assert_eq!(
        (policy.keep_alive, policy.model_aliases.len()),
        (Some(Duration::from_secs(15)), 0)
    );
    assert_eq!(
        (policy.default_reasoning_effort, policy.repair_patch_markers),
        (None, false)
    );
    assert_eq!(
        mcp_proxy.as_ref().map(url::Url::as_str),
        Some("http://127.0.0.1:9000/servers")
    );
    assert_eq!((log.format, log.filter.as_str()), (LogFormat::Text, "info"));
    assert_eq!(shutdown_grace, Duration::from_secs(10));
}

#[test]
fn null_is_the_default_for_single_settings() {
    let nulls = json!({
        "listen": {"host": null, "port": null}, "maxRequestBodyBytes": null, "mcpProxy": null, "excludedMcpTools": null,
        "keepAlive": null, "modelAliases": null,
    });
    assert_eq!(
        json_file(&nulls).effective,
        Sources::default().load().unwrap().effective
    );
}

#[test]
fn both_spellings_and_both_formats_say_the_same() {
    let camel = r#"{"upstream": {"baseUrl": "http://h/v1", "idleTimeout": "off"},
                    "modelAliases": {"gpt-5.5": "m", "*": "n"}}"#;
    let snake = "\u{feff}{\"upstream\": {\"base_url\": \"http://h/v1\", \"idle_timeout\": 0},
                          \"model_aliases\": {\"gpt-5.5\": \"m\", \"*\": \"n\"}}";
    let toml = "[upstream]\nbase_url = \"http://h/v1\"\nidleTimeout = \"off\"\n\
                [model_aliases]\n\"gpt-5.5\" = \"m\"\n\"*\" = \"n\"\n";
    let expected = load("a.json", camel, &[], Flags::default()).effective;
    assert_eq!(expected["modelAliases"], json!({"gpt-5.5": "m", "*": "n"}));
    assert_eq!(expected["upstream"]["idleTimeout"], json!("off"));
    for (name, text) in [
        ("b.json", snake),
        ("c.toml", toml),
        ("d.conf", camel),
        ("e", toml),
    ] {
        assert_eq!(
            load(name, text, &[], Flags::default()).effective,
            expected,
            "{name}"
        );
    }
}

#[test]
fn flags_win_over_variables_and_variables_over_the_file() {
    let text = r#"{"listen": {"port": 1, "host": "localhost"}, "log": {"filter": "warn"}}"#;
    let variables = [
        ("CODEX_BRIDGE__LISTEN__PORT", "2"),
        ("CODEX_BRIDGE__LOG__FORMAT", "json"),
        ("OTHER__PORT", "9"),
    ];
    let settings = |flags| {
        let effective = load("a.json", text, &variables, flags).effective;
        json!([
            effective["listen"]["host"],
            effective["listen"]["port"],
            effective["log"]
        ])
    };
    let log = json!({"format": "json", "filter": "warn"});
    assert_eq!(settings(Flags::default()), json!(["localhost", 2, log]));
    let flags = Flags {
        listen: Some(("::1".to_owned(), 3)),
        ..Flags::default()
    };
    assert_eq!(settings(flags), json!(["::1", 3, log]));
}

#[test]
fn a_variable_is_read_as_the_kind_its_key_wants() {
    for (variable, text, pointer, expected) in [
        (
            "CODEX_BRIDGE__REPAIR_PATCH_MARKERS",
            "true",
            "/repairPatchMarkers",
            json!(true),
        ),
        ("CODEX_BRIDGE__KEEP_ALIVE", "30", "/keepAlive", json!("30s")),
        (
            "CODEX_BRIDGE__KEEP_ALIVE",
            "off",
            "/keepAlive",
            json!("off"),
        ),
        (
            "CODEX_BRIDGE__LISTEN__ALLOWED_HOSTS",
            r#"["Box.example"]"#,
            "/listen/allowedHosts",
            json!(["box.example"]),
        ),
        (
            "CODEX_BRIDGE__MODEL_ALIASES",
            r#"{"*": "m"}"#,
            "/modelAliases",
            json!({"*": "m"}),
        ),
        (
            "CODEX_BRIDGE__WEB_SEARCH_TOOL",
            r#"{"namespace": "1", "tool": "2"}"#,
            "/webSearchTool/tool",
            json!("2"),
        ),
        // A text may look like a number.
        (
            "CODEX_BRIDGE__DEFAULT_REASONING_EFFORT",
            "1",
            "/defaultReasoningEffort",
            json!("1"),
        ),
        (
            "CODEX_BRIDGE__UPSTREAM",
            "http://h",
            "/upstream/baseUrl",
            json!("http://h"),
        ),
        (
            "CODEX_BRIDGE__UPSTREAM__BUNDLED__MODEL",
            "m.gguf",
            "/upstream/bundled/model",
            json!("m.gguf"),
        ),
    ] {
        let effective = load("a.json", "{}", &[(variable, text)], Flags::default()).effective;
        assert_eq!(
            effective.pointer(pointer),
            Some(&expected),
            "{variable}={text}"
        );
    }
}

#[test]
fn a_higher_layers_upstream_never_gets_the_key_of_a_lower_one() {
    let file =
        r#"{"upstream": {"baseUrl": "http://a/v1", "apiKey": "k-a", "connectTimeout": "3s"}}"#;
    let flags = |url: &str| Flags {
        upstream: Some(url.to_owned()),
        ..Flags::default()
    };
    let upstream = |variables: &[(&str, &str)], flags| {
        load("a.json", file, variables, flags).effective["upstream"].take()
    };
    assert_eq!(
        upstream(&[], flags("http://b")),
        json!({"baseUrl": "http://b", "kind": "auto", "connectTimeout": "10s", "idleTimeout": "30m", "waitForReady": "1m"})
    );
    assert_eq!(upstream(&[], flags("bundled"))["baseUrl"], Value::Null);
    assert_eq!(
        upstream(&[], flags("bundled"))["bundled"]["model"],
        "smollm2-135m"
    );
    // A table is merged key by key, and one way to give the key replaces the other.
    let variables = [
        ("CODEX_BRIDGE__UPSTREAM__API_KEY_ENV", "KEY"),
        ("KEY", "k-b"),
    ];
    assert_eq!(
        upstream(&variables, Flags::default()),
        json!({"baseUrl": "http://a/v1", "kind": "auto", "apiKeyEnv": "KEY", "connectTimeout": "3s",
               "idleTimeout": "30m", "waitForReady": "1m"})
    );
}

#[test]
fn a_key_comes_from_the_file_or_from_the_variable_it_names_and_stays_hidden() {
    let key = |text: &str| {
        let loaded = load("a.json", text, &[("KEY", "k-test")], Flags::default());
        let shown = format!("{:?} {}", loaded.config, loaded.effective);
        assert!(!shown.contains("k-test"), "{shown}");
        loaded
            .config
            .listen
            .api_key
            .map(|key| key.expose().to_owned())
    };
    assert_eq!(
        key(r#"{"listen": {"host": "0.0.0.0", "apiKey": "k-test"}}"#).as_deref(),
        Some("k-test")
    );
    assert_eq!(
        key(r#"{"listen": {"host": "0.0.0.0", "apiKeyEnv": "KEY"}}"#).as_deref(),
        Some("k-test")
    );
    assert_eq!(key("{}"), None);
}

#[test]
fn the_path_comes_from_the_argument_then_from_two_variables() {
    let folder = tempfile::tempdir().unwrap();
    let file = |port: u16| {
        let path = folder.path().join(format!("{port}.json"));
        fs::write(&path, json!({"listen": {"port": port}}).to_string()).unwrap();
        path.into_os_string().into_string().unwrap()
    };
    let (argument, ours, older) = (file(1), file(2), file(3));
    let both = [
        ("CODEX_BRIDGE_CONFIG", ours.as_str()),
        ("CODEX_LLAMA_CPP_BRIDGE_CONFIG", older.as_str()),
    ];
    let port = |path: Option<&str>, variables: &[(&str, &str)]| {
        let path = path.map(PathBuf::from);
        Sources {
            path,
            environment: environment(variables),
            ..Sources::default()
        }
        .load()
        .unwrap()
        .config
        .listen
        .port
    };
    assert_eq!(port(Some(&argument), &both), 1);
    assert_eq!(port(None, &both), 2);
    assert_eq!(port(None, &both[1..]), 3);
    assert_eq!(port(None, &[("CODEX_BRIDGE_CONFIG", ""), both[1]]), 3);
    assert_eq!(port(None, &[]), 10901);
}

#[test]
fn loopback_needs_no_key() {
    for (host, normal) in [
        ("127.9.9.9", "127.9.9.9"),
        ("::1", "::1"),
        ("[::1]", "::1"),
        ("LOCALHOST", "localhost"),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1"),
    ] {
        assert_eq!(
            json_file(&json!({"listen": {"host": host}}))
                .config
                .listen
                .host,
            normal
        );
    }
}

#[test]
fn the_bundled_engine_with_all_defaults_is_what_runs_when_nothing_is_said() {
    let variables = environment(&[("HOME", "/home/a"), ("HF_ENDPOINT", "http://mirror")]);
    let loaded = Sources {
        environment: variables,
        ..Sources::default()
    }
    .load()
    .unwrap();
    let UpstreamConfig::Bundled(engine) = loaded.config.upstream else {
        panic!("the bundled engine is the default");
    };
    assert_eq!(
        (
            engine.model.as_str(),
            engine.device,
            engine.context_length,
            engine.max_batch,
            engine.max_queue
        ),
        ("smollm2-135m", Device::Auto, None, 8, 64)
    );
    assert_eq!(
        (
            engine.threads,
            engine.kv_cache,
            engine.tools,
            engine.end_loops,
            engine.wait_for_ready
        ),
        (
            None,
            KvCache::Auto,
            ToolsMode::Auto,
            true,
            Some(Duration::from_secs(600))
        )
    );
    assert_eq!(
        engine.warm_start,
        Some(WarmStart {
            folder: "/home/a/.cache/codex-bridge/warm-start".into(),
            max_bytes: 4 << 30
        })
    );
    assert_eq!(engine.places.hugging_face.as_deref(), Some("http://mirror"));
    assert_eq!(
        (
            loaded.config.listen.host.as_str(),
            loaded.config.listen.port
        ),
        ("127.0.0.1", 10901)
    );
}

#[test]
fn the_model_comes_from_the_flag_before_the_variable_before_the_file() {
    let model = |file: &str, variables: &[(&str, &str)], model: Option<&str>| {
        let flags = Flags {
            model: model.map(str::to_owned),
            ..Flags::default()
        };
        let loaded = load("a.toml", file, variables, flags);
        loaded.effective["upstream"]["bundled"]["model"].clone()
    };
    let file = "[upstream.bundled]\nmodel = \"file.gguf\"\nmax_batch = 2\n";
    let variable = ("CODEX_BRIDGE__UPSTREAM__BUNDLED__MODEL", "variable.gguf");
    assert_eq!(model(file, &[], None), "file.gguf");
    assert_eq!(model(file, &[variable], None), "variable.gguf");
    assert_eq!(model(file, &[variable], Some("flag.gguf")), "flag.gguf");
    assert_eq!(model("", &[], Some("flag.gguf")), "flag.gguf");
    // What else the file says of the engine holds, unless the flag replaces the upstream as a whole.
    let loaded = load(
        "a.toml",
        file,
        &[],
        Flags {
            model: Some("flag.gguf".to_owned()),
            ..Flags::default()
        },
    );
    assert_eq!(loaded.effective["upstream"]["bundled"]["maxBatch"], 2);
    let loaded = load(
        "a.toml",
        file,
        &[],
        Flags {
            model: Some("flag.gguf".to_owned()),
            upstream: Some("bundled".to_owned()),
            ..Flags::default()
        },
    );
    assert_eq!(loaded.effective["upstream"]["bundled"]["maxBatch"], 8);
    assert_eq!(
        loaded.effective["upstream"]["bundled"]["model"],
        "flag.gguf"
    );
}

#[test]
fn a_file_may_name_its_schema_for_editors() {
    let plain = json_file(&json!({"phase": "hold"})).effective;
    let named = json_file(&json!({"$schema": "bridge.schema.json", "phase": "hold"}));
    assert_eq!(named.effective, plain);
    assert_eq!(named.chosen, json!({"phase": "hold"}));
    let text = "\"$schema\" = \"bridge.schema.json\"\nphase = \"hold\"\n";
    let toml = load("a.toml", text, &[], Flags::default());
    assert_eq!(toml.effective, plain);
}
