//! Where instructions go. Many chat templates know one system message, at the start, and turns that alternate; Codex
//! opens with several developer and user messages. [`merge`] makes of
//!
//! ```text
//! instructions "A"   input: developer "B", developer "C", user "env", user "hi", …, developer "D", …
//! ```
//!
//! the history `system "A\n\nB\n\nC", user "env" "hi", …, user "D", …`. Only the end of a history can change by that
//! when the next turn is appended, so that a prefix cache holds.

use protocol::{ItemKind, Object};
use serde_json::{Value, json};

/// Merges the leading developer and system messages into one, turns later ones into user messages, and joins user
/// messages that follow each other.
pub(super) fn merge(instructions: Option<&str>, items: Vec<Value>) -> Vec<Value> {
    let mut texts: Vec<String> = instructions.map(str::to_owned).into_iter().collect();
    let leading = items
        .iter()
        .map_while(leading_text)
        .inspect(|text| texts.push(text.clone()))
        .count();
    texts.retain(|text| !text.is_empty());

    let mut merged = Vec::with_capacity(items.len() + 1);
    if !texts.is_empty() {
        merged.push(json!({
            "type": "message",
            "role": "system",
            "content": [{"type": "input_text", "text": texts.join("\n\n")}],
        }));
    }
    for item in items.into_iter().skip(leading) {
        push_turn(&mut merged, item);
    }
    merged
}

/// Bytes of the developer and system messages that open the history.
pub(super) fn leading_bytes(items: &[Value]) -> usize {
    items
        .iter()
        .map_while(leading_text)
        .map(|text| text.len())
        .sum()
}

/// The text of a developer or system message; none for anything else, and for one that holds more than text.
fn leading_text(item: &Value) -> Option<String> {
    let message = item.as_object().filter(|item| is_message(item, &SYSTEM))?;
    match message.get("content")? {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => {
            let texts: Option<Vec<&str>> = parts
                .iter()
                .map(|part| {
                    (part.get("type")?.as_str()? == "input_text")
                        .then(|| part.get("text")?.as_str())
                        .flatten()
                })
                .collect();
            Some(texts?.join("\n\n"))
        }
        _ => None,
    }
}

fn push_turn(merged: &mut Vec<Value>, mut item: Value) {
    let Some(message) = item.as_object_mut() else {
        merged.push(item);
        return;
    };
    if is_message(message, &SYSTEM) {
        message.insert("role".into(), "user".into());
    }
    if is_message(message, &["user"])
        && let Some(previous) = merged.last_mut().and_then(Value::as_object_mut)
        && is_message(previous, &["user"])
    {
        let mut parts = parts(previous);
        parts.extend(self::parts(message));
        previous.insert("content".into(), parts.into());
        return;
    }
    merged.push(item);
}

const SYSTEM: [&str; 2] = ["developer", "system"];

fn is_message(item: &Object, roles: &[&str]) -> bool {
    ItemKind::of(item) == ItemKind::Message
        && item
            .get("role")
            .and_then(Value::as_str)
            .is_some_and(|role| roles.contains(&role))
}

fn parts(message: &mut Object) -> Vec<Value> {
    match message.get_mut("content").map(Value::take) {
        Some(Value::Array(parts)) => parts,
        Some(Value::String(text)) => vec![json!({"type": "input_text", "text": text})],
        _ => Vec::new(),
    }
}
