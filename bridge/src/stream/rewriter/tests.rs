use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::*;
use crate::{
    config::Policy,
    stream::guard::Guard,
    translate::{Capabilities, Dialect, normalize},
};

mod calls;
mod endings;
mod laws;
mod properties;
mod recorded;
mod text;

/// A request with a plain function, a namespaced one and a custom one.
pub(super) fn request() -> Value {
    json!({"model": "m", "stream": true, "input": "hi", "tools": [
        {"type": "function", "name": "exec", "parameters": {"type": "object"}},
        {"type": "namespace", "name": "mcp__desk", "tools": [
            {"type": "function", "name": "find", "parameters": {"type": "object"}}]},
        {"type": "custom", "name": "apply_patch", "description": "edits"},
        {"type": "tool_search", "execution": "client", "description": "finds", "parameters": {"type": "object"}},
    ]})
}

pub(super) fn rewriter(request: Value, repair: bool) -> Rewriter {
    let upstream = Capabilities {
        dialect: if repair {
            Dialect::LlamaCpp
        } else {
            Dialect::Responses
        },
        vision: true,
        parallel_calls: true,
        custom_grammar: false,
    };
    let Value::Object(request) = request else {
        panic!("a request is an object")
    };
    let translation = normalize(request, &Policy::default(), &upstream)
        .unwrap()
        .translation;
    let settings = Settings {
        phase: PhasePolicy::Stream,
        repair,
        context: None,
        max_held_bytes: 1 << 20,
        request_id: "req_1".to_owned(),
        now_unix: 1,
        clock: || 2,
        ids: Ids::seeded(1),
    };
    Rewriter::new(settings, translation)
}

/// Feeds `events` as frames.
pub(super) fn feed(rewriter: &mut Rewriter, events: &[Value]) {
    let mut guard = Guard::new(1 << 20);
    for event in events {
        let frame = format!("data: {event}\n\n");
        guard
            .push(frame.into(), |frame| rewriter.handle(&frame))
            .unwrap();
    }
}

/// The events sent so far; `[DONE]` shows as a string.
pub(super) fn sent(rewriter: &mut Rewriter) -> Vec<Value> {
    let bytes = rewriter.take();
    let text = std::str::from_utf8(&bytes).unwrap();
    text.split_terminator("\n\n")
        .map(|frame| {
            let incoming = incoming::read(&format!("{frame}\n\n"))
                .unwrap()
                .data
                .into_owned();
            serde_json::from_str(&incoming).unwrap_or(Value::String(incoming))
        })
        .collect()
}

/// One word an event: its type without `response.`, and what tells it from its neighbours.
pub(super) fn outline(events: &[Value]) -> Vec<String> {
    events
        .iter()
        .map(|event| {
            let Some(kind) = event["type"].as_str() else {
                return event.as_str().unwrap_or("?").to_owned();
            };
            let kind = kind
                .trim_start_matches("response.")
                .trim_start_matches("output_item.");
            let item = &event["item"];
            match item["type"].as_str() {
                Some(item_type) => {
                    let phase = item["phase"]
                        .as_str()
                        .map(|phase| format!(", {phase}"))
                        .unwrap_or_default();
                    format!("{kind}({item_type}{phase})")
                }
                None => kind.to_owned(),
            }
        })
        .collect()
}

fn created() -> Value {
    json!({"type": "response.created", "response": {"id": "resp_1", "object": "response", "status": "in_progress"}})
}

fn message_added(id: &str) -> Value {
    json!({"type": "response.output_item.added", "item": {"id": id, "type": "message", "role": "assistant", "status": "in_progress", "content": []}})
}

fn part_added(id: &str) -> Value {
    json!({"type": "response.content_part.added", "item_id": id, "part": {"type": "output_text", "text": ""}})
}

fn text(id: &str, delta: &str) -> Value {
    json!({"type": "response.output_text.delta", "item_id": id, "delta": delta})
}

fn message_done(id: &str, text: &str) -> Value {
    json!({"type": "response.output_item.done", "item": message(id, text)})
}

fn message(id: &str, text: &str) -> Value {
    json!({"id": id, "type": "message", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]})
}

fn call(id: &str, name: &str, arguments: &str) -> Value {
    json!({"id": id, "type": "function_call", "call_id": format!("call_{id}"), "name": name, "arguments": arguments, "status": "completed"})
}

fn call_added(id: &str, name: &str) -> Value {
    json!({"type": "response.output_item.added", "item": call(id, name, "")})
}

fn arguments(id: &str, delta: &str) -> Value {
    json!({"type": "response.function_call_arguments.delta", "item_id": id, "delta": delta})
}

fn item_done(item: &Value) -> Value {
    json!({"type": "response.output_item.done", "item": item})
}

fn completed(output: &[Value]) -> Value {
    json!({"type": "response.completed", "response": {"id": "resp_1", "object": "response", "status": "completed",
        "output": output, "usage": {"input_tokens": 5, "output_tokens": 3, "total_tokens": 8}}})
}

fn failed_with(events: &[Value]) -> (Value, Value) {
    let failed = &events[events.len() - 2];
    assert_eq!(failed["type"], "response.failed", "{failed}");
    assert_eq!(events.last(), Some(&json!("[DONE]")));
    (
        failed["response"]["error"]["code"].clone(),
        failed["response"]["error"]["message"].clone(),
    )
}
