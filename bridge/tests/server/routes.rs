use reqwest::Method;

use crate::{
    scripted::Scripted,
    support::{Bridge, ask, config, error_message, json, nobody},
};

#[tokio::test]
async fn an_unknown_path_is_a_json_404_with_the_request_id() {
    let bridge = Bridge::start(config(nobody())).await;
    for path in [
        "/",
        "/v1",
        "/v1/respons",
        "/v1/responses/x/y",
        "/healthz",
        "/mcp/a",
        "/v2/models",
    ] {
        let answer = bridge
            .get(path)
            .header("x-request-id", "turn-7")
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 404, "{path}");
        assert_eq!(answer.headers()["x-request-id"], "turn-7");
        assert_eq!(answer.headers()["content-type"], "application/json");
        assert!(error_message(answer).await.contains("(request turn-7)"));
    }
}

#[tokio::test]
async fn a_wrong_method_is_a_json_405_that_names_the_right_ones() {
    let bridge = Bridge::start(config(nobody())).await;
    for (method, path, allow) in [
        (Method::GET, "/v1/responses", "POST, HEAD"),
        (Method::PUT, "/responses", "POST, HEAD"),
        (Method::POST, "/health", "GET, HEAD"),
        (Method::POST, "/metrics", "GET, HEAD"),
        (Method::DELETE, "/v1/models", "GET, HEAD"),
        (Method::OPTIONS, "/v1/models/x", "GET, HEAD"),
    ] {
        let answer = bridge.request(method, path).send().await.unwrap();
        assert_eq!(answer.status(), 405, "{path}");
        assert_eq!(answer.headers()["allow"], allow);
        assert!(error_message(answer).await.contains(allow));
    }
}

#[tokio::test]
async fn head_is_answered_wherever_get_is_and_on_responses() {
    let upstream = Scripted::llama().await;
    let bridge = Bridge::start(config(upstream.address)).await;
    for path in [
        "/health",
        "/metrics",
        "/v1/models",
        "/models",
        "/v1/models/tiny",
        "/v1/responses",
        "/responses",
    ] {
        let answer = bridge.request(Method::HEAD, path).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        assert_eq!(answer.bytes().await.unwrap(), "");
    }
}

#[tokio::test]
async fn a_websocket_upgrade_gets_426_at_once_and_post_goes_on() {
    let bridge = Bridge::start(config(nobody())).await;
    let (status, body) = ask(
        &bridge,
        "GET /v1/responses HTTP/1.1\nhost: localhost\nupgrade: websocket\nsec-websocket-version: 13\n\
         sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==",
    )
    .await;
    assert_eq!(status, 426);
    assert_eq!(body["error"]["code"], "websocket_not_supported");
    let answer = bridge
        .post("/v1/responses")
        .body("[]")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 400);
}

#[tokio::test]
async fn bad_bodies_are_refused_with_their_fault() {
    let bridge = Bridge::start(config(nobody())).await;
    for (body, fault) in [
        ("{\"model\":", "line 1 column 9"),
        ("\u{feff}{}", "byte order mark"),
        ("[]", "an array of 0"),
    ] {
        for path in ["/v1/responses", "/responses"] {
            let answer = bridge.post(path).body(body).send().await.unwrap();
            assert_eq!(answer.status(), 400);
            assert!(error_message(answer).await.contains(fault));
        }
    }
}

#[tokio::test]
async fn an_id_is_made_where_none_was_sent() {
    let bridge = Bridge::start(config(nobody())).await;
    let answer = bridge.get("/nowhere").send().await.unwrap();
    let id = answer.headers()["x-request-id"]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(id.starts_with("req_"), "{id}");
    error_message(answer).await;
}

#[tokio::test]
async fn metrics_count_requests_by_route_and_status() {
    let upstream = Scripted::llama().await;
    let bridge = Bridge::start(config(upstream.address)).await;
    json(bridge.get("/v1/models").send().await.unwrap()).await;
    error_message(bridge.get("/nowhere").send().await.unwrap()).await;
    let answer = bridge.get("/metrics").send().await.unwrap();
    let kind = answer.headers()["content-type"]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
    let text = answer.text().await.unwrap();
    for line in [
        r#"codex_bridge_requests_total{route="models",status="200"} 1"#,
        r#"codex_bridge_requests_total{route="none",status="404"} 1"#,
        "codex_bridge_disconnects_total 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}
