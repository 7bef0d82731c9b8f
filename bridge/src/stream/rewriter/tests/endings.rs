//! How a response ends, and what is sent before it does.

use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::*;

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
fn a_cut_custom_call_has_the_input_that_was_streamed_without_its_wrapper() {
    let mut cut = call("f", "note", "{\"input\": \"Hello");
    cut["status"] = json!("incomplete");
    // Listed at the end, or not.
    for output in [json!([cut]), json!([])] {
        let mut body = request();
        body["tools"] = json!([{"type": "custom", "name": "note"}]);
        let mut rewriter = rewriter(body, false);
        feed(
            &mut rewriter,
            &[
                created(),
                call_added("f", "note"),
                arguments("f", "{\"input\": \"Hel"),
                arguments("f", "lo"),
                json!({"type": "response.incomplete", "response": {"id": "resp_1", "object": "response",
                    "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": output}}),
            ],
        );
        let events = sent(&mut rewriter);
        assert_eq!(
            outline(&events),
            [
                "created",
                "added(custom_tool_call)",
                "custom_tool_call_input.delta",
                "custom_tool_call_input.delta",
                "incomplete",
                "[DONE]"
            ]
        );
        assert_eq!([&events[2]["delta"], &events[3]["delta"]], ["Hel", "lo"]);
        assert_eq!(
            events[4]["response"]["output"],
            json!([{"id": "f", "type": "custom_tool_call", "call_id": "call_f", "name": "note",
                "status": "incomplete", "input": "Hello"}])
        );
    }
}

#[test]
fn a_failed_response_keeps_what_upstream_said_of_its_settings_and_its_usage() {
    let begun = json!({"type": "response.created", "response": {"id": "resp_1", "object": "response",
        "status": "in_progress", "created_at": 7, "temperature": 0.6, "top_p": 0.9, "truncation": "auto"}});
    let usage = json!({"input_tokens": 5, "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens": 3, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 8});
    let failed = json!({"type": "response.failed", "response": {"id": "resp_1", "object": "response",
        "status": "failed", "error": {"code": "server_error", "message": "broken"}, "usage": usage}});
    for (end, used) in [(Some(failed), usage), (None, Value::Null)] {
        let mut rewriter = rewriter(request(), false);
        feed(&mut rewriter, std::slice::from_ref(&begun));
        feed(&mut rewriter, end.as_slice());
        rewriter.finish();
        let events = sent(&mut rewriter);
        failed_with(&events);
        let response = &events[1]["response"];
        for key in ["created_at", "temperature", "top_p", "truncation"] {
            assert_eq!(response[key], begun["response"][key], "{key}");
        }
        assert_eq!(response["usage"], used);
    }
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
