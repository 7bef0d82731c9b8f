//! A plain HTTP client of the bridge, for what Codex itself does not ask, and the laws of what comes back.

use std::{collections::VecDeque, time::Duration};

use anyhow::{Context, Result, ensure};
use reqwest::StatusCode;
use serde_json::Value;

use crate::script::PATIENCE;

/// A client that speaks to loopback only. reqwest wants a TLS provider even for that.
pub fn client() -> Result<reqwest::Client> {
    // An error says that another call has installed it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder()
        .no_proxy()
        .connect_timeout(Duration::from_secs(10));
    builder
        .timeout(PATIENCE)
        .build()
        .context("build an HTTP client")
}

/// `GET`, whose answer is JSON.
pub async fn get(url: &str) -> Result<Value> {
    let text = client()?.get(url).send().await?.text().await?;
    serde_json::from_str(&text).with_context(|| text.clone())
}

/// `POST <base_url>/responses`, read to the end.
pub async fn post(base_url: &str, body: &Value) -> Result<(StatusCode, String)> {
    let request = client()?
        .post(format!("{base_url}/responses"))
        .header("content-type", "application/json");
    let response = request.body(body.to_string()).send().await?;
    let status = response.status();
    Ok((status, response.text().await?))
}

/// The same, streamed: the events up to `[DONE]`.
pub async fn events(base_url: &str, body: &Value) -> Result<Vec<Value>> {
    let (status, text) = post(base_url, body).await?;
    ensure!(status == StatusCode::OK, "{status}: {text}");
    parse(&text)
}

/// The data of an event stream, `[DONE]` left out. The `event:` line must repeat the type.
pub fn parse(text: &str) -> Result<Vec<Value>> {
    let mut events = Vec::new();
    for frame in text.split("\n\n").filter(|frame| !frame.trim().is_empty()) {
        let field = |name: &str| {
            frame
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .map(str::trim_start)
        };
        match field("data:") {
            None => ensure!(
                frame.lines().all(|line| line.starts_with(':')),
                "a frame without data: {frame:?}"
            ),
            Some("[DONE]") => {}
            Some(data) => {
                let event: Value =
                    serde_json::from_str(data).with_context(|| format!("not JSON: {data}"))?;
                ensure!(
                    field("event:") == event["type"].as_str(),
                    "the event line differs: {frame:?}"
                );
                events.push(event);
            }
        }
    }
    Ok(events)
}

/// Checks that a stream is one whole, lawful response, and gives the response of its terminal event.
///
/// Numbers run 0…n-1; the first event is `created`, the last is the only terminal one; each item opens once, closes
/// once, and closes before the next opens; deltas add up to what their item says; the output is what was streamed.
pub fn lawful(events: &[Value]) -> Result<&Value> {
    let (last, before) = events.split_last().context("no events at all")?;
    let kind = |event: &Value| event["type"].as_str().unwrap_or_default().to_owned();
    ensure!(
        kind(&events[0]) == "response.created",
        "the first event is {}",
        events[0]
    );
    ensure!(is_terminal(last), "the last event is {last}");
    ensure!(
        !before.iter().any(is_terminal),
        "more than one terminal event"
    );
    let id = &last["response"]["id"];
    let mut done = Vec::new();
    let mut open: VecDeque<Open> = VecDeque::new();
    for (number, event) in events.iter().enumerate() {
        ensure!(
            event["sequence_number"] == number,
            "event {number} has number {}",
            event["sequence_number"]
        );
        ensure!(
            event
                .get("response")
                .is_none_or(|response| response["id"] == *id),
            "another response id: {event}"
        );
        match kind(event).as_str() {
            "response.output_item.added" => {
                let item = Open::new(event);
                // Text may begin while reasoning is open, since a server ends both late. Nothing else overlaps.
                ensure!(
                    item.is_text && open.iter().all(|open| open.is_text) || open.is_empty(),
                    "{event} opens inside another item"
                );
                open.push_back(item);
            }
            "response.output_item.done" => {
                let ended = open
                    .pop_front()
                    .with_context(|| format!("{event} was not open"))?;
                ended.check(event).with_context(|| event.to_string())?;
                ensure!(
                    event["output_index"] == done.len(),
                    "{event} is item {}",
                    done.len()
                );
                done.push(event["item"].clone());
            }
            kind if kind.ends_with(".delta") => {
                let of = open.iter_mut().find(|open| event["item_id"] == open.id);
                of.with_context(|| format!("a delta of no open item: {event}"))?
                    .text
                    .push_str(event["delta"].as_str().context("a delta that is no text")?);
            }
            _ => {}
        }
    }
    let response = &last["response"];
    if kind(last) != "response.failed" {
        // A call that was cut is announced and listed, but never ended.
        if let Some(cut) = open.pop_front() {
            let listed = &response["output"][done.len()];
            ensure!(
                open.is_empty()
                    && kind(last) == "response.incomplete"
                    && !cut.is_text
                    && listed["status"] == "incomplete",
                "an item is still open: {}",
                cut.id
            );
            done.push(listed.clone());
        }
        ensure!(
            response["output"] == Value::from(done.clone()),
            "output {} is not {}",
            response["output"],
            Value::from(done)
        );
        ensure!(
            response["usage"]["total_tokens"].is_u64(),
            "no total_tokens: {}",
            response["usage"]
        );
    }
    Ok(response)
}

fn is_terminal(event: &Value) -> bool {
    let kind = event["type"].as_str().unwrap_or_default();
    [
        "response.completed",
        "response.incomplete",
        "response.failed",
    ]
    .contains(&kind)
}

/// The item being streamed.
struct Open {
    id: Value,
    is_text: bool,
    text: String,
}

impl Open {
    fn new(added: &Value) -> Self {
        Self {
            id: added["item"]["id"].clone(),
            is_text: ["message", "reasoning"]
                .iter()
                .any(|kind| added["item"]["type"] == *kind),
            text: String::new(),
        }
    }

    fn check(&self, done: &Value) -> Result<()> {
        let item = &done["item"];
        ensure!(item["id"] == self.id, "the open item is {}", self.id);
        let whole = match item["type"].as_str() {
            Some("function_call") => &item["arguments"],
            Some("custom_tool_call") => &item["input"],
            _ => &item["content"][0]["text"],
        };
        ensure!(
            whole == self.text.as_str(),
            "the deltas add up to {:?}",
            self.text
        );
        Ok(())
    }
}
