use std::collections::BTreeMap;

use codex_bridge::config::Secret;
use http::Response;
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::{
    scripted::{self, Scripted},
    support::{Bridge, config, error_message, json as body_of, nobody, upstream},
};

/// What Codex 0.120 to 0.171 require of an entry, together.
const REQUIRED: [&str; 16] = [
    "slug",
    "display_name",
    "supported_reasoning_levels",
    "shell_type",
    "visibility",
    "supported_in_api",
    "priority",
    "availability_nux",
    "upgrade",
    "base_instructions",
    "supports_reasoning_summaries",
    "support_verbosity",
    "truncation_policy",
    "supports_parallel_tool_calls",
    "experimental_supported_tools",
    "context_window",
];

#[tokio::test]
async fn the_list_has_both_shapes_and_the_running_window() {
    let server = Scripted::llama().await;
    let bridge = Bridge::start(config(server.address)).await;
    for path in ["/v1/models?client_version=0.155.0", "/models"] {
        let answer = bridge.get(path).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let list = body_of(answer).await;
        assert_eq!(list["object"], "list");
        assert_eq!(list["data"], scripted::list()["data"]);
        let models = list["models"].as_array().unwrap();
        assert_eq!(models.len(), 1);
        for key in REQUIRED {
            assert!(models[0].get(key).is_some(), "{key}");
        }
        assert_eq!(models[0]["slug"], "tiny");
        assert_eq!(models[0]["context_window"], 8192);
        assert_eq!(models[0]["supports_parallel_tool_calls"], true);
        assert_eq!(models[0]["input_modalities"], json!(["text"]));
    }
}

#[tokio::test]
async fn the_upstream_sees_its_own_key_and_the_query_and_nothing_of_the_client() {
    let mut server = Scripted::llama().await;
    let mut config = config(server.address);
    config.listen.api_key = Some(Secret::new("bridge-key"));
    upstream(&mut config).api_key = Some(Secret::new("upstream-key"));
    let bridge = Bridge::start(config).await;
    bridge
        .get("/v1/models?client_version=1%202")
        .bearer_auth("bridge-key")
        .header("cookie", "a=1")
        .header("user-agent", "codex")
        .header("x-private", "1")
        .send()
        .await
        .unwrap();
    let seen = server.request().await;
    assert_eq!(seen.uri, "/v1/models?client_version=1%202");
    let mut names: Vec<_> = seen.headers.keys().map(|name| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["accept", "authorization", "host"]);
    assert_eq!(seen.headers["authorization"], "Bearer upstream-key");
}

#[tokio::test]
async fn one_model_is_found_by_an_id_with_slashes_or_is_not_found() {
    let list = json!({"data": [{"id": "vendor/m:q4", "object": "model"}]});
    let server = Scripted::always(200, list).await;
    let bridge = Bridge::start(config(server.address)).await;
    for path in ["/v1/models/vendor/m:q4", "/v1/models/vendor%2Fm%3Aq4"] {
        let answer = bridge.get(path).send().await.unwrap();
        assert_eq!(
            body_of(answer).await,
            json!({"id": "vendor/m:q4", "object": "model"})
        );
    }
    let answer = bridge.get("/v1/models/other").send().await.unwrap();
    assert_eq!(answer.status(), 404);
    let message = error_message(answer).await;
    assert!(
        message.contains("other") && message.contains("vendor/m:q4"),
        "{message}"
    );
}

#[tokio::test]
async fn an_alias_is_a_model_of_its_own() {
    let server = Scripted::llama().await;
    let mut config = config(server.address);
    config.policy.model_aliases = BTreeMap::from([
        ("*".to_owned(), "tiny".to_owned()),
        ("gpt-oss:20b".to_owned(), "tiny".to_owned()),
        ("lost".to_owned(), "gone".to_owned()),
    ]);
    let bridge = Bridge::start(config).await;
    let list = body_of(bridge.get("/v1/models").send().await.unwrap()).await;
    let ids = |list: &serde_json::Value, key| {
        let entries = list.as_array().unwrap().iter();
        entries
            .map(|entry| entry[key].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&list["data"], "id"), ["tiny", "gpt-oss:20b"]);
    assert_eq!(ids(&list["models"], "slug"), ["tiny", "gpt-oss:20b"]);
}

#[tokio::test]
async fn what_the_upstream_refuses_is_refused_in_its_words() {
    let refusal = json!({"error": {"message": "Invalid API Key", "type": "authentication_error", "code": 401}});
    let body = refusal.to_string();
    let server = Scripted::start(move |_| {
        let answer = Response::builder()
            .status(401)
            .header("content-type", "application/json")
            .header("retry-after", "7")
            .header("set-cookie", "a=1")
            .body(scripted::text(&body))
            .unwrap();
        async move { answer }
    })
    .await;
    let bridge = Bridge::start(config(server.address)).await;
    let answer = bridge.get("/v1/models").send().await.unwrap();
    assert_eq!(answer.status(), 401);
    assert_eq!(answer.headers()["retry-after"], "7");
    assert_eq!(answer.headers().get("set-cookie"), None);
    assert_eq!(body_of(answer).await, refusal);
}

#[tokio::test]
async fn an_unreachable_upstream_is_a_502_that_names_it() {
    let down = nobody();
    let bridge = Bridge::start(config(down)).await;
    let answer = bridge.get("/v1/models").send().await.unwrap();
    assert_eq!(answer.status(), 502);
    assert!(error_message(answer).await.contains(&down.to_string()));
}

#[tokio::test]
async fn a_redirect_is_neither_followed_nor_handed_on() {
    let elsewhere = Scripted::llama().await;
    let location = format!("http://{}/v1/models", elsewhere.address);
    let server = Scripted::start(move |_| {
        let answer = Response::builder()
            .status(307)
            .header("location", &location)
            .body(scripted::text(""))
            .unwrap();
        async move { answer }
    })
    .await;
    let bridge = Bridge::start(config(server.address)).await;
    let answer = bridge.get("/v1/models").send().await.unwrap();
    assert_eq!(answer.status(), 502);
    assert!(error_message(answer).await.contains("307"));
    assert_eq!(elsewhere.seen(), 0);
}

#[tokio::test]
async fn an_answer_that_is_no_list_is_a_502() {
    let server = Scripted::always(200, json!({"hello": "world"})).await;
    let bridge = Bridge::start(config(server.address)).await;
    let answer = bridge.get("/v1/models").send().await.unwrap();
    assert_eq!(answer.status(), 502);
    assert!(error_message(answer).await.contains("no model list"));
}

#[tokio::test]
async fn a_list_without_end_is_not_read_to_its_end() {
    let server = Scripted::start(|_| async {
        let (chunks, body) = scripted::gated();
        tokio::spawn(async move {
            let chunk = " ".repeat(64 * 1024).leak();
            while chunks.send(chunk).await.is_ok() {}
        });
        Response::new(body)
    })
    .await;
    let bridge = Bridge::start(config(server.address)).await;
    let answer = bridge.get("/v1/models").send().await.unwrap();
    assert_eq!(answer.status(), 502);
    assert!(error_message(answer).await.contains("1048576"));
}
