//! The connection to a model server over plain http, seen from the server's socket.

use codex_bridge::config::UpstreamKind;
use pretty_assertions::assert_eq;
use tokio::{
    net::TcpListener,
    time::{advance, pause, resume},
};

use crate::{
    client::{Events, ask, ask_whole, spawn},
    event::*,
    support::{Bridge, Raw, SECOND, config, error_message, json, soon, upstream},
};

const WHOLE: &str = r#"{"id":"resp_1","object":"response","status":"completed","output":[]}"#;

/// A bridge, and the port of the server behind it.
async fn pair() -> (Bridge, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = config(listener.local_addr().unwrap());
    upstream(&mut config).kind = UpstreamKind::Responses;
    (Bridge::start(config).await, listener)
}

async fn accept(listener: &TcpListener) -> Raw {
    Raw(soon(listener.accept()).await.unwrap().0)
}

/// Reads one request, and answers it with [`WHOLE`] and `fields`.
async fn answer(server: &mut Raw, fields: &str) {
    request(server).await;
    let length = WHOLE.len();
    let head = "HTTP/1.1 200 OK\ncontent-type: application/json";
    server
        .send(&format!(
            "{head}\ncontent-length: {length}\n{fields}\n{WHOLE}"
        ))
        .await;
}

/// The head of the next request; its body is read too.
async fn request(server: &mut Raw) -> String {
    let head = server.until("\r\n\r\n").await.to_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let length = length.unwrap().parse().unwrap();
    let mut body = String::new();
    while body.len() < length {
        body += &server.until("}").await;
    }
    assert_eq!(body.len(), length, "{body}");
    head
}

#[tokio::test]
async fn the_endpoint_is_asked_by_its_path_and_the_server_by_its_name() {
    let (bridge, listener) = pair().await;
    let sending = spawn(&bridge, &ask_whole());
    let mut server = accept(&listener).await;
    let head = request(&mut server).await;
    assert!(
        head.starts_with("post /v1/responses http/1.1\r\n"),
        "{head}"
    );
    let host = format!("\r\nhost: {}\r\n", listener.local_addr().unwrap());
    assert_eq!(head.matches(&host).count(), 1, "{head}");
    sending.leave();
}

#[tokio::test]
async fn a_connection_the_server_closed_while_it_was_idle_costs_no_request() {
    let (bridge, listener) = pair().await;
    let sending = spawn(&bridge, &ask_whole());
    let mut server = accept(&listener).await;
    answer(&mut server, "").await;
    assert_eq!(sending.answer().await.status(), 200);
    drop(server);
    let sending = spawn(&bridge, &ask_whole());
    answer(&mut accept(&listener).await, "").await;
    assert_eq!(json(sending.answer().await).await["status"], "completed");
}

#[tokio::test]
async fn a_connection_that_the_server_says_it_will_close_is_not_used_again() {
    let (bridge, listener) = pair().await;
    let sending = spawn(&bridge, &ask_whole());
    let mut first = accept(&listener).await;
    answer(&mut first, "connection: close\n").await;
    assert_eq!(sending.answer().await.status(), 200);
    let sending = spawn(&bridge, &ask_whole());
    answer(&mut accept(&listener).await, "").await;
    assert_eq!(sending.answer().await.status(), 200);
    assert_eq!(first.rest().await, "");
}

#[tokio::test]
async fn an_idle_connection_is_closed_before_a_llama_server_would_close_it() {
    let (bridge, listener) = pair().await;
    let sending = spawn(&bridge, &ask_whole());
    let mut server = accept(&listener).await;
    answer(&mut server, "").await;
    assert_eq!(sending.answer().await.status(), 200);
    pause();
    advance(5 * SECOND).await;
    resume();
    assert_eq!(server.rest().await, "");
}

#[tokio::test]
async fn a_switch_of_protocols_never_reaches_the_client() {
    for body in [ask(), ask_whole()] {
        let (bridge, listener) = pair().await;
        let sending = spawn(&bridge, &body);
        let mut server = accept(&listener).await;
        request(&mut server).await;
        let head = "HTTP/1.1 101 Switching Protocols\nconnection: upgrade\nupgrade: websocket";
        server.send(&format!("{head}\n\n")).await;
        let answer = sending.answer().await;
        assert_eq!(answer.status(), 400);
        let message = error_message(answer).await;
        assert!(message.contains("101 Switching Protocols"), "{message}");
    }
}

#[tokio::test]
async fn events_that_come_together_leave_together_behind_the_first() {
    let (bridge, listener) = pair().await;
    let sending = spawn(&bridge, &ask());
    let mut server = accept(&listener).await;
    request(&mut server).await;
    let mut whole =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            .to_owned();
    for event in turn("Hello") {
        let frame = frame(&event);
        whole += &format!("{:x}\r\n{frame}\r\n", frame.len());
    }
    whole += "0\r\n\r\n";
    soon(tokio::io::AsyncWriteExt::write_all(
        &mut server.0,
        whole.as_bytes(),
    ))
    .await
    .unwrap();
    let mut answer = sending.answer().await;
    let first = soon(answer.chunk()).await.unwrap().unwrap();
    let rest = soon(answer.chunk()).await.unwrap().unwrap();
    let [first, rest] = [first, rest].map(|chunk| String::from_utf8(chunk.to_vec()).unwrap());
    assert!(
        first.starts_with("event: response.created\n") && first.matches("event: ").count() == 1,
        "{first}"
    );
    assert!(
        rest.starts_with("event: response.in_progress\n") && rest.ends_with("data: [DONE]\n\n"),
        "{rest}"
    );
}

#[tokio::test]
async fn a_trailer_is_no_event() {
    let (bridge, listener) = pair().await;
    let sending = spawn(&bridge, &ask());
    let mut server = accept(&listener).await;
    request(&mut server).await;
    let frames: String = turn("Hello").iter().map(frame).collect();
    let length = frames.len();
    server
        .send("HTTP/1.1 200 OK\ncontent-type: text/event-stream\ntransfer-encoding: chunked\ntrailer: x-end\n\n")
        .await;
    let body = format!("{length:x}\r\n{frames}\r\n0\r\nx-end: 1\r\n\r\n");
    soon(tokio::io::AsyncWriteExt::write_all(
        &mut server.0,
        body.as_bytes(),
    ))
    .await
    .unwrap();
    let events = Events::of(sending.answer().await).rest().await;
    assert_eq!(outline(&events).last().unwrap(), "completed");
}

#[tokio::test]
async fn a_head_beyond_what_is_read_is_a_502_with_the_limit() {
    let (bridge, listener) = pair().await;
    let many: String = (0..101).map(|number| format!("x-{number}: 1\n")).collect();
    let long = format!("x-long: {}\n", "x".repeat(16 << 10));
    for fields in [many, long] {
        let sending = spawn(&bridge, &ask_whole());
        let mut server = accept(&listener).await;
        answer(&mut server, &fields).await;
        let refused = sending.answer().await;
        assert_eq!(refused.status(), 502);
        let message = error_message(refused).await;
        let limit =
            "the head of its answer has more than 16 KiB or 100 fields, the most that is read";
        assert!(message.contains(limit), "{message}");
    }
}
