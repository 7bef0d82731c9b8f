//! What the model has said reaches the client before it says more.

use pretty_assertions::assert_eq;
use serde_json::json;

use crate::{
    client::{ask, ask_with_tools, pair, spawn},
    event::*,
    model::Kind,
};

#[tokio::test]
async fn text_reaches_the_client_while_the_model_is_still_writing() {
    let (bridge, mut model) = pair(Kind::Llama).await;
    let sending = spawn(&bridge, &ask());
    let feed = model.turn().await.stream();
    let mut events = sending.events().await;
    let whole = turn("Hello");

    feed.events(&whole[..4]).await;
    assert_eq!(
        outline(&events.take(4).await),
        [
            "created",
            "in_progress",
            "added(message)",
            "content_part.added"
        ]
    );
    for letter in ["H", "e", "l", "l", "o"] {
        feed.events(&[text("msg_1", letter)]).await;
        let delta = events.next().await;
        assert_eq!(
            (&delta["type"], &delta["delta"]),
            (&json!("response.output_text.delta"), &json!(letter))
        );
    }
    feed.events(&whole[5..]).await;
    assert_eq!(
        outline(&events.rest().await),
        [
            "output_text.done",
            "content_part.done",
            "done(message, final_answer)",
            "completed"
        ]
    );
}

#[tokio::test]
async fn reasoning_after_a_message_flows_too() {
    let (bridge, mut model) = pair(Kind::Llama).await;
    let sending = spawn(&bridge, &ask());
    let feed = model.turn().await.stream();
    let mut events = sending.events().await;

    feed.events(&[
        created(),
        message_added("m"),
        part_added("m"),
        text("m", "Let me"),
    ])
    .await;
    events.take(4).await;
    feed.events(&[reasoning_added("r"), reasoning_text("r", "hm")])
        .await;
    let shown = events.take(3).await;
    assert_eq!(
        outline(&shown),
        [
            "added(reasoning)",
            "content_part.added",
            "reasoning_text.delta"
        ]
    );
    assert_eq!(
        shown[2],
        json!({"type": "response.reasoning_text.delta", "item_id": "r", "delta": "hm", "output_index": 1,
            "content_index": 0, "sequence_number": 6})
    );
    let (message, reasoning) = (message("m", "Let me"), reasoning("r", "hm"));
    feed.events(&[
        done(&message),
        done(&reasoning),
        completed(&[message, reasoning]),
    ])
    .await;
    assert_eq!(
        events.rest().await.last().unwrap()["type"],
        "response.completed"
    );
}

#[tokio::test]
async fn arguments_of_a_plain_call_reach_the_client_as_they_are_written() {
    let (bridge, mut model) = pair(Kind::Llama).await;
    let sending = spawn(&bridge, &ask_with_tools());
    let feed = model.turn().await.stream();
    let mut events = sending.events().await;
    feed.events(&[
        created(),
        call_added("f", "mcp__desk__find"),
        arguments("f", "{\"id\""),
    ])
    .await;
    let shown = events.take(3).await;
    assert_eq!(
        shown[1]["item"],
        json!({"id": "f", "type": "function_call", "call_id": "call_f", "name": "find", "arguments": "",
            "status": "in_progress", "namespace": "mcp__desk"})
    );
    assert_eq!(shown[2]["delta"], "{\"id\"");
    feed.events(&[arguments("f", ":41}")]).await;
    assert_eq!(events.next().await["delta"], ":41}");
}

#[tokio::test]
async fn custom_call_of_a_stream_without_indices_arrives_whole_and_in_its_own_shape() {
    let (bridge, mut model) = pair(Kind::Llama).await;
    let sending = spawn(&bridge, &ask_with_tools());
    let turn = model.turn().await;
    let patch = "*** Begin Patch\n+\"é\"\n*** End Patch";
    let wrapped = json!({"input": patch}).to_string();
    let (first, second) = wrapped.split_at(25);
    let (message, call) = (
        message("m", "Patching."),
        call("f", "apply_patch", &wrapped),
    );
    turn.stream()
        .events(&[
            created(),
            in_progress(),
            message_added("m"),
            part_added("m"),
            text("m", "Patching."),
            call_added("f", "apply_patch"),
            arguments("f", first),
            arguments("f", second),
            done(&message),
            done(&call),
            completed(&[message, call.clone()]),
        ])
        .await;

    let events = sending.events().await.rest().await;
    assert_eq!(
        outline(&events),
        [
            "created",
            "in_progress",
            "added(message)",
            "content_part.added",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "done(message, commentary)",
            "added(custom_tool_call)",
            "custom_tool_call_input.delta",
            "custom_tool_call_input.delta",
            "custom_tool_call_input.done",
            "done(custom_tool_call)",
            "completed",
        ]
    );
    assert_eq!(
        events[12]["item"],
        json!({"id": "f", "type": "custom_tool_call", "call_id": "call_f", "name": "apply_patch",
            "status": "completed", "input": patch})
    );
    assert_eq!(events[13]["response"]["output"][1], events[12]["item"]);
    assert!(events[8..13].iter().all(|event| event["output_index"] == 1));
}

#[tokio::test]
async fn calls_without_ids_leak_no_fragments() {
    let (bridge, mut model) = pair(Kind::Llama).await;
    let sending = spawn(&bridge, &ask_with_tools());
    let turn = model.turn().await;
    let wrapped = json!({"input": "x"}).to_string();
    let call = json!({"type": "function_call", "call_id": "fc_1", "name": "apply_patch", "arguments": wrapped});
    let message = message("m", "Well.");
    turn.stream()
        .events(&[
            created(),
            message_added("m"),
            part_added("m"),
            text("m", "Well."),
            json!({"type": "response.output_item.added", "item": {"type": "function_call", "call_id": "fc_1",
                "name": "apply_patch", "arguments": "", "status": "in_progress"}}),
            json!({"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": wrapped}),
            done(&message),
            done(&call),
            completed(&[message, call.clone()]),
        ])
        .await;
    let events = sending.events().await.rest().await;
    let kinds = outline(&events);
    assert_eq!(
        kinds[6..],
        [
            "done(message, commentary)",
            "added(custom_tool_call)",
            "custom_tool_call_input.delta",
            "custom_tool_call_input.done",
            "done(custom_tool_call)",
            "completed"
        ]
    );
    let item = &events[10]["item"];
    assert_eq!(
        (&item["call_id"], &item["input"]),
        (&json!("fc_1"), &json!("x"))
    );
    for event in &events[7..10] {
        let id = event["item_id"]
            .as_str()
            .or_else(|| event["item"]["id"].as_str());
        assert_eq!(id, item["id"].as_str());
    }
}
