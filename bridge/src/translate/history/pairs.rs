//! Calls and their outputs, paired. Templates want each output right after its call, and none missing:
//!
//! ```text
//! call a, call b, message, output b, output a   →   call a, call b, output a, output b, message
//!                      (template of one call)   →   call a, output a, call b, output b, message
//! ```

use std::collections::{HashMap, VecDeque};

use protocol::{ItemKind, object::str_or_empty};
use serde_json::{Value, json};

use super::{super::Counts, user_message};

/// Pairs the calls of a history. A call that never got an output is answered as Codex answers an interrupted one; an
/// output without its call is kept as text.
pub(super) fn pair(items: Vec<Value>, parallel: bool, counts: &mut Counts) -> Vec<Value> {
    let mut answers = answers(&items);
    let mut items: Vec<Option<Value>> = items.into_iter().map(Some).collect();
    let mut paired = Vec::with_capacity(items.len());
    let mut index = 0;
    while index < items.len() {
        let Some(item) = items[index].take() else {
            index += 1;
            continue;
        };
        index += 1;
        match kind(&item) {
            ItemKind::FunctionCall => {
                let mut outputs = vec![output(
                    &item,
                    answers.remove(&(index - 1)),
                    &mut items,
                    counts,
                )];
                paired.push(item);
                while parallel
                    && let Some(call) = items
                        .get_mut(index)
                        .and_then(|next| next.take_if(|next| kind(next) == ItemKind::FunctionCall))
                {
                    outputs.push(output(&call, answers.remove(&index), &mut items, counts));
                    paired.push(call);
                    index += 1;
                }
                paired.append(&mut outputs);
            }
            ItemKind::FunctionCallOutput => {
                counts.mend("output without a call");
                paired.push(as_text(item));
            }
            _ => paired.push(item),
        }
    }
    paired
}

/// The index of each call's output, by the index of the call: the first later one with its id that is still free.
fn answers(items: &[Value]) -> HashMap<usize, usize> {
    let mut waiting: HashMap<&str, VecDeque<usize>> = HashMap::new();
    let mut answers = HashMap::new();
    for (index, item) in items.iter().enumerate() {
        let id = item.get("call_id").and_then(Value::as_str);
        match (kind(item), id) {
            (ItemKind::FunctionCall, Some(id)) => waiting.entry(id).or_default().push_back(index),
            (ItemKind::FunctionCallOutput, Some(id)) => {
                if let Some(call) = waiting.get_mut(id).and_then(VecDeque::pop_front) {
                    answers.insert(call, index);
                }
            }
            _ => {}
        }
    }
    answers
}

fn output(
    call: &Value,
    answer: Option<usize>,
    items: &mut [Option<Value>],
    counts: &mut Counts,
) -> Value {
    answer
        .and_then(|index| items[index].take())
        .unwrap_or_else(|| {
            counts.mend("call without an output");
            json!({
                "type": "function_call_output",
                "call_id": call.get("call_id"),
                "output": "aborted: this call got no output",
            })
        })
}

/// A stray output as what the user might have pasted.
fn as_text(output: Value) -> Value {
    let Value::Object(mut output) = output else {
        return output;
    };
    let id = str_or_empty(&output, "call_id").to_owned();
    let intro = format!("[output of a tool call that is not part of this conversation: {id}]");
    let mut parts = vec![json!({"type": "input_text", "text": intro})];
    match output.shift_remove("output") {
        Some(Value::Array(more)) => parts.extend(more),
        Some(Value::String(text)) => parts.push(json!({"type": "input_text", "text": text})),
        _ => {}
    }
    user_message(parts.into())
}

fn kind(item: &Value) -> ItemKind {
    item.as_object().map_or(ItemKind::Other, ItemKind::of)
}
