//! The client's side. [`Events`] holds every stream it reads to the laws that hold for all of them.

use std::{net::SocketAddr, time::Duration};

use codex_bridge::config::{Config, UpstreamKind};
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};

use crate::{
    model::{Kind, Model},
    support::{self, Bridge, SECOND, soon},
};

pub(crate) const BLINK: Duration = Duration::from_millis(50);

/// A bridge before `model`.
pub(crate) async fn bridge(model: &Model) -> Bridge {
    Bridge::start(support::config(model.address)).await
}

/// A bridge before a server of `kind`, and that server.
pub(crate) async fn pair(kind: Kind) -> (Bridge, Model) {
    let model = Model::start(kind);
    (bridge(&model).await, model)
}

/// The same, with a configuration of its own.
pub(crate) async fn pair_with(kind: Kind, change: impl FnOnce(&mut Config)) -> (Bridge, Model) {
    let model = Model::start(kind);
    let mut config = support::config(model.address);
    change(&mut config);
    (Bridge::start(config).await, model)
}

/// A configuration that waits for the server at `address`.
pub(crate) fn patient(address: SocketAddr, wait: Duration) -> Config {
    let mut config = support::config(address);
    let upstream = support::upstream(&mut config);
    upstream.wait_for_ready = Some(wait);
    upstream.kind = UpstreamKind::LlamaCpp;
    config
}

/// A request whose wait is as long as a test may take.
pub(crate) const LONG: Duration = SECOND.saturating_mul(30);

/// What Codex would ask, in small.
pub(crate) fn ask() -> Value {
    json!({"model": "m", "stream": true, "input": "hi"})
}

/// The same, for one JSON answer.
pub(crate) fn ask_whole() -> Value {
    json!({"model": "m", "input": "hi"})
}

/// A request with a plain function, a namespaced one and a custom one.
pub(crate) fn ask_with_tools() -> Value {
    json!({"model": "m", "stream": true, "input": "hi", "tools": [
        {"type": "function", "name": "exec", "parameters": {"type": "object"}},
        {"type": "namespace", "name": "mcp__desk", "tools": [
            {"type": "function", "name": "find", "parameters": {"type": "object"}}]},
        {"type": "custom", "name": "apply_patch", "description": "edits"},
    ]})
}

pub(crate) fn post(bridge: &Bridge, body: &Value) -> RequestBuilder {
    let request = bridge.post("/v1/responses");
    request
        .header("content-type", "application/json")
        .body(body.to_string())
}

pub(crate) async fn send(bridge: &Bridge, body: &Value) -> Response {
    soon(post(bridge, body).send()).await.unwrap()
}

/// A request on its way, for a test that must answer it first.
pub(crate) fn spawn(bridge: &Bridge, body: &Value) -> Sending {
    spawn_request(post(bridge, body))
}

pub(crate) fn spawn_request(request: RequestBuilder) -> Sending {
    Sending(tokio::spawn(async move { request.send().await.unwrap() }))
}

pub(crate) struct Sending(tokio::task::JoinHandle<Response>);

impl Sending {
    pub(crate) async fn answer(self) -> Response {
        soon(self.0).await.unwrap()
    }

    pub(crate) async fn events(self) -> Events {
        Events::of(self.answer().await)
    }

    /// The client hangs up.
    pub(crate) fn leave(self) {
        self.0.abort();
    }
}

/// An event stream, read frame by frame: numbered from 0, named like its data, without comments, of one response, begun
/// by `created`, and with nothing but `[DONE]` after the first terminal event.
pub(crate) struct Events {
    answer: Response,
    unread: Vec<u8>,
    count: u64,
    id: Option<Value>,
    over: bool,
}

impl Events {
    pub(crate) fn of(answer: Response) -> Self {
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        Self {
            answer,
            unread: Vec::new(),
            count: 0,
            id: None,
            over: false,
        }
    }

    pub(crate) fn request_id(&self) -> String {
        let id = &self.answer.headers()["x-request-id"];
        id.to_str().unwrap().to_owned()
    }

    /// The next event as text, `None` at the end of the stream.
    pub(crate) async fn text(&mut self) -> Option<String> {
        let frame = self.frame().await?;
        if frame == "data: [DONE]" {
            assert!(self.over, "[DONE] before the terminal event");
            assert_eq!(self.frame().await, None, "more than [DONE] at the end");
            return None;
        }
        assert!(!self.over, "after the terminal event: {frame}");
        let (name, data) = frame
            .split_once('\n')
            .unwrap_or_else(|| panic!("{frame:?}"));
        let name = name
            .strip_prefix("event: ")
            .unwrap_or_else(|| panic!("{frame:?}"));
        let data = data
            .strip_prefix("data: ")
            .unwrap_or_else(|| panic!("{frame:?}"));
        self.judge(name, data);
        Some(data.to_owned())
    }

    pub(crate) async fn next(&mut self) -> Value {
        let text = self.text().await.expect("one more event");
        serde_json::from_str(&text).unwrap()
    }

    pub(crate) async fn take(&mut self, count: usize) -> Vec<Value> {
        let mut events = Vec::new();
        while events.len() < count {
            events.push(self.next().await);
        }
        events
    }

    /// Everything to the end; the last is a terminal event.
    pub(crate) async fn rest(&mut self) -> Vec<Value> {
        let mut events = Vec::new();
        while let Some(text) = self.text().await {
            events.push(serde_json::from_str(&text).unwrap());
        }
        assert!(self.over, "no terminal event: {events:?}");
        events
    }

    /// The error of the one `response.failed` that must be all that is left; its code and its message without the
    /// request's id, which it must bear.
    pub(crate) async fn failure(&mut self) -> (String, String) {
        let rest = self.rest().await;
        let failed = rest.last().unwrap();
        assert_eq!(failed["type"], "response.failed", "{failed}");
        let error = &failed["response"]["error"];
        let message = error["message"].as_str().unwrap();
        let id = format!(" (request {})", self.request_id());
        let message = message
            .strip_suffix(&id)
            .unwrap_or_else(|| panic!("no request id: {message}"));
        (
            error["code"].as_str().unwrap().to_owned(),
            message.to_owned(),
        )
    }

    fn judge(&mut self, name: &str, data: &str) {
        let event: Value = serde_json::from_str(data).unwrap();
        assert_eq!(event["type"], name);
        assert_eq!(event["sequence_number"], self.count, "{event}");
        assert_eq!(self.count == 0, name == "response.created", "{event}");
        self.count += 1;
        if let Some(id) = event["response"].get("id") {
            assert!(id.as_str().is_some_and(|id| !id.is_empty()), "{event}");
            assert_eq!(self.id.get_or_insert_with(|| id.clone()), id);
        }
        self.over = matches!(
            name,
            "response.completed" | "response.incomplete" | "response.failed"
        );
    }

    async fn frame(&mut self) -> Option<String> {
        loop {
            let end = self.unread.windows(2).position(|pair| pair == b"\n\n");
            if let Some(end) = end {
                let frame = self.unread.drain(..end + 2).take(end).collect();
                return Some(String::from_utf8(frame).unwrap());
            }
            match soon(self.answer.chunk()).await.expect("an honest end") {
                Some(chunk) => self.unread.extend_from_slice(&chunk),
                None => {
                    assert_eq!(self.unread, b"", "half a frame at the end");
                    return None;
                }
            }
        }
    }
}
