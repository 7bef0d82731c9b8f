//! llama-server leaves out numbers and events; what leaves the bridge is a whole, lawful response all the same.

use anyhow::Result;
use codex_bridge_e2e::{bridge::Bridge, client, gguf::Script, llama::Llama, models};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// The tools of a Codex request, in small: one function, one custom tool.
fn body() -> Value {
    let parameters =
        json!({"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]});
    json!({
        "model": "local-model",
        "stream": true,
        "store": false,
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go."}]}],
        "tools": [
            {"type": "function", "name": "exec_command", "description": "Runs a command.", "strict": false, "parameters": parameters},
            {"type": "custom", "name": "apply_patch", "description": "Changes files.", "format": {"type": "text"}},
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": true,
    })
}

/// The terminal response of one lawful stream.
async fn response(script: &Script, body: &Value) -> Result<Value> {
    let llama = Llama::scripted(script).await?;
    let bridge = Bridge::start(&llama.base_url(), json!({})).await?;
    let events = client::events(&bridge.base_url(), body).await?;
    client::lawful(&events).cloned()
}

fn kinds(response: &Value) -> Vec<&str> {
    response["output"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|item| item["type"].as_str())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn text_is_lawful() -> Result<()> {
    let response = response(&models::text(), &body()).await?;

    assert_eq!(response["status"], "completed");
    assert_eq!(kinds(&response), ["message"]);
    assert_eq!(
        response["output"][0]["content"][0]["text"],
        "Plain words only."
    );
    assert_eq!(response["output"][0]["phase"], "final_answer");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn thinking_words_and_call_are_lawful() -> Result<()> {
    let response = response(&models::thinking_command(), &body()).await?;

    assert_eq!(kinds(&response), ["reasoning", "message", "function_call"]);
    assert_eq!(response["output"][1]["phase"], "commentary");
    assert_eq!(
        response["output"][2]["arguments"],
        "{\"cmd\": \"echo ran > ran.txt\"}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_calls_are_lawful() -> Result<()> {
    let response = response(&models::two_commands(), &body()).await?;

    assert_eq!(kinds(&response), ["function_call", "function_call"]);
    assert_ne!(
        response["output"][0]["call_id"],
        response["output"][1]["call_id"]
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn patch_call_is_a_custom_call_with_its_text() -> Result<()> {
    let response = response(&models::patch(), &body()).await?;

    assert_eq!(kinds(&response), ["custom_tool_call"]);
    assert_eq!(response["output"][0]["name"], "apply_patch");
    assert_eq!(response["output"][0]["input"], models::PATCH);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cut_answer_is_incomplete() -> Result<()> {
    let mut body = body();
    body["max_output_tokens"] = json!(2);

    let response = response(&models::text(), &body).await?;

    assert_eq!(response["status"], "incomplete");
    assert_eq!(
        response["incomplete_details"]["reason"],
        "max_output_tokens"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn call_cut_in_its_arguments_is_never_completed() -> Result<()> {
    let mut body = body();
    body["max_output_tokens"] = json!(4);

    let response = response(&models::command(), &body).await?;

    assert_eq!(response["status"], "incomplete");
    let calls = response["output"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|item| item["type"] == "function_call");
    assert_eq!(
        calls.filter(|call| call["status"] == "completed").count(),
        0,
        "{response}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_without_streaming_has_the_same_output() -> Result<()> {
    let llama = Llama::scripted(&models::thinking_command()).await?;
    let bridge = Bridge::start(&llama.base_url(), json!({})).await?;
    let mut body = body();
    body["stream"] = json!(false);

    let (status, text) = client::post(&bridge.base_url(), &body).await?;

    assert_eq!(status, 200, "{text}");
    let response: Value = serde_json::from_str(&text)?;
    assert_eq!(response["status"], "completed");
    assert_eq!(kinds(&response), ["reasoning", "message", "function_call"]);
    Ok(())
}
