use pretty_assertions::assert_eq;
use serde_json::json;

use super::*;
use crate::{
    config::Policy,
    stream::guard::Guard,
    translate::{Capabilities, Dialect, normalize},
};

mod laws;
mod properties;
mod recorded;

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
        phase: Some(PhasePolicy::Stream),
        repair,
        context: None,
        max_held_bytes: 1 << 20,
        request_id: "req_1".to_owned(),
        now_unix: 1,
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

#[test]
fn text_flows_at_once_and_only_its_end_waits_for_the_phase() {
    let mut rewriter = rewriter(request(), true);
    feed(
        &mut rewriter,
        &[
            created(),
            message_added("m"),
            part_added("m"),
            text("m", "a"),
        ],
    );
    assert_eq!(
        outline(&sent(&mut rewriter)),
        [
            "created",
            "added(message)",
            "content_part.added",
            "output_text.delta"
        ]
    );
    feed(&mut rewriter, &[message_done("m", "a")]);
    assert_eq!(outline(&sent(&mut rewriter)), [""; 0]);
    feed(&mut rewriter, &[call_added("f", "exec")]);
    assert_eq!(
        outline(&sent(&mut rewriter)),
        [
            "output_text.done",
            "content_part.done",
            "done(message, commentary)",
            "added(function_call)"
        ]
    );
}

#[test]
fn call_inside_open_message_waits_for_its_done() {
    let mut rewriter = rewriter(request(), true);
    feed(
        &mut rewriter,
        &[
            created(),
            message_added("m"),
            part_added("m"),
            text("m", "a"),
            call_added("f", "mcp__desk__find"),
            arguments("f", "{}"),
        ],
    );
    assert_eq!(
        outline(&sent(&mut rewriter)).last().unwrap(),
        "output_text.delta"
    );
    let call = call("f", "mcp__desk__find", "{}");
    feed(
        &mut rewriter,
        &[
            message_done("m", "a"),
            item_done(&call),
            completed(&[message("m", "a"), call.clone()]),
        ],
    );
    let events = sent(&mut rewriter);
    assert_eq!(
        outline(&events),
        [
            "output_text.done",
            "content_part.done",
            "done(message, commentary)",
            "added(function_call)",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "done(function_call)",
            "completed",
            "[DONE]",
        ]
    );
    let restored = json!({"id": "f", "type": "function_call", "call_id": "call_f", "name": "find", "arguments": "{}",
        "status": "completed", "namespace": "mcp__desk"});
    assert_eq!(events[6]["item"], restored);
    assert_eq!(events[5]["name"], "find");
    assert_eq!(events[7]["response"]["output"][1], restored);
    assert_eq!(events[7]["response"]["output"][0]["phase"], "commentary");
    assert_eq!(events[7]["response"]["tools"], request()["tools"]);
}

#[test]
fn a_custom_call_is_unwrapped_as_it_comes() {
    let mut rewriter = rewriter(request(), true);
    let input = "*** Begin Patch\n+\"é\"\n";
    let whole = json!({"input": input}).to_string();
    let (first, second) = whole.split_at(20);
    feed(
        &mut rewriter,
        &[
            created(),
            call_added("f", "apply_patch"),
            arguments("f", first),
        ],
    );
    let events = sent(&mut rewriter);
    assert_eq!(
        outline(&events),
        [
            "created",
            "added(custom_tool_call)",
            "custom_tool_call_input.delta"
        ]
    );
    assert_eq!(
        events[1]["item"],
        json!({"id": "f", "type": "custom_tool_call", "call_id": "call_f", "name": "apply_patch", "status": "completed", "input": ""})
    );
    let call = call("f", "apply_patch", &whole);
    feed(
        &mut rewriter,
        &[arguments("f", second), item_done(&call), completed(&[call])],
    );
    let rest = sent(&mut rewriter);
    assert_eq!(
        outline(&rest),
        [
            "custom_tool_call_input.delta",
            "custom_tool_call_input.done",
            "done(custom_tool_call)",
            "completed",
            "[DONE]"
        ]
    );
    let streamed = format!(
        "{}{}",
        events[2]["delta"].as_str().unwrap(),
        rest[0]["delta"].as_str().unwrap()
    );
    assert_eq!(streamed, input);
    assert_eq!(rest[1]["input"], input);
    assert_eq!(rest[3]["response"]["output"][0], rest[2]["item"]);
}

#[test]
fn text_where_an_object_was_expected_is_given_whole() {
    let mut rewriter = rewriter(request(), false);
    let call = call("f", "apply_patch", "*** Begin");
    feed(
        &mut rewriter,
        &[
            created(),
            call_added("f", "apply_patch"),
            arguments("f", "*** Be"),
            arguments("f", "gin"),
            item_done(&call),
            completed(&[call]),
        ],
    );
    let events = sent(&mut rewriter);
    assert_eq!(events[2]["delta"], "*** Begin");
    assert_eq!(events[4]["item"]["input"], "*** Begin");
}

#[test]
fn reasoning_ends_before_a_call_begins_even_when_indices_clash() {
    let mut rewriter = rewriter(request(), false);
    let reasoning = json!({"type": "reasoning", "summary": []});
    let call = json!({"type": "function_call", "call_id": "c", "name": "exec", "arguments": "{}"});
    feed(
        &mut rewriter,
        &[
            created(),
            json!({"type": "response.output_item.added", "output_index": 0, "item": reasoning}),
            json!({"type": "response.output_item.added", "output_index": 0, "item": call}),
            json!({"type": "response.output_item.done", "output_index": 0, "item": call}),
            json!({"type": "response.output_item.done", "output_index": 1, "item": reasoning}),
            completed(&[call, reasoning]),
        ],
    );
    let events = sent(&mut rewriter);
    assert_eq!(
        outline(&events),
        [
            "created",
            "added(reasoning)",
            "done(reasoning)",
            "added(function_call)",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "done(function_call)",
            "completed",
            "[DONE]"
        ]
    );
    assert_eq!(events[3]["output_index"], 1);
    let kinds: Vec<&Value> = events[7]["response"]["output"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["type"])
        .collect();
    assert_eq!(kinds, ["reasoning", "function_call"]);
}

#[test]
fn truncation_reported_as_success_becomes_incomplete_and_a_cut_call_is_never_ended() {
    let mut body = request();
    body["max_output_tokens"] = json!(3);
    let mut rewriter = rewriter(body, true);
    let cut = call("f", "exec", "{\"cmd\":\"l");
    feed(
        &mut rewriter,
        &[
            created(),
            call_added("f", "exec"),
            arguments("f", "{\"cmd\":\"l"),
            item_done(&cut),
            completed(std::slice::from_ref(&cut)),
        ],
    );
    let events = sent(&mut rewriter);
    assert_eq!(
        outline(&events),
        [
            "created",
            "added(function_call)",
            "function_call_arguments.delta",
            "incomplete",
            "[DONE]"
        ]
    );
    let response = &events[3]["response"];
    assert_eq!(response["status"], "incomplete");
    assert_eq!(
        response["incomplete_details"],
        json!({"reason": "max_output_tokens"})
    );
    assert_eq!(response["output"][0]["status"], "incomplete");
}

#[test]
fn a_call_whose_json_was_closed_for_it_at_the_limit_is_cut_too() {
    let mut body = request();
    body["max_output_tokens"] = json!(3);
    let mut rewriter = rewriter(body, true);
    let healed = call("f", "exec", "{\"cmd\":\"rm -r /tmp\"}");
    feed(
        &mut rewriter,
        &[
            created(),
            call_added("f", "exec"),
            arguments("f", "{\"cmd\":\"rm -r /tmp"),
            item_done(&healed),
            completed(&[healed]),
        ],
    );
    let events = sent(&mut rewriter);
    assert!(!outline(&events).contains(&"done(function_call)".to_owned()));
    let response = laws::check(&events);
    assert_eq!(response["output"][0]["status"], "incomplete");
    assert_eq!(response["output"][0]["name"], "exec");
}

#[test]
fn broken_arguments_of_a_call_that_was_not_cut_reach_codex() {
    let mut rewriter = rewriter(request(), true);
    let broken = call("f", "exec", "{\"cmd\":");
    feed(
        &mut rewriter,
        &[
            created(),
            call_added("f", "exec"),
            arguments("f", "{\"cmd\":"),
            item_done(&broken),
            completed(std::slice::from_ref(&broken)),
        ],
    );
    assert_eq!(outline(&sent(&mut rewriter))[4], "done(function_call)");
}

#[test]
fn a_bare_error_line_becomes_the_failure_it_reports() {
    let mut rewriter = rewriter(request(), true);
    feed(
        &mut rewriter,
        &[
            created(),
            json!({"error": {"code": 500, "message": "parse failed", "type": "server_error"}}),
        ],
    );
    let events = sent(&mut rewriter);
    assert_eq!(
        failed_with(&events),
        (json!("server_error"), json!("parse failed (request req_1)"))
    );
}

#[test]
fn a_stream_without_an_end_fails_once_with_the_finished_items() {
    let mut rewriter = rewriter(request(), true);
    feed(
        &mut rewriter,
        &[
            created(),
            message_added("m"),
            part_added("m"),
            text("m", "a"),
            message_done("m", "a"),
        ],
    );
    rewriter.finish();
    rewriter.finish();
    let events = sent(&mut rewriter);
    assert_eq!(
        events
            .iter()
            .filter(|event| event["type"] == "response.failed")
            .count(),
        1
    );
    let failed = &events[events.len() - 2]["response"];
    assert_eq!(failed["output"].as_array().unwrap().len(), 1);
    assert_eq!(failed["output"][0]["phase"], "final_answer");
}

#[test]
fn the_first_terminal_event_wins() {
    let mut rewriter = rewriter(request(), false);
    feed(
        &mut rewriter,
        &[
            created(),
            completed(&[]),
            text("m", "late"),
            json!({"type": "response.failed", "response": {"status": "failed"}}),
        ],
    );
    assert_eq!(
        outline(&sent(&mut rewriter)),
        ["created", "completed", "[DONE]"]
    );
}

#[test]
fn a_heartbeat_before_the_first_event_creates_the_response_and_keeps_its_id() {
    let mut rewriter = rewriter(request(), true);
    rewriter.heartbeat();
    rewriter.heartbeat();
    feed(&mut rewriter, &[created(), completed(&[])]);
    let events = sent(&mut rewriter);
    assert_eq!(
        outline(&events),
        [
            "created",
            "in_progress",
            "in_progress",
            "completed",
            "[DONE]"
        ]
    );
    let ids: Vec<&Value> = events[..4]
        .iter()
        .map(|event| &event["response"]["id"])
        .collect();
    assert!(
        ids.iter().all(|id| *id == ids[0]) && ids[0] != "resp_1",
        "{ids:?}"
    );
    assert_eq!(events[2]["sequence_number"], 2);
}

#[test]
fn a_second_call_where_one_is_allowed_is_left_out() {
    let mut body = request();
    body["parallel_tool_calls"] = json!(false);
    let mut rewriter = rewriter(body, true);
    let (first, second) = (call("f", "exec", "{}"), call("g", "exec", "{}"));
    feed(
        &mut rewriter,
        &[
            created(),
            call_added("f", "exec"),
            arguments("f", "{}"),
            call_added("g", "exec"),
            arguments("g", "{}"),
            item_done(&first),
            item_done(&second),
            completed(&[first.clone(), second.clone()]),
        ],
    );
    let events = sent(&mut rewriter);
    assert_eq!(
        outline(&events)
            .iter()
            .filter(|word| *word == "done(function_call)")
            .count(),
        1
    );
    assert_eq!(
        events[events.len() - 2]["response"]["output"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(rewriter.repairs().0, 1);
}

#[test]
fn held_whole_a_message_bears_its_phase_from_the_start() {
    let mut rewriter = rewriter(request(), true);
    rewriter.settings.phase = Some(PhasePolicy::Hold);
    feed(
        &mut rewriter,
        &[
            created(),
            message_added("m"),
            part_added("m"),
            text("m", "a"),
            message_done("m", "a"),
        ],
    );
    assert_eq!(outline(&sent(&mut rewriter)), ["created"]);
    feed(&mut rewriter, &[call_added("f", "exec")]);
    assert_eq!(
        outline(&sent(&mut rewriter)),
        [
            "added(message, commentary)",
            "content_part.added",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "done(message, commentary)",
            "added(function_call)"
        ]
    );
}

#[test]
fn a_given_phase_wins_and_holds_nothing() {
    let mut rewriter = rewriter(request(), false);
    let mut given = message("m", "a");
    given["phase"] = json!("final_answer");
    feed(
        &mut rewriter,
        &[
            created(),
            message_added("m"),
            item_done(&given),
            call_added("f", "exec"),
        ],
    );
    let outline = outline(&sent(&mut rewriter));
    assert!(
        outline.contains(&"done(message, final_answer)".to_owned()),
        "{outline:?}"
    );
}

#[test]
fn an_answer_in_a_demanded_format_is_never_commentary() {
    let mut body = request();
    body["text"] = json!({"format": {"type": "json_object"}});
    let mut rewriter = rewriter(body, false);
    feed(
        &mut rewriter,
        &[
            created(),
            message_added("m"),
            message_done("m", "{}"),
            call_added("f", "exec"),
        ],
    );
    assert!(outline(&sent(&mut rewriter)).contains(&"done(message, final_answer)".to_owned()));
}

#[test]
fn a_content_index_counted_per_token_becomes_the_parts_own() {
    let mut rewriter = rewriter(request(), false);
    let counted = |n: u64| json!({"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "content_index": n, "delta": "x"});
    feed(
        &mut rewriter,
        &[
            created(),
            message_added("m"),
            part_added("m"),
            counted(0),
            counted(1),
            counted(2),
        ],
    );
    let events = sent(&mut rewriter);
    assert!(
        events[3..].iter().all(|event| event["content_index"] == 0),
        "{events:?}"
    );
}

#[test]
fn items_known_only_by_the_terminal_event_are_streamed_before_it() {
    let mut rewriter = rewriter(request(), true);
    feed(
        &mut rewriter,
        &[
            created(),
            completed(&[message("m", "hello"), call("f", "exec", "{}")]),
        ],
    );
    assert_eq!(
        outline(&sent(&mut rewriter)),
        [
            "created",
            "added(message)",
            "content_part.added",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "done(message, commentary)",
            "added(function_call)",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "done(function_call)",
            "completed",
            "[DONE]"
        ]
    );
}

#[test]
fn a_call_that_never_ended_fails_the_response() {
    let mut rewriter = rewriter(request(), false);
    feed(
        &mut rewriter,
        &[
            created(),
            call_added("f", "exec"),
            arguments("f", "{}"),
            completed(&[]),
        ],
    );
    let (code, message) = failed_with(&sent(&mut rewriter));
    assert_eq!(code, "server_error");
    assert!(message.as_str().unwrap().contains("call_f"), "{message}");
}

#[test]
fn what_is_held_is_capped() {
    let mut rewriter = rewriter(request(), true);
    rewriter.settings.max_held_bytes = 4000;
    feed(
        &mut rewriter,
        &[created(), message_added("m"), call_added("f", "exec")],
    );
    for _ in 0..200 {
        feed(&mut rewriter, &[arguments("f", "0123456789")]);
    }
    let (_, message) = failed_with(&sent(&mut rewriter));
    assert!(
        message.as_str().unwrap().contains("maxHeldBytes"),
        "{message}"
    );
}
