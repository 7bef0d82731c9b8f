//! What must hold of every stream that leaves, whatever came in.

use std::collections::BTreeMap;

use pretty_assertions::assert_eq;
use serde_json::Value;

/// Checks the laws of one finished stream; returns its terminal response.
///
/// `sequence_number` counts 0…n-1; `created` comes first and one response id holds throughout; an item is added before
/// anything else is said of it and ended once, in order; deltas add up to what is ended; nothing follows the one
/// terminal event but `[DONE]`; its output is the items that ended (and, if it is incomplete, a call that was cut).
pub(super) fn check(events: &[Value]) -> Value {
    assert_eq!(
        events.last(),
        Some(&Value::from("[DONE]")),
        "the stream ends with [DONE]"
    );
    let events = &events[..events.len() - 1];
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number, "{event}");
    }
    assert_eq!(events[0]["type"], "response.created");
    let id = &events[0]["response"]["id"];
    let mut open: BTreeMap<u64, Value> = BTreeMap::new();
    let mut texts: BTreeMap<(u64, u64), String> = BTreeMap::new();
    let mut ended: Vec<Value> = Vec::new();
    for (number, event) in events.iter().enumerate() {
        let kind = event["type"].as_str().unwrap();
        if let Some(response) = event.get("response") {
            assert_eq!(&response["id"], id, "one id throughout");
        }
        let is_terminal = [
            "response.completed",
            "response.failed",
            "response.incomplete",
        ]
        .contains(&kind);
        assert_eq!(
            is_terminal,
            number == events.len() - 1,
            "one terminal event, the last: {kind}"
        );
        let Some(index) = event.get("output_index").and_then(Value::as_u64) else {
            continue;
        };
        match kind {
            "response.output_item.added" => {
                assert_eq!(index as usize, open.len(), "indices count up");
                open.insert(index, event["item"]["id"].clone());
            }
            "response.output_item.done" => {
                assert_eq!(
                    open.get(&index),
                    Some(&event["item"]["id"]),
                    "an added item ends under its id"
                );
                assert_eq!(index as usize, ended.len(), "items end in order");
                ended.push(event["item"].clone());
            }
            _ => {
                assert_eq!(
                    open.get(&index),
                    Some(&event["item_id"]),
                    "{kind} of an added item"
                );
                assert!(index as usize >= ended.len(), "{kind} after its item's end");
                conserve(kind, index, event, &mut texts);
            }
        }
    }
    let response = events.last().unwrap()["response"].clone();
    let mut output = response["output"].as_array().unwrap().clone();
    if response["status"] == "incomplete" && output.len() > ended.len() {
        let cut = output.pop().unwrap();
        assert_eq!(cut["status"], "incomplete");
    }
    assert_eq!(output, ended, "the final output is what was streamed");
    response
}

/// Deltas of a part, or of arguments, add up to what its end says.
fn conserve(kind: &str, index: u64, event: &Value, texts: &mut BTreeMap<(u64, u64), String>) {
    let part = event
        .get("content_index")
        .and_then(Value::as_u64)
        .unwrap_or(0);
    if let Some(delta) = event.get("delta").and_then(Value::as_str) {
        texts.entry((index, part)).or_default().push_str(delta);
    }
    let field = match kind {
        "response.output_text.done" | "response.reasoning_text.done" => "text",
        "response.function_call_arguments.done" => "arguments",
        "response.custom_tool_call_input.done" => "input",
        _ => return,
    };
    let streamed = texts.get(&(index, part)).map_or("", String::as_str);
    assert_eq!(event[field], streamed, "{kind}");
}
