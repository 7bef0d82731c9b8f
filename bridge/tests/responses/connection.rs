//! Connections to the model server, and what of its header fields reaches the client.

use pretty_assertions::assert_eq;
use serde_json::json;

use crate::{
    client::{ask, ask_whole, pair, post, spawn, spawn_request},
    event::*,
    model::{Kind, json as json_answer},
    support::{error_message, json as read_json, soon},
};

#[tokio::test]
async fn thirty_turns_share_one_connection_though_done_comes_late() {
    for kind in [Kind::Llama, Kind::Native] {
        let (bridge, mut model) = pair(kind).await;
        for _ in 0..30 {
            let sending = spawn(&bridge, &ask());
            let feed = model.turn().await.stream();
            let mut events = sending.events().await;
            feed.events(&turn("Hello")).await;
            events.rest().await;
            // The client has had its whole answer by now.
            feed.bytes("data: [DONE]\n\n").await;
            drop(feed);
            // A round trip through the bridge, by whose end it has read that too.
            soon(bridge.get("/metrics").send()).await.unwrap();
        }
        assert_eq!((model.asked(), model.connections()), (30, 1));
    }
}

#[tokio::test]
async fn thirty_whole_answers_share_one_connection() {
    for kind in [Kind::Llama, Kind::Native] {
        let (bridge, mut model) = pair(kind).await;
        for _ in 0..30 {
            let sending = spawn(&bridge, &ask_whole());
            let upward = model.turn().await;
            match kind {
                Kind::Llama => upward.say("Hello").await,
                Kind::Native => upward.answer(json_answer(200, &completed(&[])["response"])),
            }
            let answer = read_json(sending.answer().await).await;
            assert_eq!(answer["status"], "completed");
        }
        assert_eq!((model.asked(), model.connections()), (30, 1));
    }
}

#[tokio::test]
async fn refusals_keep_their_connection() {
    let (bridge, mut model) = pair(Kind::Native).await;
    for _ in 0..10 {
        let sending = spawn(&bridge, &ask());
        let refusal = json!({"error": {"message": "no", "type": "invalid_request_error"}});
        model.turn().await.refuse(400, &refusal);
        assert_eq!(sending.answer().await.status(), 400);
    }
    assert_eq!(model.connections(), 1);
}

fn names(answer: &reqwest::Response) -> Vec<&str> {
    let mut names: Vec<_> = answer
        .headers()
        .keys()
        .map(http::HeaderName::as_str)
        .collect();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn few_of_the_model_servers_header_fields_reach_the_client() {
    let (bridge, mut model) = pair(Kind::Native).await;
    let fields = [
        ("openai-model", "other"),
        ("x-codex-turn-state", "sticky"),
        ("x-ratelimit-limit-requests", "7"),
        ("server", "llama.cpp"),
        ("set-cookie", "a=b"),
        ("access-control-allow-origin", "*"),
        ("x-request-id", "theirs"),
    ];
    let request = post(&bridge, &ask()).header("x-request-id", "turn-7");
    let sending = spawn_request(request);
    let feed = model.turn().await.stream_with(&fields);
    let answer = sending.answer().await;
    drop(feed);
    assert_eq!(
        names(&answer),
        [
            "cache-control",
            "content-type",
            "date",
            "transfer-encoding",
            "x-codex-turn-state",
            "x-ratelimit-limit-requests",
            "x-request-id",
        ]
    );
    assert_eq!(answer.headers()["x-codex-turn-state"], "sticky");
    assert_eq!(answer.headers()["x-request-id"], "turn-7");

    let sending = spawn(&bridge, &ask_whole());
    let mut whole = json_answer(200, &completed(&[])["response"]);
    for (name, value) in fields {
        whole.headers_mut().insert(name, value.parse().unwrap());
    }
    model.turn().await.answer(whole);
    let answer = sending.answer().await;
    assert_eq!(
        names(&answer),
        [
            "content-length",
            "content-type",
            "date",
            "x-codex-turn-state",
            "x-ratelimit-limit-requests",
            "x-request-id",
        ]
    );
}

#[tokio::test]
async fn the_clients_request_id_goes_up_comes_back_and_stands_in_errors() {
    let (bridge, mut model) = pair(Kind::Native).await;
    for body in [ask(), ask_whole()] {
        let request = post(&bridge, &body).header("x-request-id", "turn-7");
        let sending = spawn_request(request);
        let turn = model.turn().await;
        assert_eq!(turn.headers["x-request-id"], "turn-7");
        turn.refuse(500, &json!({"error": {"message": "parse failed"}}));
        let answer = sending.answer().await;
        assert_eq!(answer.headers()["x-request-id"], "turn-7");
        assert_eq!(error_message(answer).await, "parse failed (request turn-7)");
    }
    // In a stream too; `failure` looks for it.
    let sending = spawn(&bridge, &ask());
    drop(model.turn().await.stream());
    sending.events().await.failure().await;
}
