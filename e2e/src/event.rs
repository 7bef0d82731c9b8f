//! Responses events as a native server streams them, named after the events; what the scripted upstream says.
//!
//! An `ev_…` function gives the whole life of one output item, without the numbers that only a stream can give
//! (`sequence_number`, `output_index`); [`crate::script::Reply`] fills those in.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

/// The events of one output item, from `output_item.added` to `output_item.done`.
#[derive(Debug, Clone)]
pub struct Lifecycle {
    pub events: Vec<Value>,
    /// The item as its `done` event carries it.
    pub item: Value,
}

/// An assistant message, streamed word by word.
pub fn ev_message(text: &str) -> Lifecycle {
    let id = fresh("msg");
    let part = json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []});
    let place = |kind: &str| json!({"type": kind, "item_id": id, "content_index": 0});
    let with = |mut event: Value, key: &str, value: Value| {
        event[key] = value;
        event
    };
    let mut events = vec![
        added(
            &json!({"type": "message", "id": id, "role": "assistant", "status": "in_progress", "content": []}),
        ),
        with(
            place("response.content_part.added"),
            "part",
            json!({"type": "output_text", "text": "", "annotations": [], "logprobs": []}),
        ),
    ];
    for word in text.split_inclusive(' ') {
        events.push(with(
            place("response.output_text.delta"),
            "delta",
            json!(word),
        ));
    }
    events.push(with(
        place("response.output_text.done"),
        "text",
        json!(text),
    ));
    events.push(with(
        place("response.content_part.done"),
        "part",
        part.clone(),
    ));
    finish(
        events,
        json!({"type": "message", "id": id, "role": "assistant", "status": "completed", "content": [part]}),
    )
}

/// A call of a function tool, its arguments in two pieces.
pub fn ev_function_call(call_id: &str, name: &str, arguments: &Value) -> Lifecycle {
    ev_function_call_text(call_id, name, &arguments.to_string())
}

/// The same with arguments that need not be JSON.
pub fn ev_function_call_text(call_id: &str, name: &str, arguments: &str) -> Lifecycle {
    let id = fresh("fc");
    let call = |status: &str, arguments: &str| json!({"type": "function_call", "id": id, "call_id": call_id, "name": name, "arguments": arguments, "status": status});
    let half = arguments
        .char_indices()
        .nth(arguments.chars().count() / 2)
        .map_or(0, |(at, _)| at);
    let (head, tail) = arguments.split_at(half);
    let mut events = vec![added(&call("in_progress", ""))];
    for delta in [head, tail] {
        events.push(json!({"type": "response.function_call_arguments.delta", "item_id": id, "delta": delta}));
    }
    events.push(json!({"type": "response.function_call_arguments.done", "item_id": id, "arguments": arguments}));
    finish(events, call("completed", arguments))
}

/// Raw thinking, as local models give it.
pub fn ev_reasoning(text: &str) -> Lifecycle {
    let id = fresh("rs");
    let events = vec![
        added(&json!({"type": "reasoning", "id": id, "summary": [], "content": []})),
        json!({"type": "response.reasoning_text.delta", "item_id": id, "content_index": 0, "delta": text}),
        json!({"type": "response.reasoning_text.done", "item_id": id, "content_index": 0, "text": text}),
    ];
    finish(
        events,
        json!({"type": "reasoning", "id": id, "summary": [], "content": [{"type": "reasoning_text", "text": text}]}),
    )
}

/// A new id; unique within the process, so that no two items of a history share one.
pub fn fresh(prefix: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("{prefix}_e2e{:08}", NEXT.fetch_add(1, Ordering::Relaxed))
}

fn added(item: &Value) -> Value {
    json!({"type": "response.output_item.added", "item": item})
}

fn finish(mut events: Vec<Value>, item: Value) -> Lifecycle {
    events.push(json!({"type": "response.output_item.done", "item": item}));
    Lifecycle { events, item }
}
