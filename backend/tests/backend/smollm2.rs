//! A real model: SmolLM2-135M-Instruct.

use codex_bridge_backend::{
    backend::{Backend, BackendOptions},
    grammar::{Checked, Checker, ToolSet},
    testing::{events::response as last, smollm2},
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::support::{events, response, tool};

pub(crate) fn load() -> Option<Backend> {
    let options = BackendOptions {
        context_length: Some(4096),
        max_batch: 4,
        ..BackendOptions::new(smollm2()?)
    };
    Some(Backend::load(&options).unwrap())
}

fn weather() -> Value {
    tool(
        "get_weather",
        json!({
            "type": "object", "additionalProperties": false, "required": ["city", "unit"],
            "properties": {"city": {"type": "string", "maxLength": 40}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
        }),
    )
}

#[tokio::test]
async fn a_plain_turn_is_answered() {
    let Some(backend) = load() else { return };
    let request = json!({"input": "What is the capital of France? Answer in one sentence.", "temperature": 0, "max_output_tokens": 60});
    let events = events(&backend, request).await;
    let text = last(&events)["output"][0]["content"][0]["text"]
        .as_str()
        .unwrap();
    assert!(text.contains("Paris"), "{text}");
    assert!(
        events
            .iter()
            .any(|event| event.contains_key("prompt_progress"))
    );
    assert_eq!(backend.info().call_syntax, "smollm2");
    assert_eq!(backend.info().tokenizer, "gpt2 (smollm)");
}

#[tokio::test]
async fn a_forced_call_satisfies_its_schema() {
    let Some(backend) = load() else { return };
    let tools = json!([
        weather(),
        tool("get_time", json!({"type": "object", "properties": {}}))
    ]);
    let request = json!({
        "input": "What is the weather like in Oslo, in celsius?", "tools": tools, "tool_choice": {"type": "function", "name": "get_weather"},
        "parallel_tool_calls": false, "temperature": 0, "max_output_tokens": 200,
    });
    let answer = response(&backend, request).await;
    assert_eq!(answer["status"], "completed", "{answer:?}");
    let output = answer["output"].as_array().unwrap();
    assert_eq!(output.len(), 1, "{output:?}");
    assert_eq!(output[0]["name"], "get_weather");
    let set = ToolSet::from_request(tools.as_array().unwrap()).unwrap();
    let checker = Checker::new(set.get("get_weather").unwrap());
    let arguments = output[0]["arguments"].as_str().unwrap();
    assert_eq!(checker.check(arguments), Checked::Valid, "{arguments}");
}

#[tokio::test]
async fn an_answer_in_a_format_is_never_commentary() {
    let Some(backend) = load() else { return };
    let schema = json!({"type": "object", "properties": {"title": {"type": "string", "maxLength": 60}}, "required": ["title"], "additionalProperties": false});
    let request = json!({
        "input": "Generate a title for: fix the login page", "tools": [weather()], "temperature": 0, "max_output_tokens": 120,
        "text": {"format": {"type": "json_schema", "name": "title", "strict": true, "schema": schema}},
    });
    let answer = response(&backend, request).await;
    for item in answer["output"].as_array().unwrap() {
        if item["type"] == "message" {
            assert_eq!(item["phase"], "final_answer");
            let text = item["content"][0]["text"].as_str().unwrap();
            assert!(
                serde_json::from_str::<Value>(text).unwrap()["title"].is_string(),
                "{text}"
            );
        }
    }
}
