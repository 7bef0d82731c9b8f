//! The bundled engine behind the server, with models whose weights answer with a given text.

use std::path::Path;

use backend::testing::Scripted;
use codex_bridge::{config::Config, server::Server};
use http::Method;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    engine::loading,
    log::Lines,
    support::{Bridge, SECOND, error_message, json, soon},
};

/// A bridge whose engine answers with `text`.
struct Running {
    bridge: Bridge,
    _model: TempDir,
}

impl Running {
    async fn answering(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("scripted.gguf");
        Scripted::default()
            .answer_text(text, 3)
            .write_gguf(&path)
            .unwrap();
        Self {
            bridge: start(configured(&path)).await,
            _model: folder,
        }
    }

    async fn post(&self, body: &Value) -> reqwest::Response {
        let request = self.bridge.post("/v1/responses").body(body.to_string());
        soon(request.send()).await.unwrap()
    }
}

fn configured(model: &Path) -> Config {
    let mut config = loading(Some(60 * SECOND));
    let codex_bridge::config::UpstreamConfig::Bundled(engine) = &mut config.upstream else {
        panic!("a configuration of the bundled engine");
    };
    engine.model = model.display().to_string();
    engine.context_length = Some(2048);
    engine.max_batch = 2;
    engine.threads = Some(1);
    config
}

/// Somebody runs the engine, as the program does. Ready when the model is loaded: before that a stream begins with signs
/// of life, whatever becomes of it.
async fn start(config: Config) -> Bridge {
    let server = Server::bind(config).await.unwrap();
    let engine = server.engine().unwrap();
    let (ready, is_ready) = tokio::sync::oneshot::channel();
    tokio::spawn(async move { engine.run(|_| ready.send(()).unwrap()).await });
    let bridge = Bridge::serving(server);
    soon(is_ready).await.unwrap();
    bridge
}

fn events(text: &str) -> Vec<Value> {
    text.lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .filter(|data| *data != "[DONE]")
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

#[tokio::test]
async fn text_streams_as_native_events_with_its_phase_and_ends_once() {
    let running = Running::answering("Plain words only.").await;
    let response = running
        .post(&json!({"model": "scripted", "input": "hi", "stream": true}))
        .await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let text = soon(response.text()).await.unwrap();
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    let events = events(&text);
    let numbers: Vec<usize> = events
        .iter()
        .map(|event| event["sequence_number"].as_u64().unwrap() as usize)
        .collect();
    assert_eq!(numbers, (0..events.len()).collect::<Vec<_>>());
    let deltas: String = events
        .iter()
        .filter(|event| event["type"] == "response.output_text.delta")
        .map(|event| event["delta"].as_str().unwrap())
        .collect();
    assert_eq!(deltas, "Plain words only.");
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.completed");
    let message = &last["response"]["output"][0];
    assert_eq!(
        (&message["content"][0]["text"], &message["phase"]),
        (&json!("Plain words only."), &json!("final_answer"))
    );
    assert!(last["response"]["usage"]["input_tokens"].as_u64() > Some(0));
}

#[tokio::test]
async fn the_line_of_a_request_names_the_model_behind_the_alias() {
    let lines = Lines::default();
    let _guard = lines.capture();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scripted.gguf");
    Scripted::default()
        .answer_text("Yes.", 3)
        .write_gguf(&path)
        .unwrap();
    let mut config = configured(&path);
    config.policy.model_aliases = [("*".to_owned(), "scripted".to_owned())].into();
    let bridge = start(config).await;
    for stream in [true, false] {
        let body = json!({"model": "gpt-5", "input": "hi", "stream": stream});
        let request = bridge.post("/v1/responses").body(body.to_string());
        let response = soon(request.send()).await.unwrap();
        soon(response.bytes()).await.unwrap();
        let requests = lines.requests();
        let line = requests.last().unwrap();
        assert_eq!(
            (&line["model_asked"], &line["model_served"]),
            (&json!("gpt-5"), &json!("scripted")),
            "{line}"
        );
    }
}

#[tokio::test]
async fn a_client_that_does_not_stream_gets_one_object() {
    let running = Running::answering("Plain words only.").await;
    let response = running
        .post(&json!({"model": "scripted", "input": "hi"}))
        .await;
    assert_eq!(response.status(), 200);
    let object = json(response).await;
    assert_eq!(
        (
            &object["object"],
            &object["status"],
            &object["output"][0]["content"][0]["text"]
        ),
        (
            &json!("response"),
            &json!("completed"),
            &json!("Plain words only.")
        )
    );
}

#[tokio::test]
async fn a_custom_tool_comes_back_as_one_whose_input_its_grammar_took() {
    let running = Running::answering(
        "<tool_call>\n{\"name\": \"note\", \"arguments\": {\"input\": \"BEGIN x END\"}}\n</tool_call>",
    )
    .await;
    let tool = json!({
        "type": "custom", "name": "note", "description": "Takes a note.",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"BEGIN \" /[a-z]/ \" END\""},
    });
    let body = json!({
        "model": "scripted", "input": "hi", "stream": true, "tools": [tool],
        "tool_choice": {"type": "custom", "name": "note"},
    });
    let response = running.post(&body).await;
    let text = soon(response.text()).await.unwrap();
    let events = events(&text);
    let last = events.last().unwrap();
    let call = &last["response"]["output"][0];
    assert_eq!(
        (&call["type"], &call["name"]),
        (&json!("custom_tool_call"), &json!("note")),
        "{text}"
    );
    let input = call["input"].as_str().unwrap();
    assert!(
        input.len() == "BEGIN x END".len()
            && input.starts_with("BEGIN ")
            && input.ends_with(" END"),
        "{input:?}"
    );
}

#[tokio::test]
async fn what_cannot_be_enforced_is_told_in_a_header() {
    let running = Running::answering("Plain words only.").await;
    let tool = json!({
        "type": "function", "name": "look", "strict": false,
        "parameters": {"type": "object", "properties": {"name": {"type": "string", "pattern": "^(?=a)b$"}}},
    });
    for stream in [true, false] {
        let body = json!({"model": "scripted", "input": "hi", "stream": stream, "tools": [tool]});
        let response = running.post(&body).await;
        assert_eq!(response.status(), 200);
        let told = response.headers()["x-codex-bridge-relaxed"]
            .to_str()
            .unwrap();
        assert!(told.contains("look"), "{told}");
        soon(response.text()).await.unwrap();
    }
    let body = json!({"model": "scripted", "input": "hi"});
    let response = running.post(&body).await;
    assert!(!response.headers().contains_key("x-codex-bridge-relaxed"));
}

#[tokio::test]
async fn a_prompt_beyond_the_window_is_400_before_any_stream() {
    let running = Running::answering("Plain words only.").await;
    let body = json!({"model": "scripted", "input": "x".repeat(4000), "stream": true});
    let response = running.post(&body).await;
    assert_eq!(response.status(), 400);
    let body = json(response).await;
    assert_eq!(body["error"]["code"], "context_length_exceeded");
}

#[tokio::test]
async fn a_field_that_is_wrong_is_named() {
    let running = Running::answering("Plain words only.").await;
    let response = running
        .post(&json!({"model": "scripted", "input": "hi", "temperature": "hot"}))
        .await;
    assert_eq!(response.status(), 400);
    let message = error_message(response).await;
    assert!(message.contains("temperature"), "{message}");
}

#[tokio::test]
async fn health_models_and_metrics_tell_of_the_running_engine() {
    let running = Running::answering("Plain words only.").await;
    running
        .post(&json!({"model": "scripted", "input": "hi"}))
        .await;
    let bridge = &running.bridge;
    let health = bridge.get("/health").send().await.unwrap();
    assert_eq!(health.status(), 200);
    let health = json(health).await;
    assert_eq!(
        (
            &health["status"],
            &health["upstream"]["model"],
            &health["upstream"]["context"]
        ),
        (&json!("ready"), &json!("scripted"), &json!(2048))
    );
    assert_eq!(health["upstream"]["engine"]["device"]["threads"], 1);
    let list = json(bridge.get("/v1/models").send().await.unwrap()).await;
    assert_eq!(
        (&list["data"][0]["id"], &list["models"][0]["context_window"]),
        (&json!("scripted"), &json!(2048))
    );
    let metrics = bridge
        .request(Method::GET, "/metrics")
        .send()
        .await
        .unwrap();
    let metrics = metrics.text().await.unwrap();
    for line in [
        "codex_bridge_engine_up 1",
        "codex_bridge_engine_responses_completed_total 1",
        "codex_bridge_engine_kv_pages_used 0",
    ] {
        assert!(
            metrics.lines().any(|found| found == line),
            "{line}\n{metrics}"
        );
    }
}

#[tokio::test]
async fn a_stopped_engine_refuses_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scripted.gguf");
    Scripted::default()
        .answer_text("Plain words only.", 3)
        .write_gguf(&path)
        .unwrap();
    let server = Server::bind(configured(&path)).await.unwrap();
    let engine = server.engine().unwrap();
    let (ready, is_ready) = tokio::sync::oneshot::channel();
    let running = engine.clone();
    tokio::spawn(async move { running.run(|_| ready.send(()).unwrap()).await });
    let bridge = Bridge::serving(server);
    soon(is_ready).await.unwrap();

    soon(engine.shutdown()).await;

    let response = bridge
        .post("/v1/responses")
        .body(json!({"model": "scripted", "input": "hi"}).to_string())
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 503);
    let message = error_message(response).await;
    assert!(
        message.starts_with("the engine is not running: "),
        "{message}"
    );
    let health = bridge.get("/health").send().await.unwrap();
    assert_eq!(health.status(), 503);
}

#[tokio::test]
async fn what_only_the_chat_api_has_is_refused_by_name() {
    let running = Running::answering("Hello there").await;
    for (field, instead) in [
        ("max_tokens", "max_output_tokens"),
        ("response_format", "text.format"),
        ("messages", "input"),
    ] {
        let mut body = json!({"model": "scripted", "input": "hi", "client_metadata": {"a": "b"}});
        body[field] = json!([1]);
        let refused = running.post(&body).await;
        assert_eq!(refused.status(), 400);
        let message = error_message(refused).await;
        let expected = format!(
            "{field}: is of the Chat Completions API; the Responses API has {instead} instead"
        );
        assert!(message.starts_with(&expected), "{message}");
    }
}
