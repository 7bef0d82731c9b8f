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
