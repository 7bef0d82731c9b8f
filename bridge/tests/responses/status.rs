//! What the model server refuses keeps its status, whether the client asked for a stream or not.

use codex_bridge::config::Secret;
use http::Response;
use http_body_util::{BodyExt, Empty};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::{
    client::{ask, ask_whole, pair, pair_with, send, spawn},
    model::{Kind, Model, json as json_answer, plain},
    support::{self, Bridge, config, error_message, json},
};

/// Status, type, code and message (without the request's id) of an error answer.
async fn told(answer: reqwest::Response) -> (u16, Value, Value, String) {
    assert_eq!(answer.headers()["content-type"], "application/json");
    let status = answer.status().as_u16();
    let id = answer.headers()["x-request-id"]
        .to_str()
        .unwrap()
        .to_owned();
    let mut body = json(answer).await;
    let error = body["error"].take();
    let keys: Vec<_> = error.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["message", "type", "param", "code"]);
    let message = error["message"].as_str().unwrap();
    let message = message
        .strip_suffix(&format!(" (request {id})"))
        .unwrap_or_else(|| panic!("{message}"));
    (
        status,
        error["type"].clone(),
        error["code"].clone(),
        message.to_owned(),
    )
}

#[tokio::test]
async fn statuses_and_messages_of_the_model_server_survive_streaming() {
    let (bridge, mut model) = pair(Kind::Llama).await;
    for (status, kind, code) in [
        (400, "invalid_request_error", "invalid_prompt"),
        (401, "authentication_error", "invalid_prompt"),
        (404, "not_found_error", "invalid_prompt"),
        (429, "rate_limit_error", "invalid_prompt"),
        (500, "server_error", "server_error"),
    ] {
        for body in [ask(), ask_whole()] {
            let sending = spawn(&bridge, &body);
            let error = json!({"code": status, "message": "parse failed", "type": kind});
            model.turn().await.refuse(status, &json!({"error": error}));
            let (seen, _, seen_code, message) = told(sending.answer().await).await;
            assert_eq!(
                (seen, seen_code, message.as_str()),
                (status, json!(code), "parse failed")
            );
        }
    }
    assert_eq!(model.asked(), 10);
}

#[tokio::test]
async fn errors_that_are_no_json_are_quoted_with_the_servers_address() {
    let (bridge, mut model) = pair(Kind::Native).await;
    let sending = spawn(&bridge, &ask());
    let page = plain(418, "text/html", "<h1>short and stout</h1>");
    model.turn().await.answer(page);
    let address = model.address;
    assert_eq!(
        told(sending.answer().await).await,
        (
            418,
            json!("invalid_request_error"),
            Value::Null,
            format!(
                "the model server at {address} answered 418 I'm a teapot: <h1>short and stout</h1>"
            )
        )
    );
}

#[tokio::test]
async fn a_server_without_the_endpoint_is_not_asked_again() {
    let (bridge, mut model) = pair(Kind::Native).await;
    for body in [ask(), ask_whole()] {
        let sending = spawn(&bridge, &body);
        let error = json!({"message": "no such endpoint", "type": "server_error"});
        model.turn().await.refuse(501, &json!({"error": error}));
        assert_eq!(
            told(sending.answer().await).await,
            (
                400,
                json!("invalid_request_error"),
                json!("invalid_prompt"),
                "no such endpoint".to_owned()
            )
        );
    }
    let sending = spawn(&bridge, &ask());
    model.turn().await.answer(plain(501, "text/html", "what?"));
    let (status, kind, _, message) = told(sending.answer().await).await;
    assert_eq!((status, kind), (400, json!("invalid_request_error")));
    assert!(
        message.ends_with("answered 501 Not Implemented: what?"),
        "{message}"
    );
}

#[tokio::test]
async fn an_error_that_is_a_string_is_the_message() {
    let (bridge, mut model) = pair(Kind::Native).await;
    for (status, code) in [(400, "invalid_prompt"), (500, "server_error")] {
        let sending = spawn(&bridge, &ask());
        model.turn().await.refuse(status, &json!({"error": "boo"}));
        let (seen, _, seen_code, message) = told(sending.answer().await).await;
        assert_eq!(
            (seen, seen_code, message.as_str()),
            (status, json!(code), "boo")
        );
    }
}

#[tokio::test]
async fn a_page_is_no_answer_and_not_asked_for_again() {
    let (bridge, mut model) = pair(Kind::Native).await;
    for (body, wanted) in [(ask(), "an event stream"), (ask_whole(), "JSON")] {
        let sending = spawn(&bridge, &body);
        let page = plain(200, "text/html", "<h1>It works!</h1>");
        model.turn().await.answer(page);
        let address = model.address;
        assert_eq!(
            told(sending.answer().await).await,
            (
                400,
                json!("invalid_request_error"),
                json!("invalid_prompt"),
                format!(
                    "the model server at {address} was asked for {wanted} and answered 200 OK with text/html"
                )
            )
        );
    }
}

#[tokio::test]
async fn retry_after_survives() {
    let (bridge, mut model) = pair(Kind::Native).await;
    for status in [429, 503] {
        for body in [ask(), ask_whole()] {
            let sending = spawn(&bridge, &body);
            let mut refusal = json_answer(status, &json!({"error": {"message": "busy"}}));
            let after = "17".parse().unwrap();
            refusal.headers_mut().insert("retry-after", after);
            model.turn().await.answer(refusal);
            let answer = sending.answer().await;
            assert_eq!(answer.status(), status);
            assert_eq!(answer.headers()["retry-after"], "17");
            let message = error_message(answer).await;
            assert!(message.contains("busy"), "{message}");
        }
    }
}

#[tokio::test]
async fn overflow_has_the_code_that_makes_codex_compact() {
    let (bridge, mut model) = pair(Kind::Llama).await;
    for body in [ask(), ask_whole()] {
        let sending = spawn(&bridge, &body);
        let error = json!({"code": 400, "type": "exceed_context_size_error", "message": "too long",
            "n_prompt_tokens": 18383, "n_ctx": 8192});
        model.turn().await.refuse(400, &json!({"error": error}));
        assert_eq!(
            told(sending.answer().await).await,
            (
                400,
                json!("invalid_request_error"),
                json!("context_length_exceeded"),
                "too long (18383 prompt tokens, context window 8192)".to_owned()
            )
        );
    }
}

#[tokio::test]
async fn unreachable_server_is_named_with_host_and_port_at_once() {
    let address = support::nobody();
    let bridge = Bridge::start(config(address)).await;
    for body in [ask(), ask_whole()] {
        let (status, _, code, message) = told(send(&bridge, &body).await).await;
        assert_eq!((status, code), (502, json!("server_error")));
        assert!(
            message.starts_with(&format!(
                "the model server at {address} cannot be reached: "
            )),
            "{message}"
        );
    }
    let health = json(bridge.get("/health").send().await.unwrap()).await;
    assert_ne!(health["status"], "ready", "{health}");
}

#[tokio::test]
async fn loading_server_is_a_503_when_nobody_waits() {
    let (bridge, mut model) = pair(Kind::Llama).await;
    let sending = spawn(&bridge, &ask());
    let error = json!({"code": 503, "message": "Loading model", "type": "unavailable_error"});
    model.turn().await.refuse(503, &json!({"error": error}));
    let answer = sending.answer().await;
    assert_eq!(answer.headers()["retry-after"], "1");
    let address = model.address;
    assert_eq!(
        told(answer).await,
        (
            503,
            json!("server_error"),
            json!("server_error"),
            format!("the model server at {address} is not ready: Loading model")
        )
    );
}

#[tokio::test]
async fn a_redirect_takes_the_prompt_nowhere() {
    let elsewhere = Model::start(Kind::Native);
    let (bridge, mut model) = pair_with(Kind::Native, |config| {
        support::upstream(config).api_key = Some(Secret::new("k-up"));
    })
    .await;
    for (status, body) in [
        (307, ask()),
        (308, ask_whole()),
        (302, ask()),
        (301, ask_whole()),
    ] {
        let sending = spawn(&bridge, &body);
        let location = format!("http://{}/v1/responses", elsewhere.address);
        let answer = Response::builder()
            .status(status)
            .header("location", location)
            .body(Empty::new().map_err(|never| match never {}).boxed())
            .unwrap();
        model.turn().await.answer(answer);
        let answer = sending.answer().await;
        assert!(answer.headers().get("location").is_none());
        let (seen, kind, code, message) = told(answer).await;
        // Codex repeats a 502 up to thirty times.
        assert_eq!(
            (seen, kind, code),
            (400, json!("invalid_request_error"), json!("invalid_prompt"))
        );
        let expected = format!("answered {status}");
        assert!(
            message.contains(&expected) && message.contains("redirect"),
            "{message}"
        );
    }
    assert_eq!((model.asked(), elsewhere.connections()), (4, 0));
}
