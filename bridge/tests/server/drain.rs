use std::sync::{Arc, Mutex};

use http::Response;
use tokio::net::TcpStream;

use crate::{
    scripted::{self, Scripted, gated},
    support::{Bridge, SECOND, config, nobody, soon},
};

/// An MCP server whose one answer is a stream that the test feeds.
pub(crate) async fn streaming() -> (Scripted, tokio::sync::mpsc::Sender<&'static str>) {
    let (feed, body) = gated();
    let body = Arc::new(Mutex::new(Some(body)));
    let server = Scripted::start(move |_| {
        let body = body.lock().unwrap().take();
        let answer = Response::new(body.unwrap_or_else(|| scripted::text("")));
        async move { answer }
    })
    .await;
    (server, feed)
}

#[tokio::test]
async fn an_open_answer_ends_and_new_connections_are_refused() {
    let (server, feed) = streaming().await;
    let mut config = config(nobody());
    config.mcp_proxy = Some(format!("http://{}/s", server.address).parse().unwrap());
    let mut bridge = Bridge::start(config).await;
    let mut raw = bridge.connect().await;
    raw.send("GET /mcp/a HTTP/1.1\nhost: localhost\n\n").await;
    feed.send("one").await.unwrap();
    raw.until("one\r\n").await;
    let mut idle = bridge.connect().await;
    idle.send("GET /nowhere HTTP/1.1\nhost: localhost\n\n")
        .await;
    idle.until("}}").await;

    bridge.stop();
    assert_eq!(idle.rest().await, "", "an idle connection closes at once");
    assert!(TcpStream::connect(bridge.address).await.is_err());
    feed.send("two").await.unwrap();
    raw.until("two\r\n").await;
    drop(feed);
    assert_eq!(raw.rest().await, "0\r\n\r\n");
    bridge.stopped().await;
}

#[tokio::test]
async fn an_answer_that_does_not_end_is_cut_at_the_deadline() {
    let (server, feed) = streaming().await;
    let mut config = config(nobody());
    config.mcp_proxy = Some(format!("http://{}/s", server.address).parse().unwrap());
    config.shutdown_grace = SECOND / 20;
    let mut bridge = Bridge::start(config).await;
    let mut raw = bridge.connect().await;
    raw.send("GET /mcp/a HTTP/1.1\nhost: localhost\n\n").await;
    feed.send("one").await.unwrap();
    raw.until("one\r\n").await;
    bridge.stop();
    bridge.stopped().await;
    soon(feed.closed()).await;
    assert!(
        !raw.rest().await.contains("0\r\n\r\n"),
        "a cut answer must not look whole"
    );
}

#[tokio::test]
async fn health_says_draining_on_a_connection_that_is_still_open() {
    let server = Scripted::llama().await;
    let mut bridge = Bridge::start(config(server.address)).await;
    let mut raw = bridge.connect().await;
    raw.send("GET /health HTTP/1.1\nho").await;
    // Once another client was served, the half head has been read too: one thread runs all of this.
    assert_eq!(bridge.get("/health").send().await.unwrap().status(), 200);
    bridge.stop();
    while TcpStream::connect(bridge.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    raw.send("st: localhost\n\n").await;
    let answer = raw.rest().await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains(r#""status":"draining""#), "{answer}");
    bridge.stopped().await;
}

#[tokio::test]
async fn who_has_no_answer_when_the_grace_is_over_is_told_so() {
    let (server, _feed) = streaming().await;
    let mut config = config(nobody());
    config.mcp_proxy = Some(format!("http://{}/s", server.address).parse().unwrap());
    config.shutdown_grace = SECOND / 20;
    let mut bridge = Bridge::start(config).await;
    let heads = [
        // Half a head, and a head whose body does not come.
        "GET /health HTTP/1.1\nho",
        "POST /v1/responses HTTP/1.1\nhost: localhost\ncontent-length: 9\n\n{",
    ];
    let mut waiting = Vec::new();
    for head in heads {
        let mut raw = bridge.connect().await;
        raw.send(head).await;
        waiting.push(raw);
    }
    // Once another client was served, all that has been read too: one thread runs all of this.
    bridge.get("/nowhere").send().await.unwrap();
    bridge.stop();
    for raw in &mut waiting {
        let answer = raw.rest().await;
        assert!(
            answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"),
            "{answer}"
        );
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("\r\nretry-after: 1"), "{answer}");
        assert!(head.contains("\r\nconnection: close"), "{answer}");
        assert!(
            head.contains(&format!("\r\ncontent-length: {}", body.len())),
            "{answer}"
        );
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        let message = body["error"]["message"].as_str().unwrap();
        assert!(
            message.starts_with("the bridge is stopping (request "),
            "{message}"
        );
    }
    bridge.stopped().await;
}
