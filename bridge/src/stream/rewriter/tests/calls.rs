//! Calls: names restored, inputs unwrapped, one closing before the next opens.

use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::*;

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
fn a_native_servers_cut_call_is_never_ended() {
    let mut rewriter = rewriter(request(), false);
    let mut cut = call("f", "exec", "{\"cmd\":\"rm\"}");
    cut["status"] = json!("incomplete");
    let incomplete = json!({"type": "response.incomplete", "response": {"id": "resp_1", "status": "incomplete",
        "output": [cut], "incomplete_details": {"reason": "max_output_tokens"}}});
    feed(
        &mut rewriter,
        &[
            created(),
            call_added("f", "exec"),
            arguments("f", "{\"cmd\":\"rm\"}"),
            item_done(&cut),
            incomplete,
        ],
    );
    let events = sent(&mut rewriter);
    assert!(
        !outline(&events).contains(&"done(function_call)".to_owned()),
        "{events:?}"
    );
    laws::check(&events);
}
