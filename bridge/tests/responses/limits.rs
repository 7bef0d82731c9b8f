//! What a model server can make the bridge hold is bounded, and every bound is named when it is hit.

use codex_bridge::config::{Config, PhasePolicy};
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::{
    client::{ask, ask_whole, ask_with_tools, pair_with, spawn},
    event::*,
    model::{Kind, json as json_answer, plain},
    support::error_message,
};

const LIMIT: usize = 4096;

fn small_events(config: &mut Config) {
    config.limits.max_event_bytes = LIMIT;
}

fn little_held(config: &mut Config) {
    config.limits.max_held_bytes = LIMIT;
}

fn small_answers(config: &mut Config) {
    config.limits.max_response_bytes = LIMIT;
}

#[tokio::test]
async fn an_event_that_never_ends_fails_the_response() {
    let (bridge, mut model) = pair_with(Kind::Llama, small_events).await;
    let sending = spawn(&bridge, &ask());
    let feed = model.turn().await.stream();
    let mut events = sending.events().await;
    feed.bytes("data: ").await;
    for _ in 0..2 {
        feed.bytes("x".repeat(LIMIT / 2)).await;
    }
    assert_eq!(
        events.failure().await,
        (
            "server_error".to_owned(),
            "an event is larger than the limit of 4096 bytes (limits.maxEventBytes)".to_owned()
        )
    );
    feed.closed().await;
}

#[tokio::test]
async fn an_event_that_never_ends_fails_a_whole_answer() {
    let (bridge, mut model) = pair_with(Kind::Llama, small_events).await;
    let sending = spawn(&bridge, &ask_whole());
    let feed = model.turn().await.stream();
    feed.bytes(format!("data: {}", "x".repeat(LIMIT))).await;
    let answer = sending.answer().await;
    assert_eq!(answer.status(), 502);
    let message = error_message(answer).await;
    assert!(message.contains("limits.maxEventBytes"), "{message}");
    feed.closed().await;
}

/// Feeds until the bridge has had enough.
async fn feed_until_closed(feed: &crate::model::Feed, event: &serde_json::Value) {
    for _ in 0..1000 {
        if !feed.try_events(std::slice::from_ref(event)).await {
            return;
        }
    }
    panic!("1000 events were taken");
}

#[tokio::test]
async fn a_call_that_waits_for_an_open_message_is_held_up_to_the_limit() {
    let (bridge, mut model) = pair_with(Kind::Llama, little_held).await;
    let sending = spawn(&bridge, &ask_with_tools());
    let feed = model.turn().await.stream();
    let mut events = sending.events().await;
    feed.events(&[
        created(),
        message_added("m"),
        text("m", "a"),
        call_added("f", "exec"),
    ])
    .await;
    feed_until_closed(&feed, &arguments("f", &"x".repeat(100))).await;
    assert_eq!(
        events.failure().await,
        (
            "server_error".to_owned(),
            "the response needs more than 4096 bytes to be held at once (limits.maxHeldBytes)"
                .to_owned()
        )
    );
}

#[tokio::test]
async fn a_message_held_for_its_phase_is_held_up_to_the_limit() {
    let (bridge, mut model) = pair_with(Kind::Native, |config| {
        config.policy.phase = PhasePolicy::Hold;
        little_held(config);
    })
    .await;
    let sending = spawn(&bridge, &ask_with_tools());
    let feed = model.turn().await.stream();
    let mut events = sending.events().await;
    feed.events(&[created(), message_added("m")]).await;
    feed_until_closed(&feed, &text("m", &"x".repeat(100))).await;
    let (_, message) = events.failure().await;
    assert!(message.contains("limits.maxHeldBytes"), "{message}");
}

#[tokio::test]
async fn a_stream_of_announcements_is_held_up_to_the_limit() {
    let (bridge, mut model) = pair_with(Kind::Native, little_held).await;
    let sending = spawn(&bridge, &ask_with_tools());
    let feed = model.turn().await.stream();
    let mut events = sending.events().await;
    feed.events(&[created(), call_added("first", "exec")]).await;
    for number in 0..1000 {
        let announced = call_added(&format!("f{number}"), "exec");
        if !feed.try_events(&[announced]).await {
            break;
        }
        assert!(number < 999, "1000 events were taken");
    }
    let (_, message) = events.failure().await;
    assert!(message.contains("limits.maxHeldBytes"), "{message}");
}

#[tokio::test]
async fn a_json_answer_over_the_limit_is_a_502() {
    let (bridge, mut model) = pair_with(Kind::Native, small_answers).await;
    let sending = spawn(&bridge, &ask_whole());
    let long = json!({"id": "resp_up", "status": "completed", "output": [], "metadata": {"a": "x".repeat(LIMIT)}});
    model.turn().await.answer(json_answer(200, &long));
    let answer = sending.answer().await;
    assert_eq!(answer.status(), 502);
    let message = error_message(answer).await;
    assert!(message.contains("limits.maxResponseBytes"), "{message}");
}

#[tokio::test]
async fn a_json_answer_that_never_ends_is_a_502_too() {
    let (bridge, mut model) = pair_with(Kind::Native, small_answers).await;
    let sending = spawn(&bridge, &ask_whole());
    let (body, answer) = crate::model::endless("application/json");
    model.turn().await.answer(answer);
    body.bytes("x".repeat(LIMIT + 1)).await;
    let answer = sending.answer().await;
    assert_eq!(answer.status(), 502);
    body.closed().await;
}

#[tokio::test]
async fn an_error_body_over_the_limit_keeps_its_status_and_is_only_quoted() {
    let (bridge, mut model) = pair_with(Kind::Native, small_answers).await;
    for status in [400, 500] {
        for ask in [ask(), ask_whole()] {
            let sending = spawn(&bridge, &ask);
            let page = plain(status, "text/plain", &"x".repeat(LIMIT + 1));
            model.turn().await.answer(page);
            let answer = sending.answer().await;
            assert_eq!(answer.status(), status);
            let message = error_message(answer).await;
            assert!(message.contains("xxx") && message.len() < 600, "{message}");
        }
    }
}
