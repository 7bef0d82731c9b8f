//! The bundled engine before its model is there: what is served, and what is told.

use std::time::Duration;

use codex_bridge::config::{
    BundledUpstream, Config, Device, KvCache, Places, ToolsMode, UpstreamConfig,
};
use http::Method;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::support::{Bridge, SECOND, config, error_message, json, nobody, soon};

/// Nothing runs the engine in these tests, so that it is loading for ever.
pub(crate) fn loading(wait_for_ready: Option<Duration>) -> Config {
    let mut config = config(nobody());
    config.upstream = UpstreamConfig::Bundled(BundledUpstream {
        model: "/nonexistent/Demo-1B.gguf".to_owned(),
        device: Device::Auto,
        context_length: None,
        max_batch: 8,
        max_queue: 64,
        threads: None,
        kv_cache: KvCache::Auto,
        tools: ToolsMode::Auto,
        end_loops: true,
        warm_start: None,
        wait_for_ready,
        places: Places::default(),
    });
    config
}

fn request(model: &str, stream: bool) -> String {
    json!({"model": model, "input": "hi", "stream": stream}).to_string()
}

#[tokio::test]
async fn health_is_503_and_says_loading_from_the_first_moment() {
    let bridge = Bridge::start(loading(None)).await;
    let response = bridge.get("/health").send().await.unwrap();
    assert_eq!(response.status(), 503);
    let body = json(response).await;
    assert_eq!(
        (&body["status"], &body["config"]["upstream"]),
        (&json!("loading"), &json!("bundled"))
    );
    assert_eq!(
        body["upstream"],
        json!({
            "reachable": true, "kind": "bundled", "model": "Demo-1B", "context": null, "vision": false,
            "detail": "the model is being loaded", "engine": {"state": "loading"},
        })
    );
}

#[tokio::test]
async fn models_and_responses_are_503_with_retry_after_where_nothing_waits() {
    let bridge = Bridge::start(loading(None)).await;
    for response in [
        bridge.get("/v1/models").send().await.unwrap(),
        bridge
            .post("/v1/responses")
            .body(request("Demo-1B", false))
            .send()
            .await
            .unwrap(),
        bridge
            .post("/v1/responses")
            .body(request("Demo-1B", true))
            .send()
            .await
            .unwrap(),
    ] {
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()["retry-after"], "1");
        let message = error_message(response).await;
        assert!(message.starts_with("the model is not ready: "), "{message}");
    }
}

#[tokio::test]
async fn another_model_is_404_and_the_served_one_is_named() {
    let bridge = Bridge::start(loading(None)).await;
    let response = bridge
        .post("/v1/responses")
        .body(request("gpt-mini-aux", true))
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 404);
    let body = json(response).await;
    assert_eq!(
        (&body["error"]["code"], &body["error"]["param"]),
        (&json!("model_not_found"), &json!("model"))
    );
    let message = body["error"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("no model \"gpt-mini-aux\" is served; there is: Demo-1B"),
        "{message}"
    );
}

#[tokio::test]
async fn an_alias_leads_to_the_served_model() {
    let mut config = loading(None);
    config.policy.model_aliases = [("*".to_owned(), "Demo-1B".to_owned())].into();
    let bridge = Bridge::start(config).await;
    let response = bridge
        .post("/v1/responses")
        .body(request("gpt-mini-aux", false))
        .send()
        .await
        .unwrap();
    // It got as far as the engine.
    assert_eq!(response.status(), 503);
}

#[tokio::test]
async fn a_wrong_request_is_refused_though_nothing_is_loaded() {
    let bridge = Bridge::start(loading(Some(600 * SECOND))).await;
    let body =
        json!({"model": "Demo-1B", "input": "hi", "stream": true, "tools": [{"type": "sonar"}]});
    let response = bridge
        .post("/v1/responses")
        .body(body.to_string())
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 400);
}

#[tokio::test]
async fn a_streaming_request_waits_with_life_signs_and_then_fails_without_a_retry() {
    let mut config = loading(Some(SECOND));
    config.policy.keep_alive = Some(SECOND / 10);
    let bridge = Bridge::start(config).await;
    let response = bridge
        .post("/v1/responses")
        .body(request("Demo-1B", true))
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    let text = soon(response.text()).await.unwrap();
    let events: Vec<Value> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: {"))
        .map(|rest| serde_json::from_str(&format!("{{{rest}")).unwrap())
        .collect();
    let kinds: Vec<&str> = events
        .iter()
        .filter_map(|event| event["type"].as_str())
        .collect();
    assert_eq!(
        (kinds.first(), kinds.last()),
        (Some(&"response.created"), Some(&"response.failed")),
        "{kinds:?}"
    );
    assert!(
        kinds
            .iter()
            .filter(|kind| **kind == "response.in_progress")
            .count()
            >= 2,
        "{kinds:?}"
    );
    let error = &events.last().unwrap()["response"]["error"];
    assert_eq!(error["code"], "invalid_prompt", "{error}");
}

#[tokio::test]
async fn metrics_say_that_the_engine_is_not_up() {
    let bridge = Bridge::start(loading(None)).await;
    let text = bridge
        .request(Method::GET, "/metrics")
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert!(
        text.lines().any(|line| line == "codex_bridge_engine_up 0"),
        "{text}"
    );
}
