//! One streamed response: when its text came, and what its usage says.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use memchr::memmem;
use serde_json::Value;
use tokio::time;

use crate::bench::{
    frames::Frames,
    http::{self, Connection},
};

/// A cold prompt may take minutes on a slow format.
const LIMIT: Duration = Duration::from_secs(600);
const BUFFER: usize = 16 << 10;

#[derive(Debug, Clone, Copy)]
pub(super) struct Answer {
    pub(super) sent: Instant,
    /// The first and the last text delta.
    pub(super) first: Instant,
    pub(super) last: Instant,
    /// Tokens of the prompt, and how many of them were cached.
    pub(super) input: u32,
    pub(super) cached: u32,
    pub(super) output: u32,
}

impl Answer {
    pub(super) fn first_token(&self) -> Duration {
        self.first - self.sent
    }

    /// Tokens a second from the first delta to the last.
    pub(super) fn decode_rate(&self) -> Result<f64> {
        let tokens = self.output.saturating_sub(1);
        ensure!(
            tokens >= 16,
            "an answer of {} tokens is too short",
            self.output
        );
        Ok(f64::from(tokens) / (self.last - self.first).as_secs_f64())
    }

    /// Prompt tokens a second until the first delta, without those that were cached.
    pub(super) fn prefill_rate(&self) -> f64 {
        f64::from(self.input - self.cached) / self.first_token().as_secs_f64()
    }
}

/// What has come so far.
#[derive(Debug, Default)]
struct Seen {
    first: Option<Instant>,
    last: Option<Instant>,
    usage: Option<Value>,
    problem: Option<String>,
}

pub(super) async fn ask(address: SocketAddr, body: &Value) -> Result<Answer> {
    time::timeout(LIMIT, ask_patiently(address, body))
        .await
        .with_context(|| format!("no whole answer within {LIMIT:?}"))?
}

async fn ask_patiently(address: SocketAddr, body: &Value) -> Result<Answer> {
    let request = http::post(address, body);
    let mut connection = Connection::open(address, BUFFER).await?;
    let mut frames = Frames::default();
    let mut seen = Seen::default();
    let mut head = Vec::new();
    let sent = Instant::now();
    connection.send(&request).await?;
    while connection
        .receive(&mut |bytes| {
            let now = Instant::now();
            if head.len() < 1000 {
                head.extend_from_slice(bytes);
            }
            frames.feed(bytes, |frame| seen.look(frame, now));
        })
        .await?
    {}
    let text = || String::from_utf8_lossy(&head).into_owned();
    ensure!(
        connection.status == 200,
        "status {}: {}",
        connection.status,
        text()
    );
    if let Some(problem) = seen.problem {
        bail!("the stream failed: {problem}");
    }
    let usage = seen
        .usage
        .with_context(|| format!("no usage: {}", text()))?;
    let count = |value: &Value| {
        let count = value.as_u64().and_then(|count| u32::try_from(count).ok());
        count.with_context(|| format!("no count of tokens in {usage}"))
    };
    Ok(Answer {
        sent,
        first: seen.first.with_context(|| format!("no text: {}", text()))?,
        last: seen.last.context("no text")?,
        input: count(&usage["input_tokens"])?,
        cached: count(&usage["input_tokens_details"]["cached_tokens"])?,
        output: count(&usage["output_tokens"])?,
    })
}

impl Seen {
    fn look(&mut self, frame: &[u8], now: Instant) {
        let event = frame
            .split(|byte| *byte == b'\n')
            .next()
            .unwrap_or_default();
        match event {
            b"event: response.output_text.delta" => {
                self.first.get_or_insert(now);
                self.last = Some(now);
            }
            b"event: response.completed" | b"event: response.incomplete" => {
                self.usage = data(frame).map(|data| data["response"]["usage"].clone());
            }
            b"event: response.failed" | b"event: error" => {
                self.problem = Some(String::from_utf8_lossy(frame).into_owned());
            }
            // llama-server names no event when it fails.
            _ if event.starts_with(b"data: {\"error\"") => {
                self.problem = Some(String::from_utf8_lossy(frame).into_owned());
            }
            _ => {}
        }
    }
}

fn data(frame: &[u8]) -> Option<Value> {
    let at = memmem::find(frame, b"\ndata: ")?;
    serde_json::from_slice(&frame[at + 7..]).ok()
}
