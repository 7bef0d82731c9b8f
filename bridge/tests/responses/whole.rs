//! One JSON answer instead of events.

use pretty_assertions::assert_eq;
use serde_json::json;

use crate::{
    client::{ask_whole, ask_with_tools, pair, spawn},
    event::*,
    model::{Kind, json as json_answer},
    support::{error_message, json},
};

fn ask_whole_with_tools() -> serde_json::Value {
    let mut body = ask_with_tools();
    body.as_object_mut().unwrap().remove("stream");
    body
}

#[tokio::test]
async fn llama_server_is_asked_to_stream_and_answered_for_in_one_piece() {
    let (bridge, mut model) = pair(Kind::Llama).await;
    let sending = spawn(&bridge, &ask_whole_with_tools());
    let turn = model.turn().await;
    assert_eq!(turn.json()["stream"], true);
    let (reasoning, mut message) = (reasoning("r", "hm"), message("m", "Patching."));
    let call = call("f", "apply_patch", "{\"input\":\"x\"}");
    turn.stream()
        .events(&[
            created(),
            reasoning_added("r"),
            reasoning_text("r", "hm"),
            message_added("m"),
            part_added("m"),
            text("m", "Patching."),
            call_added("f", "apply_patch"),
            arguments("f", "{\"input\":\"x\"}"),
            done(&reasoning),
            done(&message),
            done(&call),
            completed(&[reasoning, message.clone(), call]),
        ])
        .await;
    let answer = sending.answer().await;
    assert_eq!(answer.headers()["content-type"], "application/json");
    let answer = json(answer).await;
    assert_eq!(answer["status"], "completed");
    assert!(answer["completed_at"].as_u64() >= answer["created_at"].as_u64());
    assert_eq!(answer["output_text"], "Patching.");
    // As in a stream: a call follows.
    message["phase"] = json!("commentary");
    assert_eq!(
        answer["output"],
        json!([
            {"id": "r", "type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}],
                "content": [{"type": "reasoning_text", "text": "hm"}], "encrypted_content": "", "status": "completed"},
            message,
            {"id": "f", "type": "custom_tool_call", "call_id": "call_f", "name": "apply_patch",
                "status": "completed", "input": "x"},
        ])
    );
    assert_eq!(answer["usage"]["total_tokens"], 8);
}

#[tokio::test]
async fn a_native_servers_json_comes_back_with_codexs_own_tools() {
    let (bridge, mut model) = pair(Kind::Native).await;
    let sending = spawn(&bridge, &ask_whole_with_tools());
    let turn = model.turn().await;
    assert_ne!(turn.json()["stream"], true);
    let message = message("m", "Looking.");
    let call = call("f", "mcp__desk__find", "{\"id\":41}");
    turn.answer(json_answer(
        200,
        &completed(&[message.clone(), call])["response"],
    ));
    let answer = json(sending.answer().await).await;
    assert_eq!(
        answer["output"],
        json!([message, {"id": "f", "type": "function_call", "call_id": "call_f", "name": "find",
            "arguments": "{\"id\":41}", "status": "completed", "namespace": "mcp__desk"}])
    );
    assert_eq!(answer["output_text"], "Looking.");
    assert_eq!(answer["id"], "resp_up");
}

#[tokio::test]
async fn an_answer_cut_at_its_limit_is_incomplete() {
    let (bridge, mut model) = pair(Kind::Llama).await;
    for stream in [true, false] {
        let mut body = ask_whole();
        body["stream"] = json!(stream);
        body["max_output_tokens"] = json!(3);
        let sending = spawn(&bridge, &body);
        // llama-server calls it completed.
        model.turn().await.say("It was a").await;
        let response = if stream {
            let mut events = sending.events().await.rest().await;
            let mut end = events.pop().unwrap();
            assert_eq!(end["type"], "response.incomplete");
            end["response"].take()
        } else {
            json(sending.answer().await).await
        };
        assert_eq!(response["status"], "incomplete");
        assert_eq!(
            response["incomplete_details"],
            json!({"reason": "max_output_tokens"})
        );
        assert_eq!(response["output"][0]["content"][0]["text"], "It was a");
    }
}

#[tokio::test]
async fn a_stream_that_fails_is_an_error_status_with_its_reason() {
    let (bridge, mut model) = pair(Kind::Llama).await;
    for (end, status, told) in [
        (
            "",
            502,
            "the model server closed the stream before the response was complete",
        ),
        (
            "data: {\"error\":{\"code\":500,\"message\":\"parse failed\",\"type\":\"server_error\"}}\n\n",
            502,
            "parse failed",
        ),
        (
            "data: {\"error\":{\"code\":400,\"message\":\"too long\",\"type\":\"exceed_context_size_error\"}}\n\n",
            400,
            "too long",
        ),
    ] {
        let sending = spawn(&bridge, &ask_whole());
        let feed = model.turn().await.stream();
        feed.events(&turn("Hello")[..5]).await;
        if !end.is_empty() {
            feed.bytes(end).await;
        }
        drop(feed);
        let answer = sending.answer().await;
        assert_eq!(answer.status(), status);
        let message = error_message(answer).await;
        assert!(message.starts_with(told), "{message}");
        assert_eq!(message.matches("(request ").count(), 1, "{message}");
    }
}

#[tokio::test]
async fn a_connection_that_breaks_is_a_502_naming_the_server() {
    let (bridge, mut model) = pair(Kind::Llama).await;
    let sending = spawn(&bridge, &ask_whole());
    let feed = model.turn().await.stream();
    feed.events(&[created()]).await;
    feed.cut().await;
    let answer = sending.answer().await;
    assert_eq!(answer.status(), 502);
    let message = error_message(answer).await;
    assert!(message.contains(&model.address.to_string()), "{message}");
}

#[tokio::test]
async fn json_that_is_none_is_a_502() {
    let (bridge, mut model) = pair(Kind::Native).await;
    for answer in ["[]", "{\"id\":", "<h1>It works!</h1>"] {
        let sending = spawn(&bridge, &ask_whole());
        let turn = model.turn().await;
        turn.answer(crate::model::plain(200, "application/json", answer));
        let answer = sending.answer().await;
        assert_eq!(answer.status(), 502);
        let message = error_message(answer).await;
        assert!(message.contains("no JSON object"), "{message}");
    }
}
