//! Text and phases.

use pretty_assertions::assert_eq;
use serde_json::json;

use super::*;

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
fn held_whole_a_message_bears_its_phase_from_the_start() {
    let mut rewriter = rewriter(request(), true);
    rewriter.settings.phase = PhasePolicy::Hold;
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
fn a_refusal_that_upstream_does_not_end_stays_a_refusal() {
    let refusal = json!({"type": "refusal", "refusal": "No."});
    let added = json!({"type": "response.content_part.added", "item_id": "m", "part": {"type": "refusal", "refusal": ""}});
    let delta = json!({"type": "response.refusal.delta", "item_id": "m", "delta": "No."});
    let mut ended = message("m", "");
    ended["content"] = json!([refusal]);
    for (announced, end) in [(false, None), (true, None), (false, Some(&ended))] {
        let mut rewriter = rewriter(request(), false);
        feed(&mut rewriter, &[created(), message_added("m")]);
        if announced {
            feed(&mut rewriter, std::slice::from_ref(&added));
        }
        feed(&mut rewriter, std::slice::from_ref(&delta));
        if let Some(end) = end {
            feed(&mut rewriter, &[item_done(end)]);
        }
        feed(&mut rewriter, &[completed(&[])]);
        let events = sent(&mut rewriter);
        assert_eq!(
            outline(&events),
            [
                "created",
                "added(message)",
                "content_part.added",
                "refusal.delta",
                "refusal.done",
                "content_part.done",
                "done(message, final_answer)",
                "completed",
                "[DONE]"
            ]
        );
        assert_eq!(events[2]["part"]["type"], "refusal");
        assert_eq!(events[4]["refusal"], "No.");
        assert_eq!(events[5]["part"], refusal);
        assert_eq!(events[6]["item"]["content"], json!([refusal]));
        assert_eq!(
            events[7]["response"]["output"][0]["content"],
            json!([refusal])
        );
    }
}

#[test]
fn a_refusal_known_only_by_its_items_end_is_streamed_as_one() {
    let mut rewriter = rewriter(request(), true);
    let mut ended = message("m", "");
    ended["content"] = json!([{"type": "refusal", "refusal": "No."}]);
    feed(&mut rewriter, &[created(), completed(&[ended])]);
    let events = sent(&mut rewriter);
    assert_eq!(
        outline(&events)[2..6],
        [
            "content_part.added",
            "refusal.delta",
            "refusal.done",
            "content_part.done"
        ]
    );
}

#[test]
fn a_summary_that_upstream_does_not_end_is_kept() {
    let reasoning = json!({"id": "r", "type": "reasoning", "summary": []});
    let added = json!({"type": "response.output_item.added", "item": reasoning});
    let summary = |kind: &str, index: u64, field: &str, value: Value| {
        let mut event = json!({"type": format!("response.reasoning_summary_{kind}"), "item_id": "r", "summary_index": index});
        event[field] = value;
        event
    };
    let part = json!({"type": "summary_text", "text": ""});
    for ended in [false, true] {
        let mut rewriter = rewriter(request(), false);
        feed(
            &mut rewriter,
            &[
                created(),
                added.clone(),
                summary("part.added", 0, "part", part.clone()),
                summary("text.delta", 0, "delta", json!("Thin")),
                summary("text.delta", 0, "delta", json!("king")),
                summary("text.done", 0, "text", json!("Thinking")),
                summary("part.added", 1, "part", part.clone()),
                summary("text.delta", 1, "delta", json!("More")),
            ],
        );
        if ended {
            feed(&mut rewriter, &[item_done(&reasoning)]);
        }
        feed(&mut rewriter, &[completed(&[])]);
        let events = sent(&mut rewriter);
        assert_eq!(
            outline(&events)[2..],
            [
                "reasoning_summary_part.added",
                "reasoning_summary_text.delta",
                "reasoning_summary_text.delta",
                "reasoning_summary_text.done",
                "reasoning_summary_part.added",
                "reasoning_summary_text.delta",
                "reasoning_summary_part.done",
                "reasoning_summary_text.done",
                "reasoning_summary_part.done",
                "done(reasoning)",
                "completed",
                "[DONE]"
            ]
        );
        let kept = json!([{"type": "summary_text", "text": "Thinking"}, {"type": "summary_text", "text": "More"}]);
        assert_eq!(events[8]["part"], kept[0]);
        assert_eq!(
            (&events[9]["text"], &events[9]["summary_index"]),
            (&json!("More"), &json!(1))
        );
        assert_eq!(events[11]["item"]["summary"], kept);
        assert_eq!(events[12]["response"]["output"][0]["summary"], kept);
    }
}

#[test]
fn an_empty_item_id_is_none() {
    let mut rewriter = rewriter(request(), false);
    feed(
        &mut rewriter,
        &[
            created(),
            json!({"type": "response.reasoning_text.delta", "item_id": "", "delta": "Hm."}),
            text("", "a"),
            completed(&[]),
        ],
    );
    let events = sent(&mut rewriter);
    let output = events[events.len() - 2]["response"]["output"].as_array();
    let output = output.unwrap();
    assert_eq!(output[0]["content"][0]["text"], "Hm.");
    assert_eq!(output[1]["content"][0]["text"], "a");
    for item in output {
        let id = item["id"].as_str().unwrap();
        let named = events.iter().filter(|event| event["item_id"] == id);
        assert!(!id.is_empty() && named.count() == 4, "{id}");
    }
}

#[test]
fn a_text_that_came_whole_in_one_event_is_kept_though_its_item_never_ends() {
    for (added, done, field) in [
        (
            message_added("m"),
            json!({"type": "response.output_text.done", "text": "All."}),
            "content",
        ),
        (
            message_added("m"),
            json!({"type": "response.refusal.done", "refusal": "All."}),
            "content",
        ),
        (
            json!({"type": "response.output_item.added", "item": {"id": "m", "type": "reasoning", "summary": []}}),
            json!({"type": "response.reasoning_summary_text.done", "text": "All."}),
            "summary",
        ),
    ] {
        let mut rewriter = rewriter(request(), false);
        feed(&mut rewriter, &[created(), added, done, completed(&[])]);
        let events = sent(&mut rewriter);
        let part = &events[events.len() - 2]["response"]["output"][0][field][0];
        let text = [&part["text"], &part["refusal"]];
        assert!(text.contains(&&json!("All.")), "{part}");
    }
}
