//! A model server that says nothing for a while.

use codex_bridge::config::Config;
use pretty_assertions::assert_eq;
use tokio::time::{advance, pause, resume};

use crate::{
    client::{BLINK, ask, ask_whole, pair, pair_with, spawn},
    event::*,
    model::{Kind, json as json_answer},
    support::{SECOND, error_message, json, upstream},
};

/// Longer than any client or library waits by default.
async fn an_hour_passes() {
    pause();
    advance(3600 * SECOND).await;
    resume();
}

fn beating(config: &mut Config) {
    config.policy.keep_alive = Some(BLINK);
}

#[tokio::test]
async fn silence_after_the_headers_is_filled_with_events_of_one_response() {
    let (bridge, mut model) = pair_with(Kind::Llama, beating).await;
    let sending = spawn(&bridge, &ask());
    let feed = model.turn().await.stream();
    // `Events` refuses comments and a second response id.
    let mut events = sending.events().await;
    let signs = events.take(4).await;
    assert_eq!(
        outline(&signs),
        ["created", "in_progress", "in_progress", "in_progress"]
    );
    assert_eq!(signs[1]["response"], signs[3]["response"]);
    assert_eq!(signs[1]["response"]["status"], "in_progress");

    feed.events(&turn("Here.")).await;
    let rest = events.rest().await;
    assert!(!outline(&rest).contains(&"created".to_owned()));
    let response = &rest.last().unwrap()["response"];
    assert_eq!(response["id"], signs[0]["response"]["id"]);
    assert_eq!(response["status"], "completed");
}

#[tokio::test]
async fn silence_in_the_middle_is_filled_too() {
    let (bridge, mut model) = pair_with(Kind::Native, beating).await;
    let sending = spawn(&bridge, &ask());
    let feed = model.turn().await.stream();
    let mut events = sending.events().await;
    let whole = turn("Here.");
    feed.events(&whole[..5]).await;
    while events.next().await["type"] != "response.output_text.delta" {}
    assert_eq!(
        outline(&events.take(2).await),
        ["in_progress", "in_progress"]
    );
    feed.events(&whole[5..]).await;
    assert_eq!(outline(&events.rest().await).last().unwrap(), "completed");
}

#[tokio::test]
async fn comments_of_the_model_server_are_not_the_clients_business() {
    let (bridge, mut model) = pair(Kind::Llama).await;
    let sending = spawn(&bridge, &ask());
    let feed = model.turn().await.stream();
    let mut events = sending.events().await;
    feed.bytes(": ping\n\n").await;
    feed.events(&turn("Here.")).await;
    assert_eq!(outline(&events.rest().await).last().unwrap(), "completed");
}

#[tokio::test]
async fn an_hour_of_silence_ends_no_stream() {
    let (bridge, mut model) = pair(Kind::Llama).await;
    let sending = spawn(&bridge, &ask());
    let feed = model.turn().await.stream();
    let mut events = sending.events().await;
    an_hour_passes().await;
    feed.events(&turn("Here.")).await;
    assert_eq!(outline(&events.rest().await).last().unwrap(), "completed");
}

#[tokio::test]
async fn an_hour_without_headers_ends_no_request() {
    for kind in [Kind::Llama, Kind::Native] {
        let (bridge, mut model) = pair(kind).await;
        let sending = spawn(&bridge, &ask_whole());
        let upward = model.turn().await;
        an_hour_passes().await;
        match kind {
            Kind::Llama => upward.say("Here.").await,
            Kind::Native => upward.answer(json_answer(200, &completed(&[])["response"])),
        }
        assert_eq!(json(sending.answer().await).await["status"], "completed");
    }
}

#[tokio::test]
async fn silence_beyond_the_idle_timeout_fails_once_and_lets_go() {
    let (bridge, mut model) = pair_with(Kind::Llama, |config| {
        upstream(config).idle_timeout = Some(BLINK);
    })
    .await;
    let sending = spawn(&bridge, &ask());
    let feed = model.turn().await.stream();
    let failure = sending.events().await.failure().await;
    assert_eq!(
        failure,
        (
            "server_error".to_owned(),
            "the model server was silent for 50ms (upstream.idleTimeout)".to_owned()
        )
    );
    feed.closed().await;
}

#[tokio::test]
async fn silence_beyond_the_idle_timeout_fails_a_whole_answer_too() {
    let (bridge, mut model) = pair_with(Kind::Llama, |config| {
        upstream(config).idle_timeout = Some(BLINK);
    })
    .await;
    let sending = spawn(&bridge, &ask_whole());
    let feed = model.turn().await.stream();
    let answer = sending.answer().await;
    assert_eq!(answer.status(), 504);
    error_message(answer).await;
    feed.closed().await;
}
