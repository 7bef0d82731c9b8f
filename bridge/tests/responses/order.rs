//! Regrouping moves what it must and nothing else.

use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::{
    client::{ask_with_tools, pair, spawn},
    event::*,
    model::Kind,
};

fn note(number: u64) -> Value {
    json!({"type": "codex.rate_limits", "number": number})
}

async fn through(kind: Kind, sent: &[Value]) -> Vec<Value> {
    let (bridge, mut model) = pair(kind).await;
    let sending = spawn(&bridge, &ask_with_tools());
    model.turn().await.stream().events(sent).await;
    sending.events().await.rest().await
}

#[tokio::test]
async fn events_of_no_item_pass_in_their_place() {
    let message = message("m", "ab");
    for kind in [Kind::Llama, Kind::Native] {
        let events = through(
            kind,
            &[
                created(),
                note(1),
                message_added("m"),
                part_added("m"),
                text("m", "a"),
                note(2),
                text("m", "b"),
                note(3),
                done(&message),
                completed(std::slice::from_ref(&message)),
            ],
        )
        .await;
        let place = |number: u64| events.iter().position(|event| event["number"] == number);
        let words = outline(&events);
        assert_eq!(
            words[..8],
            [
                "created",
                "codex.rate_limits",
                "added(message)",
                "content_part.added",
                "output_text.delta",
                "codex.rate_limits",
                "output_text.delta",
                "codex.rate_limits",
            ]
        );
        assert_eq!((place(1), place(2), place(3)), (Some(1), Some(5), Some(7)));
    }
}

#[tokio::test]
async fn a_message_known_only_by_its_end_gets_a_phase() {
    let (message, call) = (message("m", "Looking."), call("f", "exec", "{}"));
    for kind in [Kind::Llama, Kind::Native] {
        let events = through(
            kind,
            &[
                created(),
                done(&message),
                call_added("f", "exec"),
                done(&call),
                completed(&[message.clone(), call.clone()]),
            ],
        )
        .await;
        let words = outline(&events);
        assert!(
            words.contains(&"done(message, commentary)".to_owned()),
            "{words:?}"
        );
        let output = &events.last().unwrap()["response"]["output"];
        assert_eq!(output[0]["phase"], "commentary");

        let events = through(
            kind,
            &[
                created(),
                done(&message),
                completed(std::slice::from_ref(&message)),
            ],
        )
        .await;
        let words = outline(&events);
        assert!(
            words.contains(&"done(message, final_answer)".to_owned()),
            "{words:?}"
        );
    }
}

#[tokio::test]
async fn a_message_without_an_id_gets_one_and_a_phase() {
    let bare = json!({"type": "message", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "ab"}]});
    for kind in [Kind::Llama, Kind::Native] {
        let events = through(
            kind,
            &[
                created(),
                json!({"type": "response.output_item.added", "item": {"type": "message", "role": "assistant",
                    "status": "in_progress", "content": []}}),
                json!({"type": "response.output_text.delta", "delta": "ab"}),
                done(&bare),
                completed(std::slice::from_ref(&bare)),
            ],
        )
        .await;
        let item = &events.last().unwrap()["response"]["output"][0];
        assert_eq!(item["phase"], "final_answer");
        assert!(item["id"].as_str().unwrap().starts_with("msg_"), "{item}");
        for event in &events {
            let id = event.get("item_id").or_else(|| event["item"].get("id"));
            assert_eq!(id.unwrap_or(&item["id"]), &item["id"], "{event}");
        }
    }
}

#[tokio::test]
async fn a_message_after_a_call_is_the_final_answer() {
    let (call, message) = (call("f", "exec", "{}"), message("m", "Done."));
    for kind in [Kind::Llama, Kind::Native] {
        let events = through(
            kind,
            &[
                created(),
                call_added("f", "exec"),
                message_added("m"),
                text("m", "Done."),
                done(&call),
                done(&message),
                completed(&[call.clone(), message.clone()]),
            ],
        )
        .await;
        let output = &events.last().unwrap()["response"]["output"];
        assert_eq!(
            (&output[0]["type"], &output[1]["phase"]),
            (&json!("function_call"), &json!("final_answer"))
        );
        let words = outline(&events);
        assert!(
            words.contains(&"done(message, final_answer)".to_owned()),
            "{words:?}"
        );
    }
}
