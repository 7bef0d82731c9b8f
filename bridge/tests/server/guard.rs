use codex_bridge::config::{Config, Secret};
use pretty_assertions::assert_eq;
use reqwest::Method;
use serde_json::json;

use crate::{
    scripted::Scripted,
    support::{Bridge, ask, config, error_message, json as body_of, nobody},
};

const ROUTES: [&str; 7] = [
    "GET /health",
    "GET /metrics",
    "GET /v1/models",
    "POST /v1/responses",
    "POST /mcp/a",
    "GET /nowhere",
    "OPTIONS /v1/models",
];
const PAGE: &str = "http://localhost:3000";

fn guarded(mut config: Config) -> Config {
    config.listen.api_key = Some(Secret::new("k-test"));
    config.listen.allowed_origins = vec![PAGE.to_owned()];
    config.mcp_proxy = Some("http://127.0.0.1:9/servers".parse().unwrap());
    config
}

#[tokio::test]
async fn a_rebound_host_is_refused_on_every_route() {
    let bridge = Bridge::start(guarded(config(nobody()))).await;
    for route in ROUTES {
        let head = format!(
            "{route} HTTP/1.1\nhost: evil.example:{}",
            bridge.address.port()
        );
        let (status, body) = ask(&bridge, &head).await;
        assert_eq!(status, 403, "{route}");
        let message = body["error"]["message"].as_str().unwrap();
        assert!(message.contains("evil.example"), "{message}");
    }
}

#[tokio::test]
async fn a_missing_host_is_a_bad_request() {
    let bridge = Bridge::start(config(nobody())).await;
    assert_eq!(ask(&bridge, "GET /metrics HTTP/1.1").await.0, 400);
    let two = "GET /metrics HTTP/1.1\nhost: localhost\nhost: localhost";
    assert_eq!(ask(&bridge, two).await.0, 400);
    assert_eq!(ask(&bridge, "GET /metrics HTTP/1.0").await.0, 200);
}

#[tokio::test]
async fn a_foreign_page_is_refused_on_every_route_even_with_the_key() {
    let bridge = Bridge::start(guarded(config(nobody()))).await;
    for route in ROUTES {
        for origin in ["null", "http://localhost:3001", "https://evil.example"] {
            let head = format!(
                "{route} HTTP/1.1\nhost: localhost\nauthorization: Bearer k-test\norigin: {origin}\n\
                 access-control-request-method: POST\ncontent-type: text/plain"
            );
            assert_eq!(ask(&bridge, &head).await.0, 403, "{route} {origin}");
        }
    }
}

#[tokio::test]
async fn a_preflight_of_an_allowed_page_needs_no_key_but_the_request_does() {
    let upstream = Scripted::llama().await;
    let bridge = Bridge::start(guarded(config(upstream.address))).await;
    let preflight = bridge
        .request(Method::OPTIONS, "/v1/models")
        .header("origin", PAGE)
        .header("access-control-request-method", "GET")
        .header("access-control-request-headers", "authorization, x-thing")
        .send()
        .await
        .unwrap();
    assert_eq!(preflight.status(), 204);
    let headers = preflight.headers();
    assert_eq!(headers["access-control-allow-origin"], PAGE);
    assert_eq!(
        headers["access-control-allow-headers"],
        "authorization, x-thing"
    );
    assert!(
        headers["access-control-allow-methods"]
            .to_str()
            .unwrap()
            .contains("POST")
    );

    let without = bridge
        .get("/v1/models")
        .header("origin", PAGE)
        .send()
        .await
        .unwrap();
    assert_eq!(without.status(), 401);
    assert_eq!(without.headers()["access-control-allow-origin"], PAGE);
    let with = bridge
        .get("/v1/models")
        .header("origin", PAGE)
        .bearer_auth("k-test");
    let with = with.send().await.unwrap();
    assert_eq!(with.status(), 200);
    assert_eq!(with.headers()["access-control-allow-origin"], PAGE);
    assert_eq!(with.headers()["vary"], "origin");
}

#[tokio::test]
async fn no_page_means_no_cors_fields() {
    let bridge = Bridge::start(guarded(config(nobody()))).await;
    let answer = bridge
        .get("/metrics")
        .bearer_auth("k-test")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers().get("access-control-allow-origin"), None);
}

#[tokio::test]
async fn every_route_but_health_needs_the_key() {
    let upstream = Scripted::llama().await;
    let bridge = Bridge::start(guarded(config(upstream.address))).await;
    for (method, path) in [
        (Method::GET, "/metrics"),
        (Method::GET, "/v1/models"),
        (Method::HEAD, "/v1/responses"),
        (Method::POST, "/v1/responses"),
        (Method::POST, "/mcp/a"),
        (Method::GET, "/nowhere"),
    ] {
        for key in [None, Some("k-tes"), Some("k-test2")] {
            let mut request = bridge.request(method.clone(), path);
            if let Some(key) = key {
                request = request.bearer_auth(key);
            }
            let answer = request.send().await.unwrap();
            assert_eq!(answer.status(), 401, "{path} {key:?}");
            assert_eq!(answer.headers()["www-authenticate"], "Bearer");
            if method != Method::HEAD {
                assert!(!error_message(answer).await.contains("k-test"));
            }
        }
    }
    let answer = bridge
        .get("/v1/models")
        .header("x-api-key", "k-test")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
}

#[tokio::test]
async fn health_without_the_key_tells_the_status_and_nothing_else() {
    let upstream = Scripted::llama().await;
    let bridge = Bridge::start(guarded(config(upstream.address))).await;
    for key in [None, Some("wrong")] {
        let mut request = bridge.get("/health");
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 200);
        assert_eq!(body_of(answer).await, json!({"status": "ready"}));
    }
    let answer = bridge
        .get("/health")
        .bearer_auth("k-test")
        .send()
        .await
        .unwrap();
    assert!(body_of(answer).await["config"]["upstream"].is_string());
}
