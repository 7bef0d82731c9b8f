//! Events as llama-server sends them: no indices, no numbers, and every item's end at the very end.

use serde_json::{Value, json};

pub(crate) fn created() -> Value {
    json!({"type": "response.created", "response": {"id": "resp_up", "object": "response", "status": "in_progress"}})
}

pub(crate) fn in_progress() -> Value {
    json!({"type": "response.in_progress", "response": {"id": "resp_up", "object": "response", "status": "in_progress"}})
}

pub(crate) fn message_added(id: &str) -> Value {
    json!({"type": "response.output_item.added", "item": {"id": id, "type": "message", "role": "assistant",
        "status": "in_progress", "content": []}})
}

pub(crate) fn part_added(id: &str) -> Value {
    json!({"type": "response.content_part.added", "item_id": id, "part": {"type": "output_text", "text": ""}})
}

pub(crate) fn text(id: &str, delta: &str) -> Value {
    json!({"type": "response.output_text.delta", "item_id": id, "delta": delta})
}

pub(crate) fn message(id: &str, text: &str) -> Value {
    json!({"id": id, "type": "message", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]})
}

pub(crate) fn reasoning_added(id: &str) -> Value {
    json!({"type": "response.output_item.added", "item": {"id": id, "type": "reasoning", "summary": [], "content": [],
        "encrypted_content": "", "status": "in_progress"}})
}

pub(crate) fn reasoning_text(id: &str, delta: &str) -> Value {
    json!({"type": "response.reasoning_text.delta", "item_id": id, "delta": delta})
}

pub(crate) fn reasoning(id: &str, text: &str) -> Value {
    json!({"id": id, "type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}],
        "encrypted_content": ""})
}

pub(crate) fn call(id: &str, name: &str, arguments: &str) -> Value {
    json!({"id": id, "type": "function_call", "call_id": format!("call_{id}"), "name": name, "arguments": arguments,
        "status": "completed"})
}

pub(crate) fn call_added(id: &str, name: &str) -> Value {
    json!({"type": "response.output_item.added", "item": {"id": id, "type": "function_call",
        "call_id": format!("call_{id}"), "name": name, "arguments": "", "status": "in_progress"}})
}

pub(crate) fn arguments(id: &str, delta: &str) -> Value {
    json!({"type": "response.function_call_arguments.delta", "item_id": id, "delta": delta})
}

pub(crate) fn done(item: &Value) -> Value {
    json!({"type": "response.output_item.done", "item": item})
}

pub(crate) fn completed(output: &[Value]) -> Value {
    json!({"type": "response.completed", "response": {"id": "resp_up", "object": "response", "status": "completed",
        "model": "tiny", "output": output, "usage": {"input_tokens": 5, "output_tokens": 3, "total_tokens": 8}}})
}

/// A whole turn that says `said`.
pub(crate) fn turn(said: &str) -> Vec<Value> {
    let message = message("msg_1", said);
    vec![
        created(),
        in_progress(),
        message_added("msg_1"),
        part_added("msg_1"),
        text("msg_1", said),
        done(&message),
        completed(&[message]),
    ]
}

/// One frame, as it stands on the wire.
pub(crate) fn frame(event: &Value) -> String {
    let kind = event["type"].as_str().unwrap();
    format!("event: {kind}\ndata: {event}\n\n")
}

/// One word an event: its type without `response.`, and what tells it from its neighbours.
pub(crate) fn outline(events: &[Value]) -> Vec<String> {
    events.iter().map(word).collect()
}

fn word(event: &Value) -> String {
    let kind = event["type"].as_str().unwrap();
    let kind = kind
        .trim_start_matches("response.")
        .trim_start_matches("output_item.");
    let item = &event["item"];
    match (item["type"].as_str(), item["phase"].as_str()) {
        (Some(item), Some(phase)) => format!("{kind}({item}, {phase})"),
        (Some(item), None) => format!("{kind}({item})"),
        _ => kind.to_owned(),
    }
}
