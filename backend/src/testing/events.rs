//! What holds for every stream of Responses events, and streams written short.

use std::collections::BTreeMap;

use protocol::{event::Event, object::str_or_empty};
use serde_json::{Value, json};

/// One item as its events tell it.
#[derive(Debug, Default)]
struct Told {
    added: Value,
    /// Deltas, put together.
    text: String,
    /// Events in the order in which they came.
    kinds: Vec<String>,
    done: Option<Value>,
}

/// The laws of the Responses API.
///
/// # Panics
/// With the stream, if one is broken.
pub fn keeps_the_laws(events: &[Event]) {
    let story = lines(events).join("\n");
    let kind = |event: &Event| event["type"].as_str().unwrap_or_default().to_owned();
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number, "{story}");
    }
    assert_eq!(kind(&events[0]), "response.created");
    assert_eq!(kind(&events[1]), "response.in_progress");
    let terminal = |event: &Event| {
        [
            "response.completed",
            "response.incomplete",
            "response.failed",
        ]
        .contains(&kind(event).as_str())
    };
    assert_eq!(
        events.iter().position(terminal),
        Some(events.len() - 1),
        "{story}"
    );
    let id = &events[0]["response"]["id"];
    assert!(events.iter().all(|event| {
        event
            .get("response")
            .is_none_or(|response| &response["id"] == id)
    }));

    let mut items: BTreeMap<u64, Told> = BTreeMap::new();
    let mut done_order = Vec::new();
    for event in events {
        let Some(index) = event.get("output_index").and_then(Value::as_u64) else {
            continue;
        };
        let kind = kind(event);
        if kind == "response.output_item.added" {
            assert_eq!(index, items.len() as u64, "{story}");
            let added = event["item"].clone();
            items.insert(
                index,
                Told {
                    added,
                    ..Told::default()
                },
            );
            continue;
        }
        let item = items
            .get_mut(&index)
            .unwrap_or_else(|| panic!("{index} was not added\n{story}"));
        assert!(item.done.is_none(), "after the end of {index}\n{story}");
        if let Some(id) = event.get("item_id") {
            assert_eq!(id, &item.added["id"], "{story}");
        }
        if let Some(delta) = event.get("delta").and_then(Value::as_str) {
            assert!(!delta.is_empty(), "{story}");
            item.text.push_str(delta);
        }
        if kind == "response.output_item.done" {
            item.done = Some(event["item"].clone());
            done_order.push(index);
        } else if item.kinds.last() != Some(&kind) {
            item.kinds.push(kind);
        }
    }
    assert!(done_order.is_sorted(), "{story}");
    let ended: Vec<Value> = items
        .values()
        .filter_map(|item| item.done.clone())
        .collect();
    assert_eq!(response(events)["output"], Value::from(ended), "{story}");
    let failed = response(events)["status"] == "failed";
    for (index, item) in &items {
        let Some(done) = &item.done else {
            assert!(failed, "{index} was left open\n{story}");
            continue;
        };
        told(item, done, &story);
        let last = *index == items.len() as u64 - 1;
        let cut = done["status"] == "incomplete";
        assert!(
            !cut || (last && response(events)["status"] == "incomplete"),
            "{story}"
        );
    }
}

/// An item that ended agrees with its own events.
fn told(item: &Told, done: &Value, story: &str) {
    for key in ["id", "type", "call_id", "name"] {
        assert_eq!(done.get(key), item.added.get(key), "{story}");
    }
    let content = |part: Value| assert_eq!(done["content"], json!([part]), "{story}");
    let kinds = match done["type"].as_str() {
        Some("message") => {
            assert!(done["phase"].is_string(), "{story}");
            content(
                json!({"type": "output_text", "text": item.text, "annotations": [], "logprobs": done["content"][0]["logprobs"]}),
            );
            vec![
                "content_part.added",
                "output_text.delta",
                "output_text.done",
                "content_part.done",
            ]
        }
        Some("reasoning") => {
            content(json!({"type": "reasoning_text", "text": item.text}));
            vec![
                "content_part.added",
                "reasoning_text.delta",
                "reasoning_text.done",
                "content_part.done",
            ]
        }
        Some("function_call") => {
            assert_eq!(done["arguments"], item.text, "{story}");
            match (item.text.is_empty(), done["status"].as_str()) {
                (false, Some("completed")) => vec![
                    "function_call_arguments.delta",
                    "function_call_arguments.done",
                ],
                (true, Some("completed")) => vec!["function_call_arguments.done"],
                (false, _) => vec!["function_call_arguments.delta"],
                (true, _) => vec![],
            }
        }
        other => panic!("{other:?}\n{story}"),
    };
    let expected: Vec<String> = kinds
        .iter()
        .map(|kind| format!("response.{kind}"))
        .collect();
    assert_eq!(item.kinds, expected, "{story}");
}

/// What a stream says, short: one line an event.
pub fn lines(events: &[Event]) -> Vec<String> {
    let short = |event: &Event| {
        let mut line = str_or_empty(event, "type")
            .trim_start_matches("response.")
            .to_owned();
        if let Some(index) = event.get("output_index") {
            line += &format!(" {index}");
        }
        if let Some(Value::Object(item)) = event.get("item") {
            for key in ["type", "status", "name", "arguments", "phase"] {
                if let Some(value) = item.get(key).and_then(Value::as_str) {
                    line += &format!(" {key}={value}");
                }
            }
        }
        for key in ["delta", "text", "arguments"] {
            if let Some(text) = event.get(key).and_then(Value::as_str) {
                line += &format!(" {text:?}");
            }
        }
        if let Some(Value::Object(part)) = event.get("part") {
            let (kind, text) = (str_or_empty(part, "type"), str_or_empty(part, "text"));
            line += &format!(" {kind} {text:?}");
        }
        if let Some(progress) = event.get("prompt_progress") {
            line += &format!(" {progress}");
        }
        line
    };
    events.iter().map(short).collect()
}

/// As [`lines`], neighbouring deltas of one item joined.
pub fn joined(events: &[Event]) -> Vec<String> {
    let mut out: Vec<Event> = Vec::new();
    for event in events {
        if let (Some(delta), Some(last)) =
            (event.get("delta").and_then(Value::as_str), out.last_mut())
            && last.get("type") == event.get("type")
            && last.get("item_id") == event.get("item_id")
        {
            let longer = str_or_empty(last, "delta").to_owned() + delta;
            last.insert("delta".into(), longer.into());
            continue;
        }
        out.push(event.clone());
    }
    lines(&out)
}

/// The resource of the terminal event; null for a stream without events.
pub fn response(events: &[Event]) -> &Value {
    events
        .last()
        .and_then(|event| event.get("response"))
        .unwrap_or(&Value::Null)
}
