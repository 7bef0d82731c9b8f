//! A client that leaves stops the work behind it.

use crate::{
    client::{BLINK, Events, LONG, ask, ask_whole, pair, pair_with, patient, send, spawn},
    event::*,
    model::{Kind, Shut},
    support::{Bridge, soon},
};

#[tokio::test]
async fn leaving_in_the_middle_of_a_stream_closes_the_upstream_connection() {
    for kind in [Kind::Llama, Kind::Native] {
        let (bridge, mut model) = pair(kind).await;
        let sending = spawn(&bridge, &ask());
        let feed = model.turn().await.stream();
        let mut events = sending.events().await;
        feed.events(&turn("Hello")[..5]).await;
        events.take(5).await;
        drop(events);
        feed.closed().await;

        // The next request is served at once.
        let sending = spawn(&bridge, &ask());
        model.turn().await.say("Short.").await;
        sending.events().await.rest().await;
    }
}

#[tokio::test]
async fn leaving_a_silent_prefill_closes_the_upstream_connection() {
    let (bridge, mut model) = pair_with(Kind::Llama, |config| {
        config.policy.keep_alive = Some(BLINK);
    })
    .await;
    let sending = spawn(&bridge, &ask());
    let feed = model.turn().await.stream();
    let mut events = sending.events().await;
    events.take(2).await;
    drop(events);
    feed.closed().await;
}

#[tokio::test]
async fn leaving_before_the_headers_closes_the_upstream_connection() {
    for body in [ask(), ask_whole()] {
        let (bridge, mut model) = pair(Kind::Native).await;
        let sending = spawn(&bridge, &body);
        let turn = model.turn().await;
        sending.leave();
        turn.abandoned().await;
    }
}

#[tokio::test]
async fn leaving_a_whole_answer_of_llama_server_cancels_its_stream() {
    let (bridge, mut model) = pair(Kind::Llama).await;
    let sending = spawn(&bridge, &ask_whole());
    let feed = model.turn().await.stream();
    feed.events(&turn("Hello")[..5]).await;
    sending.leave();
    feed.closed().await;
}

#[tokio::test]
async fn leaving_during_the_wait_ends_the_wait() {
    // In a stream, with the request just taken by a server that does not answer it.
    let shut = Shut::new();
    let bridge = Bridge::start(patient(shut.address, LONG)).await;
    let events = Events::of(send(&bridge, &ask()).await);
    let mut model = shut.open(Kind::Llama);
    let turn = model.turn().await;
    drop(events);
    turn.abandoned().await;

    // Without one.
    let shut = Shut::new();
    let bridge = Bridge::start(patient(shut.address, LONG)).await;
    let sending = spawn(&bridge, &ask_whole());
    let mut model = shut.open(Kind::Llama);
    let turn = model.turn().await;
    sending.leave();
    turn.abandoned().await;
}

#[tokio::test]
async fn a_client_that_reads_nothing_holds_the_model_server_back() {
    let (bridge, mut model) = pair_with(Kind::Native, |config| {
        config.limits.max_held_bytes = usize::MAX;
    })
    .await;
    let sending = spawn(&bridge, &ask());
    let feed = model.turn().await.stream();
    let answer = sending.answer().await;
    feed.events(&[created(), message_added("m")]).await;
    let delta = text("m", &"x".repeat(512 * 1024));
    // Socket buffers take some; then the gate stays shut, however much else the bridge does.
    let mut taken = 0;
    let mut idle = 0;
    while idle < 20 {
        if feed.is_taking() {
            feed.events(std::slice::from_ref(&delta)).await;
            (taken, idle) = (taken + 1, 0);
            assert!(taken < 200, "100 MB were taken for nobody");
        } else {
            soon(bridge.get("/metrics").send()).await.unwrap();
            idle += 1;
        }
    }
    drop(answer);
    feed.closed().await;
}
