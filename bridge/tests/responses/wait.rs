//! A model server that is not there yet.

use codex_bridge::config::UpstreamKind;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::{
    client::{BLINK, Events, LONG, ask, ask_whole, ask_with_tools, patient, send, spawn},
    event::*,
    model::{Kind, Model, Shut},
    support::{Bridge, error_message, json as read_json, upstream},
};

fn loading() -> Value {
    json!({"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}})
}

#[tokio::test]
async fn client_gets_life_signs_until_the_server_listens_and_then_its_turn() {
    for (configured, kind) in [
        (UpstreamKind::LlamaCpp, Kind::Llama),
        (UpstreamKind::Auto, Kind::Llama),
        (UpstreamKind::Auto, Kind::Native),
        (UpstreamKind::Responses, Kind::Native),
    ] {
        let shut = Shut::new();
        let mut config = patient(shut.address, LONG);
        config.policy.keep_alive = Some(BLINK);
        upstream(&mut config).kind = configured;
        let bridge = Bridge::start(config).await;
        let mut events = Events::of(send(&bridge, &ask_with_tools()).await);
        assert_eq!(
            outline(&events.take(3).await),
            ["created", "in_progress", "in_progress"]
        );
        let mut model = shut.open(kind);
        let call = call("f", "apply_patch", "{\"input\":\"x\"}");
        let feed = model.turn().await.stream();
        feed.events(&[
            created(),
            call_added("f", "apply_patch"),
            arguments("f", "{\"input\":\"x\"}"),
            done(&call),
            completed(&[call]),
        ])
        .await;
        let rest = events.rest().await;
        assert_eq!(
            rest.last().unwrap()["response"]["output"][0]["type"],
            "custom_tool_call",
            "{configured:?}"
        );
        assert_eq!(model.asked(), 1);
    }
}

#[tokio::test]
async fn a_whole_answer_waits_for_the_server_too() {
    let shut = Shut::new();
    let bridge = Bridge::start(patient(shut.address, LONG)).await;
    let sending = spawn(&bridge, &ask_whole());
    let mut model = shut.open(Kind::Llama);
    model.turn().await.say("Here.").await;
    let answer = read_json(sending.answer().await).await;
    assert_eq!(answer["output_text"], "Here.");
}

#[tokio::test]
async fn a_server_that_is_loading_is_waited_for() {
    for body in [ask(), ask_whole()] {
        let mut model = Model::start(Kind::Llama);
        let bridge = Bridge::start(patient(model.address, LONG)).await;
        let sending = spawn(&bridge, &body);
        for _ in 0..2 {
            model.turn().await.refuse(503, &loading());
        }
        model.turn().await.say("Loaded.").await;
        let answer = sending.answer().await;
        let status = if body["stream"] == true {
            let events = Events::of(answer).rest().await;
            events.last().unwrap()["response"]["status"].clone()
        } else {
            read_json(answer).await["status"].clone()
        };
        assert_eq!(status, "completed");
        assert_eq!(model.asked(), 3);
    }
}

#[tokio::test]
async fn a_wait_that_runs_out_is_no_reason_to_ask_again_at_once() {
    let shut = Shut::new();
    let bridge = Bridge::start(patient(shut.address, 3 * BLINK)).await;
    let mut events = Events::of(send(&bridge, &ask()).await);
    let (code, message) = events.failure().await;
    assert_eq!(code, "invalid_prompt");
    let address = shut.address;
    assert!(
        message.starts_with(&format!(
            "the model server at {address} cannot be reached: "
        )),
        "{message}"
    );
}

#[tokio::test]
async fn a_wait_that_runs_out_fails_a_whole_answer_with_its_status() {
    let shut = Shut::new();
    let bridge = Bridge::start(patient(shut.address, 3 * BLINK)).await;
    let answer = send(&bridge, &ask_whole()).await;
    assert_eq!(answer.status(), 502);
    let message = error_message(answer).await;
    assert!(message.contains(&shut.address.to_string()), "{message}");

    let mut model = shut.open(Kind::Llama);
    let sending = spawn(&bridge, &ask_whole());
    model.turn().await.refuse(503, &loading());
    model.turn().await.refuse(503, &loading());
    let answer = sending.answer().await;
    assert_eq!(answer.status(), 503);
    assert!(error_message(answer).await.contains("Loading model"));
}

#[tokio::test]
async fn what_the_server_refuses_once_it_is_there_is_not_asked_again() {
    let shut = Shut::new();
    let bridge = Bridge::start(patient(shut.address, LONG)).await;
    let mut events = Events::of(send(&bridge, &ask()).await);
    let mut model = shut.open(Kind::Llama);
    let error = json!({"code": 400, "type": "exceed_context_size_error", "message": "too long"});
    model.turn().await.refuse(400, &json!({"error": error}));
    assert_eq!(
        events.failure().await,
        ("context_length_exceeded".to_owned(), "too long".to_owned())
    );
    assert_eq!(model.asked(), 1);
}

#[tokio::test]
async fn a_request_at_fault_is_refused_without_a_wait() {
    let shut = Shut::new();
    let bridge = Bridge::start(patient(shut.address, LONG)).await;
    let mut body = ask();
    body["tools"] = json!([{"type": "hologram"}]);
    let answer = send(&bridge, &body).await;
    assert_eq!(answer.status(), 400);
    assert!(error_message(answer).await.contains("hologram"));
}
