use codex_bridge::config::{Exclusion, NamespacedTool, UpstreamKind};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::{
    scripted::{self, Scripted},
    support::{Bridge, config, json as body_of, nobody, soon, upstream},
};

#[tokio::test]
async fn health_describes_the_bridge_and_a_running_llama_server() {
    let server = Scripted::llama().await;
    let mut config = config(server.address);
    config.mcp_proxy = Some("http://127.0.0.1:9000/servers".parse().unwrap());
    config.policy.excluded_mcp_tools = vec![Exclusion {
        namespace: "mcp__finder".to_owned(),
        tools: vec!["purge".to_owned()],
    }];
    config.policy.web_search_tool = Some(NamespacedTool {
        namespace: "mcp__finder".to_owned(),
        tool: "query".to_owned(),
    });
    let bridge = Bridge::start(config).await;
    let answer = bridge.get("/health?verbose=1").send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let mut body = body_of(answer).await;
    assert!(body["uptimeSeconds"].take().is_u64());
    assert_eq!(
        body,
        json!({
            "status": "ready",
            "protocol": "native-responses",
            "capabilities": {"mcpProxy": true},
            "config": {
                "upstream": format!("http://{}/v1", server.address),
                "mcpProxy": "http://127.0.0.1:9000/servers",
                "maxRequestBodyBytes": 16384,
                "excludedMcpTools": [{"namespace": "mcp__finder", "tools": ["purge"]}],
                "webSearchTool": {"namespace": "mcp__finder", "tool": "query"},
            },
            "upstream": {
                "reachable": true,
                "kind": "llama.cpp",
                "model": "tiny",
                "context": 8192,
                "vision": false,
                "detail": null,
            },
            "version": env!("CARGO_PKG_VERSION"),
            "uptimeSeconds": null,
        })
    );
}

#[tokio::test]
async fn an_upstream_that_is_down_is_named() {
    let down = nobody();
    let bridge = Bridge::start(config(down)).await;
    let answer = bridge.get("/health").send().await.unwrap();
    assert_eq!(answer.status(), 503);
    let body = body_of(answer).await;
    assert_eq!(body["status"], "upstream_unreachable");
    assert_eq!(body["upstream"]["reachable"], false);
    let detail = body["upstream"]["detail"].as_str().unwrap();
    assert!(
        detail.contains(&down.to_string()) && detail.contains("refused"),
        "{detail}"
    );
}

#[tokio::test]
async fn a_loading_upstream_is_not_ready_yet() {
    let loading =
        json!({"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}});
    let server = Scripted::always(503, loading).await;
    let bridge = Bridge::start(config(server.address)).await;
    let answer = bridge.get("/health").send().await.unwrap();
    assert_eq!(answer.status(), 503);
    let body = body_of(answer).await;
    assert_eq!(body["status"], "loading");
    assert_eq!(body["upstream"]["reachable"], true);
}

#[tokio::test]
async fn another_native_server_is_ready_by_its_model_list() {
    let list = json!({"data": [{"id": "m", "max_model_len": 32768}]});
    for kind in [UpstreamKind::Auto, UpstreamKind::Responses] {
        let list = list.clone();
        let mut server = Scripted::start(move |request| {
            let answer = match request.uri().path() {
                "/v1/models" => scripted::json(200, &list),
                _ => scripted::json(404, &json!({"error": "no such page"})),
            };
            async move { answer }
        })
        .await;
        let mut config = config(server.address);
        upstream(&mut config).kind = kind;
        let bridge = Bridge::start(config).await;
        let body = body_of(bridge.get("/health").send().await.unwrap()).await;
        assert_eq!(
            body["upstream"],
            json!({"reachable": true, "kind": "responses", "model": "m", "context": 32768, "vision": false, "detail": null})
        );
        let first = server.request().await.uri;
        let expected = if kind == UpstreamKind::Auto {
            "/props"
        } else {
            "/v1/models"
        };
        assert_eq!(first.path(), expected);
    }
}

#[tokio::test]
async fn many_health_checks_are_one_question_to_the_upstream() {
    let (open, gate) = tokio::sync::watch::channel(false);
    let mut server = Scripted::start(move |_| {
        let mut gate = gate.clone();
        async move {
            gate.wait_for(|open| *open).await.unwrap();
            scripted::json(200, &scripted::props())
        }
    })
    .await;
    let bridge = Bridge::start(config(server.address)).await;
    let checks: Vec<_> = (0..8)
        .map(|_| tokio::spawn(bridge.get("/health").send()))
        .collect();
    server.request().await;
    open.send(true).unwrap();
    for check in checks {
        assert_eq!(soon(check).await.unwrap().unwrap().status(), 200);
    }
    assert_eq!(server.seen(), 1);
}

#[tokio::test]
async fn a_llama_server_that_hides_its_window_is_told_of() {
    let server = Scripted::start(|request| async move {
        let mut props = scripted::props();
        props["default_generation_settings"]["n_ctx"] = json!(0);
        match request.uri().path() {
            "/props" => scripted::json(200, &props),
            _ => scripted::json(404, &Value::Null),
        }
    })
    .await;
    let bridge = Bridge::start(config(server.address)).await;
    let health = bridge.get("/health").send().await.unwrap();
    assert_eq!(health.status(), 200);
    let health = body_of(health).await;
    assert_eq!(health["upstream"]["context"], Value::Null);
    let detail = health["upstream"]["detail"].as_str().unwrap();
    assert!(
        detail.starts_with("the llama.cpp server does not tell its context window: "),
        "{detail}"
    );
}
