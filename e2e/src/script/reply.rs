//! Builds the stream of one response: numbers the events, keeps the output, and ends it in one of several ways.

use serde_json::{Value, json};

use super::{Answer, Chunk, Gate};
use crate::event::{Lifecycle, fresh};

/// A response being streamed: `Reply::started().item(ev_message("Hi")).completed()`.
#[derive(Debug, Clone)]
pub struct Reply {
    id: String,
    chunks: Vec<Chunk>,
    output: Vec<Value>,
    sequence: u64,
    total_tokens: u64,
}

impl Reply {
    pub fn started() -> Self {
        let id = fresh("resp");
        let reply = Self {
            id,
            chunks: Vec::new(),
            output: Vec::new(),
            sequence: 0,
            total_tokens: 30,
        };
        let response = reply.response("in_progress");
        reply
            .event(json!({"type": "response.created", "response": response}))
            .event(json!({"type": "response.in_progress", "response": response}))
    }

    /// What the usage will say; Codex compacts by it.
    pub fn total_tokens(mut self, total: u64) -> Self {
        self.total_tokens = total;
        self
    }

    pub fn item(mut self, lifecycle: Lifecycle) -> Self {
        let index = self.output.len();
        for mut event in lifecycle.events {
            event["output_index"] = json!(index);
            self = self.event(event);
        }
        self.output.push(lifecycle.item);
        self
    }

    pub fn wait(mut self, gate: &Gate) -> Self {
        self.chunks.push(Chunk::Wait(gate.clone()));
        self
    }

    pub fn completed(self) -> Answer {
        let response = self.response("completed");
        self.event(json!({"type": "response.completed", "response": response}))
            .end()
    }

    /// The model ran into `max_output_tokens`.
    pub fn incomplete(self) -> Answer {
        let mut response = self.response("incomplete");
        response["incomplete_details"] = json!({"reason": "max_output_tokens"});
        self.event(json!({"type": "response.incomplete", "response": response}))
            .end()
    }

    pub fn failed(self, code: &str, message: &str) -> Answer {
        let mut response = self.response("failed");
        response["error"] = json!({"code": code, "message": message});
        self.event(json!({"type": "response.failed", "response": response}))
            .end()
    }

    /// The body ends properly, but the response never does.
    pub fn end(self) -> Answer {
        Answer::Stream(self.chunks)
    }

    /// The connection breaks.
    pub fn cut(mut self) -> Answer {
        self.chunks.push(Chunk::Cut);
        self.end()
    }

    fn event(mut self, mut event: Value) -> Self {
        event["sequence_number"] = json!(self.sequence);
        self.sequence += 1;
        let kind = event["type"].as_str().unwrap_or_default();
        self.chunks.push(Chunk::Bytes(
            format!("event: {kind}\ndata: {event}\n\n").into(),
        ));
        self
    }

    fn response(&self, status: &str) -> Value {
        let usage = json!({
            "input_tokens": self.total_tokens - 10,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 10,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": self.total_tokens,
        });
        json!({
            "id": self.id,
            "object": "response",
            "created_at": 1_700_000_000,
            "status": status,
            "error": null,
            "incomplete_details": null,
            "model": "local-model",
            "output": self.output,
            "usage": if status == "in_progress" { Value::Null } else { usage },
        })
    }
}
