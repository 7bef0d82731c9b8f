//! Streams that go wrong. Each ends with exactly one `response.failed` that says what broke and bears the request's id
//! (`Events` counts), and the model server's connection is let go.

use codex_bridge::config::UpstreamKind;
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::{
    client::{Events, ask, ask_with_tools, pair, pair_with, spawn},
    event::*,
    model::{Feed, Kind},
    support::{Bridge, upstream},
};

/// A stream that has begun: three deltas of a message are with the client.
async fn begun(kind: Kind) -> (Bridge, Feed, Events) {
    let (bridge, mut model) = pair(kind).await;
    let sending = spawn(&bridge, &ask_with_tools());
    let feed = model.turn().await.stream();
    let mut events = sending.events().await;
    feed.events(&[
        created(),
        message_added("m"),
        part_added("m"),
        text("m", "a"),
        text("m", "b"),
        text("m", "c"),
    ])
    .await;
    events.take(6).await;
    (bridge, feed, events)
}

fn failure(code: &str, message: &str) -> (String, String) {
    (code.to_owned(), message.to_owned())
}

const CLOSED: &str = "the model server closed the stream before the response was complete";

#[tokio::test]
async fn a_stream_that_closes_early_fails_and_says_so() {
    for kind in [Kind::Llama, Kind::Native] {
        let (_bridge, feed, mut events) = begun(kind).await;
        drop(feed);
        assert_eq!(events.failure().await, failure("server_error", CLOSED));
    }
}

#[tokio::test]
async fn a_connection_that_breaks_fails_and_says_so() {
    let (_bridge, feed, mut events) = begun(Kind::Llama).await;
    feed.cut().await;
    let (code, message) = events.failure().await;
    assert_eq!(code, "server_error");
    assert!(
        message.starts_with("the connection to the model server broke: "),
        "{message}"
    );
}

#[tokio::test]
async fn done_alone_completes_nothing() {
    let (_bridge, feed, mut events) = begun(Kind::Native).await;
    feed.bytes("data: [DONE]\n\n").await;
    drop(feed);
    assert_eq!(events.failure().await, failure("server_error", CLOSED));
}

#[tokio::test]
async fn an_empty_stream_fails_and_says_so() {
    let (bridge, mut model) = pair(Kind::Llama).await;
    let sending = spawn(&bridge, &ask());
    drop(model.turn().await.stream());
    let mut events = sending.events().await;
    assert_eq!(events.failure().await, failure("server_error", CLOSED));
}

#[tokio::test]
async fn the_model_servers_own_reason_is_passed_on() {
    for (bytes, told) in [
        (
            "event: error\ndata: {\"type\":\"error\",\"message\":\"parse failed\"}\n\n",
            failure("server_error", "parse failed"),
        ),
        (
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"message\":\"nested\",\"code\":\"own_code\"}}\n\n",
            failure("own_code", "nested"),
        ),
        (
            "data: {\"error\":\"boo\"}\n\n",
            failure("server_error", "boo"),
        ),
        (
            "event: error\ndata: {\"type\":\"error\",\"error\":\"boo\"}\n\n",
            failure("server_error", "boo"),
        ),
        (
            "data: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":\"boo\"}}\n\n",
            failure("server_error", "boo"),
        ),
        (
            "data: {\"error\":{\"code\":500,\"message\":\"Unexpected empty grammar stack\",\"type\":\"server_error\"}}\n\n",
            failure("server_error", "Unexpected empty grammar stack"),
        ),
        (
            "data: {\"error\":{\"code\":400,\"message\":\"too long\",\"type\":\"exceed_context_size_error\"}}\n\n",
            failure("context_length_exceeded", "too long"),
        ),
        (
            "data: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"rate_limit_exceeded\",\"message\":\"slow down\"}}}\n\n",
            failure("rate_limit_exceeded", "slow down"),
        ),
        (
            "data: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\"}}\n\n",
            failure(
                "server_error",
                "the model server reported that the response failed, without a reason",
            ),
        ),
    ] {
        let (_bridge, feed, mut events) = begun(Kind::Llama).await;
        feed.bytes(bytes).await;
        assert_eq!(events.failure().await, told);
        feed.closed().await;
    }
}

#[tokio::test]
async fn nonsense_fails_and_says_so() {
    for (bytes, told) in [
        (
            "data: 7\n\n",
            "the model server sent an event that is no JSON object",
        ),
        (
            "data: {\"a\":\n\n",
            "the model server sent an event that is no JSON object",
        ),
        (
            "data: {\"a\":1}\n\n",
            "the model server sent an event without a type",
        ),
        (
            "event: b\ndata: {\"type\":\"a\"}\n\n",
            "the model server sent an event called both \"b\" and \"a\"",
        ),
        (
            "data: {\"type\":\"response.completed\"}\n\n",
            "the model server sent response.completed without a response object",
        ),
        (
            "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"failed\"}}\n\n",
            "the model server sent response.completed with the status \"failed\"",
        ),
    ] {
        let (_bridge, feed, mut events) = begun(Kind::Llama).await;
        feed.bytes(bytes).await;
        let (code, message) = events.failure().await;
        assert_eq!(code, "server_error");
        assert!(message.starts_with(told), "{message}");
        feed.closed().await;
    }
}

#[tokio::test]
async fn a_failure_keeps_the_items_that_were_finished() {
    let (bridge, mut model) = pair_with(Kind::Native, |config| {
        upstream(config).kind = UpstreamKind::Responses;
    })
    .await;
    let sending = spawn(&bridge, &ask_with_tools());
    let feed = model.turn().await.stream();
    let call = call("f", "exec", "{}");
    feed.events(&[
        created(),
        call_added("f", "exec"),
        done(&call),
        message_added("m"),
        text("m", "a"),
    ])
    .await;
    drop(feed);
    let events = sending.events().await.rest().await;
    let response = &events.last().unwrap()["response"];
    assert_eq!(response["status"], "failed");
    assert_eq!(response["output"], json!([call]));
}

#[tokio::test]
async fn the_first_terminal_event_wins_and_the_connection_is_released() {
    let (_bridge, feed, mut events) = begun(Kind::Llama).await;
    let message = message("m", "abc");
    feed.events(&[
        done(&message),
        completed(&[message]),
        text("m", "more"),
        json!({"type": "response.failed", "response": {"status": "failed"}}),
    ])
    .await;
    assert_eq!(outline(&events.rest().await).last().unwrap(), "completed");
    // Open on its own side, and silent.
    feed.closed().await;
}

#[tokio::test]
async fn a_terminal_event_that_the_closing_cut_off_from_its_blank_line_counts() {
    let (_bridge, feed, mut events) = begun(Kind::Native).await;
    let message = message("m", "abc");
    feed.events(&[done(&message)]).await;
    feed.bytes(frame(&completed(&[message])).trim_end().to_owned())
        .await;
    drop(feed);
    assert_eq!(outline(&events.rest().await).last().unwrap(), "completed");
}

#[tokio::test]
async fn bad_utf8_becomes_a_replacement_character_and_is_counted() {
    for kind in [Kind::Llama, Kind::Native] {
        let (bridge, feed, mut events) = begun(kind).await;
        feed.bytes(
            &b"data: {\"type\":\"response.output_text.delta\",\"item_id\":\"m\",\"delta\":\"x\xff\xfey\xe2\x82\"}\n\n"[..],
        )
        .await;
        assert_eq!(events.next().await["delta"], "x\u{fffd}\u{fffd}y\u{fffd}");
        let message = message("m", "abcxy");
        feed.events(&[done(&message), completed(&[message])]).await;
        events.rest().await;
        let metrics = bridge.get("/metrics").send().await.unwrap();
        let metrics = metrics.text().await.unwrap();
        let counted = metrics
            .lines()
            .find(|line| line.contains("replaced") && !line.starts_with('#'));
        let counted = counted.unwrap_or_else(|| panic!("{metrics}"));
        assert!(counted.ends_with(" 3"), "{counted}");
    }
}

#[tokio::test]
async fn bytes_may_be_split_anywhere_and_lines_end_anyhow() {
    for ends in ["\n", "\r\n", "\r"] {
        let (bridge, mut model) = pair(Kind::Llama).await;
        let sending = spawn(&bridge, &ask());
        let feed = model.turn().await.stream();
        let whole: String = turn("Grüße 🦀").iter().map(frame).collect();
        let whole = format!("\u{feff}{}", whole.replace('\n', ends));
        for piece in whole.into_bytes().chunks(7) {
            feed.bytes(piece.to_vec()).await;
        }
        let events = sending.events().await.rest().await;
        let terminal = events.last().unwrap();
        let said = &terminal["response"]["output"][0]["content"][0]["text"];
        assert_eq!(said, "Grüße 🦀", "{ends:?}");
    }
}
