use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use codex_bridge::config::{Config, Secret};
use futures_util::stream;
use http::{HeaderMap, Response};
use http_body_util::BodyExt;
use pretty_assertions::assert_eq;
use reqwest::{Body, Method};
use tokio::sync::mpsc;

use crate::{
    scripted::{self, Scripted, gated},
    support::{Bridge, SECOND, ask, config, error_message, nobody, soon},
};

fn behind(server: &Scripted) -> Config {
    let mut config = config(nobody());
    config.mcp_proxy = Some(
        format!("http://{}/servers", server.address)
            .parse()
            .unwrap(),
    );
    config
}

/// Sends the request's body back.
async fn echo() -> Scripted {
    Scripted::start(|request| async move {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        Response::new(http_body_util::Full::new(body).boxed())
    })
    .await
}

fn fields(headers: &HeaderMap) -> Vec<String> {
    let mut fields: Vec<_> = headers
        .iter()
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    fields.sort_unstable();
    fields
}

#[tokio::test]
async fn a_request_goes_up_with_its_end_to_end_fields_only() {
    let mut server = echo().await;
    let mut config = behind(&server);
    config.listen.api_key = Some(Secret::new("k-test"));
    let bridge = Bridge::start(config).await;
    let answer = bridge
        .post("/mcp/ddg-search_2?a=1&b=%20")
        .bearer_auth("k-test")
        .header("x-api-key", "k-test")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-session-id", "s1")
        .header("mcp-protocol-version", "2025-06-18")
        .header("connection", "keep-alive, x-private")
        .header("x-private", "1")
        .header("keep-alive", "timeout=5")
        .header("te", "trailers")
        .header("accept-encoding", "gzip")
        .body("{}")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.text().await.unwrap(), "{}");
    let seen = server.request().await;
    assert_eq!(seen.method, Method::POST);
    assert_eq!(seen.uri, "/servers/ddg-search_2/mcp?a=1&b=%20");
    assert_eq!(
        fields(&seen.headers),
        [
            "accept: application/json, text/event-stream".to_owned(),
            "content-length: 2".to_owned(),
            format!("host: {}", server.address),
            "mcp-protocol-version: 2025-06-18".to_owned(),
            "mcp-session-id: s1".to_owned(),
        ]
    );
}

#[tokio::test]
async fn an_answer_comes_down_untouched_with_its_cookies_apart() {
    let server = Scripted::start(|_| async {
        Response::builder()
            .status(202)
            .header("set-cookie", "a=1; Expires=Mon, 01 Jan 2029 00:00:00 GMT")
            .header("set-cookie", "b=2")
            .header("content-encoding", "gzip")
            .header("mcp-session-id", "s1")
            .header("connection", "x-private")
            .header("x-private", "1")
            .header("keep-alive", "timeout=5")
            .body(scripted::text("not gzip at all"))
            .unwrap()
    })
    .await;
    let bridge = Bridge::start(behind(&server)).await;
    let answer = bridge.get("/mcp/a").send().await.unwrap();
    assert_eq!(answer.status(), 202);
    let mut headers = answer.headers().clone();
    for ours in ["x-request-id", "date"] {
        headers.remove(ours).unwrap();
    }
    assert_eq!(
        fields(&headers),
        [
            "content-encoding: gzip",
            "content-length: 15",
            "mcp-session-id: s1",
            "set-cookie: a=1; Expires=Mon, 01 Jan 2029 00:00:00 GMT",
            "set-cookie: b=2",
        ]
    );
    assert_eq!(answer.text().await.unwrap(), "not gzip at all");
}

#[tokio::test]
async fn every_method_passes_and_a_request_without_a_body_stays_so() {
    let mut server = Scripted::start(|_| async { Response::new(scripted::text("")) }).await;
    let bridge = Bridge::start(behind(&server)).await;
    for method in [
        Method::GET,
        Method::HEAD,
        Method::DELETE,
        Method::OPTIONS,
        Method::PATCH,
    ] {
        let answer = bridge
            .request(method.clone(), "/mcp/a")
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 200);
        let seen = server.request().await;
        assert_eq!(seen.method, method);
        assert_eq!(seen.headers.get("transfer-encoding"), None);
        assert_eq!(seen.headers.get("content-length"), None);
    }
    let (status, _) = ask(&bridge, "TRACE /mcp/a HTTP/1.1\nhost: localhost").await;
    assert_eq!(status, 405);
}

#[tokio::test]
async fn a_redirect_is_handed_back() {
    let server = Scripted::start(|_| async {
        Response::builder()
            .status(307)
            .header("location", "http://elsewhere.example/mcp")
            .body(scripted::text(""))
            .unwrap()
    })
    .await;
    let bridge = Bridge::start(behind(&server)).await;
    let answer = bridge.post("/mcp/a").body("{}").send().await.unwrap();
    assert_eq!(answer.status(), 307);
    assert_eq!(answer.headers()["location"], "http://elsewhere.example/mcp");
}

#[tokio::test]
async fn an_event_stream_is_live_and_ends_with_its_reader() {
    let (feed, body) = gated();
    let body = Arc::new(Mutex::new(Some(body)));
    let server = Scripted::start(move |_| {
        let answer = Response::builder()
            .header("content-type", "text/event-stream")
            .body(body.lock().unwrap().take().unwrap())
            .unwrap();
        async move { answer }
    })
    .await;
    let bridge = Bridge::start(behind(&server)).await;
    let mut answer = bridge.get("/mcp/a").send().await.unwrap();
    for event in ["data: 1\n\n", "data: 2\n\n"] {
        feed.send(event).await.unwrap();
        assert_eq!(soon(answer.chunk()).await.unwrap().unwrap(), event);
    }
    drop(answer);
    soon(feed.closed()).await;
}

#[tokio::test]
async fn no_silence_is_too_long_for_an_answer_or_a_stream() {
    let (feed, body) = gated();
    let (open, gate) = tokio::sync::watch::channel(false);
    let body = Arc::new(Mutex::new(Some(body)));
    let mut server = Scripted::start(move |_| {
        let answer = Response::new(body.lock().unwrap().take().unwrap());
        let mut gate = gate.clone();
        async move {
            gate.wait_for(|open| *open).await.unwrap();
            answer
        }
    })
    .await;
    let bridge = Bridge::start(behind(&server)).await;
    let waiting = tokio::spawn(bridge.get("/mcp/a").send());
    server.request().await;
    an_hour().await;
    open.send(true).unwrap();
    let mut answer = soon(waiting).await.unwrap().unwrap();
    an_hour().await;
    feed.send("data: 1\n\n").await.unwrap();
    assert_eq!(soon(answer.chunk()).await.unwrap().unwrap(), "data: 1\n\n");
}

/// Lets every timer of the process go off that would within an hour.
async fn an_hour() {
    tokio::time::pause();
    tokio::time::sleep(3600 * SECOND).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_client_that_leaves_before_the_answer_takes_its_request_along() {
    let (left, mut gone) = mpsc::channel::<()>(1);
    let mut server = Scripted::start(move |_| {
        let held = left.clone();
        async move {
            // Dropped, with its sender, when the bridge hangs up.
            let _held = held;
            std::future::pending().await
        }
    })
    .await;
    let bridge = Bridge::start(behind(&server)).await;
    let waiting = tokio::spawn(bridge.post("/mcp/a").body("{}").send());
    server.request().await;
    waiting.abort();
    // The script itself holds one sender for ever; the request's own is what must go.
    soon(async {
        while gone.sender_strong_count() > 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    gone.close();
}

#[tokio::test]
async fn an_upload_streams_upward_while_it_comes() {
    let (seen, mut chunks) = mpsc::unbounded_channel();
    let server = Scripted::start(move |request| {
        let seen = seen.clone();
        async move {
            let mut body = request.into_body();
            while let Some(Ok(frame)) = body.frame().await {
                let _ = seen.send(frame.into_data().unwrap());
            }
            Response::new(scripted::text("done"))
        }
    })
    .await;
    let bridge = Bridge::start(behind(&server)).await;
    let (feed, receiver) = mpsc::channel::<Bytes>(1);
    let body = stream::unfold(receiver, |mut receiver| async move {
        let chunk = receiver.recv().await?;
        Some((Ok::<_, std::io::Error>(chunk), receiver))
    });
    let request = bridge.post("/mcp/a").body(Body::wrap_stream(body));
    let answer = tokio::spawn(request.send());
    for chunk in ["one", "two"] {
        feed.send(Bytes::from_static(chunk.as_bytes()))
            .await
            .unwrap();
        assert_eq!(soon(chunks.recv()).await.unwrap(), chunk);
    }
    drop(feed);
    let answer = soon(answer).await.unwrap().unwrap();
    assert_eq!(answer.text().await.unwrap(), "done");
}

#[tokio::test]
async fn an_upload_over_the_limit_is_413_both_ways() {
    let mut server = echo().await;
    let bridge = Bridge::start(behind(&server)).await;
    let declared = bridge.post("/mcp/a").body(vec![b' '; 16 * 1024 + 1]);
    let answer = declared.send().await.unwrap();
    assert_eq!(answer.status(), 413);
    error_message(answer).await;
    assert_eq!(server.seen(), 0, "a declared length is judged first");

    let chunk = Ok::<_, Infallible>(Bytes::from(vec![b' '; 4096]));
    let chunked = Body::wrap_stream(stream::iter(vec![chunk; 64]));
    let answer = bridge.post("/mcp/a").body(chunked).send().await.unwrap();
    assert_eq!(answer.status(), 413);
    assert!(error_message(answer).await.contains("16384"));
    server.request().await;

    let fits = bridge.post("/mcp/a").body(vec![b' '; 16 * 1024]);
    assert_eq!(
        fits.send().await.unwrap().bytes().await.unwrap().len(),
        16 * 1024
    );
}

#[tokio::test]
async fn expect_100_continue_is_answered_here() {
    let mut server = echo().await;
    let bridge = Bridge::start(behind(&server)).await;
    let mut raw = bridge.connect().await;
    raw.send("POST /mcp/a HTTP/1.1\nhost: localhost\nexpect: 100-continue\ncontent-length: 2\n\n")
        .await;
    assert_eq!(raw.until("\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    raw.send("{}").await;
    let answer = raw.until("{}").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(server.request().await.headers.get("expect"), None);
}

#[tokio::test]
async fn a_server_that_is_down_is_a_502_that_names_it() {
    let down = nobody();
    let mut config = config(nobody());
    config.mcp_proxy = Some(format!("http://{down}/s").parse().unwrap());
    let bridge = Bridge::start(config).await;
    let answer = bridge.post("/mcp/finder").body("{}").send().await.unwrap();
    assert_eq!(answer.status(), 502);
    let message = error_message(answer).await;
    assert!(
        message.contains("finder") && message.contains(&down.to_string()),
        "{message}"
    );
}

#[tokio::test]
async fn without_the_setting_the_answer_says_so() {
    let bridge = Bridge::start(config(nobody())).await;
    let answer = bridge.post("/mcp/notes").body("{}").send().await.unwrap();
    assert_eq!(answer.status(), 404);
    let message = error_message(answer).await;
    assert!(
        message.starts_with("the bridge setting mcpProxy is not set, "),
        "{message}"
    );
}

#[tokio::test]
async fn only_a_plain_name_is_relayed() {
    let server = echo().await;
    let bridge = Bridge::start(behind(&server)).await;
    for path in [
        "/mcp",
        "/mcp/",
        "/mcp/a.b",
        "/mcp/a%2Fb",
        "/mcp/a/b",
        "/v1/mcp/a",
    ] {
        let (status, _) = ask(&bridge, &format!("GET {path} HTTP/1.1\nhost: localhost")).await;
        assert_eq!(status, 404, "{path}");
    }
    assert_eq!(server.seen(), 0);
}

#[tokio::test]
async fn a_whole_answer_of_known_length_is_no_disconnect() {
    let server = echo().await;
    let bridge = Bridge::start(behind(&server)).await;
    let answer = bridge.post("/mcp/a").body("whole").send().await.unwrap();
    assert_eq!(answer.headers()["content-length"], "5");
    assert_eq!(answer.text().await.unwrap(), "whole");
    let metrics = bridge.get("/metrics").send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    assert!(
        metrics.contains("codex_bridge_disconnects_total 0"),
        "{metrics}"
    );
}
