//! The `usage` of a response.

use protocol::Object;
use serde_json::json;

/// Tokens of one response.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Counts {
    pub(super) prompt: usize,
    /// Of `prompt`, found in the prefix cache.
    pub(super) cached: usize,
    /// Generated, the end token included.
    pub(super) generated: usize,
    /// Of `generated`, reasoning.
    pub(super) reasoning: usize,
}

impl Counts {
    /// The object with every field that clients insist on. Nothing is written to a cache that a client would pay for.
    pub(super) fn usage(self) -> Object {
        let usage = json!({
            "input_tokens": self.prompt,
            "input_tokens_details": {"cached_tokens": self.cached, "cache_write_tokens": 0},
            "output_tokens": self.generated,
            "output_tokens_details": {"reasoning_tokens": self.reasoning},
            "total_tokens": self.prompt + self.generated,
        });
        match usage {
            serde_json::Value::Object(usage) => usage,
            _ => Object::new(),
        }
    }
}
