//! What of a client's request reaches the model server, and in which shape.

use std::io::Write;

use codex_bridge::config::{Exclusion, NamespacedTool, Secret, UnknownTools};
use flate2::{Compression, write::GzEncoder};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::{
    client::{Events, ask, ask_whole, pair, pair_with, post, send, spawn, spawn_request},
    event::*,
    model::Kind,
    support::{error_message, json, soon, upstream},
};

/// Names of the tools that reach the model server, each of which must be a function.
fn names(body: &Value) -> Vec<&str> {
    let tools = body["tools"].as_array().unwrap();
    assert!(tools.iter().all(|tool| tool["type"] == "function"));
    tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect()
}

fn finder(tool: &str) -> NamespacedTool {
    NamespacedTool {
        namespace: "mcp__finder".to_owned(),
        tool: tool.to_owned(),
    }
}

fn ask_with_search() -> Value {
    json!({"model": "m", "stream": true, "input": "hi", "tools": [
        {"type": "function", "name": "exec_command", "parameters": {"type": "object",
            "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]}},
        {"type": "custom", "name": "apply_patch", "description": "edit files",
            "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}},
        {"type": "namespace", "name": "mcp__finder", "tools": [
            {"type": "function", "name": "query", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}},
            {"type": "function", "name": "purge", "parameters": {"type": "object"}}]},
        {"type": "web_search"}]})
}

#[tokio::test]
async fn hosted_search_selects_its_stand_in_and_adds_no_function() {
    for kind in [Kind::Llama, Kind::Native] {
        let (bridge, mut model) = pair_with(kind, |config| {
            config.policy.web_search_tool = Some(finder("query"));
            config.policy.excluded_mcp_tools = vec![Exclusion {
                namespace: "mcp__finder".to_owned(),
                tools: vec!["purge".to_owned()],
            }];
        })
        .await;
        let body = ask_with_search();
        let sending = spawn(&bridge, &body);
        let turn = model.turn().await;
        let sent = turn.json();
        assert_eq!(
            names(&sent),
            ["exec_command", "apply_patch", "mcp__finder__query"]
        );
        assert_eq!(
            sent["tools"][0]["parameters"],
            body["tools"][0]["parameters"]
        );
        let input = &sent["tools"][1]["parameters"];
        assert_eq!(
            (&input["required"], &input["properties"]["input"]["type"]),
            (&json!(["input"]), &json!("string"))
        );
        let mut end = completed(&[]);
        end["response"]["tools"] = sent["tools"].clone();
        turn.stream().events(&[created(), end]).await;
        let events = sending.events().await.rest().await;
        // The client is told of its own tools.
        let response = &events.last().unwrap()["response"];
        assert_eq!(response["tools"], body["tools"]);
    }
}

#[tokio::test]
async fn calls_of_the_stand_in_come_back_as_the_mcp_tool() {
    let (bridge, mut model) = pair_with(Kind::Llama, |config| {
        config.policy.web_search_tool = Some(finder("query"));
    })
    .await;
    let sending = spawn(&bridge, &ask_with_search());
    let upstream_call = call("f", "mcp__finder__query", "{\"q\":\"a\"}");
    model
        .turn()
        .await
        .stream()
        .events(&[
            created(),
            call_added("f", "mcp__finder__query"),
            done(&upstream_call),
            completed(&[upstream_call]),
        ])
        .await;
    let events = sending.events().await.rest().await;
    let item = json!({"id": "f", "type": "function_call", "call_id": "call_f", "name": "query",
        "arguments": "{\"q\":\"a\"}", "status": "completed", "namespace": "mcp__finder"});
    assert_eq!(events.last().unwrap()["response"]["output"], json!([item]));
}

#[tokio::test]
async fn hosted_search_without_a_stand_in_is_refused_before_anybody_is_asked() {
    let (bridge, model) = pair(Kind::Llama).await;
    let mut body = ask_with_search();
    body["tools"].as_array_mut().unwrap().remove(2);
    let answer = send(&bridge, &body).await;
    assert_eq!(answer.status(), 400);
    assert_eq!(answer.headers()["content-type"], "application/json");
    let message = error_message(answer).await;
    for told in [
        "web_search",
        "tools[2]",
        "webSearchTool",
        "web_search = \"disabled\"",
    ] {
        assert!(message.contains(told), "{told}: {message}");
    }
    assert_eq!(model.seen(), 0);
}

#[tokio::test]
async fn tools_of_an_unknown_type_are_refused_by_name_or_dropped_on_demand() {
    let mut body = ask();
    body["tools"] = json!([
        {"type": "function", "name": "exec", "parameters": {"type": "object"}},
        {"type": "hologram", "name": "show"},
    ]);
    let (bridge, model) = pair(Kind::Llama).await;
    let answer = send(&bridge, &body).await;
    assert_eq!(answer.status(), 400);
    let message = error_message(answer).await;
    assert!(
        message.contains("hologram") && message.contains("tools[1]"),
        "{message}"
    );
    assert_eq!(model.seen(), 0);

    let (bridge, mut model) = pair_with(Kind::Llama, |config| {
        config.policy.unknown_tools = UnknownTools::Drop;
    })
    .await;
    let sending = spawn(&bridge, &body);
    let turn = model.turn().await;
    assert_eq!(names(&turn.json()), ["exec"]);
    turn.say("Hello.").await;
    sending.events().await.rest().await;
}

/// Every field of the header that reaches the model server.
fn fields(headers: &http::HeaderMap) -> Vec<(&str, &str)> {
    let text = |value: &'static str| value;
    let mut fields: Vec<_> = headers
        .iter()
        .map(|(name, value)| {
            let value = match name.as_str() {
                "host" | "content-length" => text("…"),
                _ => value.to_str().unwrap(),
            };
            (name.as_str(), value)
        })
        .collect();
    fields.sort_unstable();
    fields
}

#[tokio::test]
async fn the_model_server_gets_its_own_key_and_nothing_that_names_the_client() {
    for key in [None, Some("k-up")] {
        let (bridge, mut model) = pair_with(Kind::Native, |config| {
            upstream(config).api_key = key.map(Secret::new);
        })
        .await;
        let request = post(&bridge, &ask())
            .bearer_auth("k-client")
            .header("x-api-key", "k-client")
            .header("cookie", "a=b")
            .header("x-conversation-id", "c-1")
            .header("session_id", "s-1")
            .header("originator", "codex_cli_rs")
            .header("user-agent", "codex")
            .header("x-request-id", "turn-7")
            .header("traceparent", "00-1-2-03");
        let sending = spawn_request(request);
        let turn = model.turn().await;
        assert_eq!(turn.uri.path(), "/v1/responses");
        let mut expected = vec![
            ("accept", "text/event-stream, application/json"),
            ("content-length", "…"),
            ("content-type", "application/json"),
            ("host", "…"),
            ("traceparent", "00-1-2-03"),
            ("x-request-id", "turn-7"),
        ];
        if key.is_some() {
            expected.insert(1, ("authorization", "Bearer k-up"));
        }
        assert_eq!(fields(&turn.headers), expected);
        turn.say("Hello.").await;
        sending.events().await.rest().await;
    }
}

#[tokio::test]
async fn history_that_codex_replays_is_made_fit_for_llama_server() {
    let (bridge, mut model) = pair(Kind::Llama).await;
    let mut body = ask();
    body["input"] = json!([
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "find it"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "I look."}],
            "content": null, "encrypted_content": null},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "it"}},
        {"type": "message", "role": "assistant", "phase": "commentary",
            "content": [{"type": "output_text", "text": "Looking."}]},
        {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "x"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"},
    ]);
    let sending = spawn(&bridge, &body);
    let turn = model.turn().await;
    let sent = turn.json();
    let input = sent["input"].as_array().unwrap();
    for item in input {
        match item["type"].as_str() {
            Some("reasoning") => {
                assert!(item["summary"].is_array(), "{item}");
                let text = item["content"][0]["text"].as_str();
                assert!(text.is_some_and(|text| !text.is_empty()), "{item}");
            }
            kind => assert!(
                matches!(
                    kind,
                    Some("message" | "function_call" | "function_call_output")
                ),
                "{item}"
            ),
        }
    }
    assert!(input.iter().any(|item| item["type"] == "reasoning"));
    turn.say("Hello.").await;
    sending.events().await.rest().await;
}

#[tokio::test]
async fn numbers_reach_the_model_server_and_the_client_digit_by_digit() {
    for kind in [Kind::Llama, Kind::Native] {
        let (bridge, mut model) = pair(kind).await;
        let numbers = r#""seed":9007199254740993,"top_p":0.10,"min_p":123456789012345678901234"#;
        let body =
            format!(r#"{{"model":"m","stream":true,"input":"hi",{numbers},"temperature":1E2}}"#);
        let sending = spawn_request(bridge.post("/v1/responses").body(body));
        let turn = model.turn().await;
        assert!(turn.body.contains(numbers), "{}", turn.body);
        // An exponent stays one; its spelling is serde_json's.
        assert!(turn.body.contains(r#""temperature":1e+2"#), "{}", turn.body);
        let feed = turn.stream();
        feed.events(&[created()]).await;
        let note = r#"{"type":"response.note","n":9007199254740993,"t":1E2,"sequence_number":1}"#;
        feed.bytes(format!("data: {note}\n\n")).await;
        let end = frame(&completed(&[]));
        let cost = r#""cost":0.10,"seed":9007199254740993,"input_tokens":5"#;
        feed.bytes(end.replace(r#""input_tokens":5"#, cost)).await;
        let mut events = sending.events().await;
        events.text().await.unwrap();
        assert_eq!(events.text().await.unwrap(), note);
        let end = events.text().await.unwrap();
        assert!(end.contains(cost), "{end}");
    }
}

#[tokio::test]
async fn compressed_requests_reach_the_model_server_as_plain_json() {
    let (bridge, mut model) = pair(Kind::Native).await;
    let plain = ask().to_string();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(plain.as_bytes()).unwrap();
    let zstd = ruzstd::encoding::compress_to_vec(
        plain.as_bytes(),
        ruzstd::encoding::CompressionLevel::Fastest,
    );
    for (coding, body) in [
        ("gzip", gzip.finish().unwrap()),
        ("zstd", zstd),
        ("identity", plain.clone().into_bytes()),
    ] {
        let request = bridge
            .post("/v1/responses")
            .header("content-encoding", coding);
        let sending = spawn_request(request.body(body));
        let turn = model.turn().await;
        assert_eq!(turn.body, plain, "{coding}");
        let length = turn.body.len().to_string();
        assert_eq!(turn.headers["content-length"], length.as_str());
        assert!(turn.headers.get("content-encoding").is_none());
        turn.say("Hello.").await;
        sending.events().await.rest().await;
    }
}

#[tokio::test]
async fn a_prewarm_is_answered_without_asking_anybody() {
    for kind in [Kind::Llama, Kind::Native] {
        let (bridge, model) = pair(kind).await;
        let body = json!({"model": "m", "input": [], "generate": false, "stream": true});
        let mut events = Events::of(send(&bridge, &body).await);
        let events = events.rest().await;
        assert_eq!(outline(&events), ["created", "completed"]);
        assert_eq!(events[1]["response"]["output"], json!([]));

        let body = json!({"model": "m", "input": [], "generate": false});
        let answer = json(send(&bridge, &body).await).await;
        assert_eq!(
            (&answer["status"], &answer["output"]),
            (&json!("completed"), &json!([]))
        );
        assert_eq!(model.seen(), 0);
    }
}

#[tokio::test]
async fn generate_true_is_an_ordinary_turn_and_stays_here() {
    for kind in [Kind::Llama, Kind::Native] {
        let (bridge, mut model) = pair(kind).await;
        let mut body = ask();
        body["generate"] = json!(true);
        let sending = spawn(&bridge, &body);
        let turn = model.turn().await;
        assert_eq!(turn.json().get("generate"), None);
        turn.say("Hello.").await;
        sending.events().await.rest().await;
    }
}

#[tokio::test]
async fn a_native_server_gets_what_only_it_understands() {
    let (bridge, mut model) = pair(Kind::Native).await;
    let mut body = ask_whole();
    body["previous_response_id"] = json!("resp_0");
    body["text"] = json!({"format": {"type": "grammar_of_tomorrow"}});
    let sending = spawn(&bridge, &body);
    let turn = model.turn().await;
    assert_eq!(turn.json(), body);
    turn.refuse(
        400,
        &json!({"error": {"message": "no", "type": "invalid_request_error"}}),
    );
    assert_eq!(sending.answer().await.status(), 400);
}

#[tokio::test]
async fn faults_of_the_request_are_told_before_anybody_is_asked() {
    let (bridge, model) = pair(Kind::Llama).await;
    for (change, told) in [
        (json!({"model": " "}), "model"),
        (json!({"stream": "yes"}), "stream"),
        (json!({"tools": null}), "tools"),
        (json!({"tools": [{"type": "function"}]}), "tools[0].name"),
        (json!({"tool_choice": "sometimes"}), "tool_choice"),
    ] {
        let mut body = ask();
        for (key, value) in change.as_object().unwrap() {
            body[key] = value.clone();
        }
        let answer = soon(post(&bridge, &body).send()).await.unwrap();
        assert_eq!(answer.status(), 400);
        let error = json(answer).await["error"].clone();
        assert!(
            error["param"].as_str().unwrap().starts_with(told),
            "{error}"
        );
    }
    assert_eq!(model.seen(), 0);
}

#[tokio::test]
async fn fields_of_another_api_are_refused_and_new_ones_are_let_through() {
    for kind in [Kind::Llama, Kind::Native] {
        let (bridge, mut model) = pair(kind).await;
        for (field, value, instead) in [
            (
                "messages",
                json!([{"role": "user", "content": "hi"}]),
                "input",
            ),
            ("functions", json!([{"name": "f"}]), "tools"),
            ("function_call", json!("auto"), "tool_choice"),
        ] {
            let mut body = ask();
            body[field] = value;
            let refused = spawn(&bridge, &body).answer().await;
            assert_eq!(refused.status(), 400);
            let message = error_message(refused).await;
            let expected = format!(
                "{field}: is of the Chat Completions API; the Responses API has {instead} instead (request "
            );
            assert!(message.starts_with(&expected), "{message}");
        }
        let mut body = ask();
        body["client_metadata"] = json!({"turn_id": "t"});
        body["brand_new"] = json!({"a": 1});
        // llama-server reads it.
        body["response_format"] = json!({"type": "text"});
        let sending = spawn(&bridge, &body);
        let turn = model.turn().await;
        assert_eq!(turn.json()["brand_new"], json!({"a": 1}));
        assert_eq!(turn.json()["response_format"], json!({"type": "text"}));
        sending.leave();
        let metrics = bridge.get("/metrics").send().await.unwrap();
        let metrics = metrics.text().await.unwrap();
        assert!(
            metrics.contains("\ncodex_bridge_unknown_fields_total 1\n"),
            "{metrics}"
        );
    }
}
