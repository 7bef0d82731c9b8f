//! Log-probabilities beside text, for who asks for them.

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::{sample::Sampled, tokenizer::Tokenizer};

/// What stands for minus infinity, which JSON has no number for; OpenAI's servers say the same.
const LEAST: f32 = -9999.0;

/// Entries of tokens whose text may not have been given out yet.
#[derive(Debug)]
pub(super) struct Logprobs {
    /// Alternatives an entry shows.
    top: usize,
    /// With the byte of the decoded text at which the token's own text begins, ascending.
    pending: VecDeque<(usize, Value)>,
}

impl Logprobs {
    pub(super) fn new(top: usize) -> Logprobs {
        Logprobs {
            top,
            pending: VecDeque::new(),
        }
    }

    /// A token whose text begins at byte `at`.
    pub(super) fn push(&mut self, sampled: &Sampled, at: usize, tokenizer: &Tokenizer) {
        let mut entry = described(sampled.token, sampled.logprob, tokenizer);
        let top = sampled.top.iter().take(self.top);
        entry["top_logprobs"] = top
            .map(|(token, logprob)| described(*token, *logprob, tokenizer))
            .collect();
        self.pending.push_back((at, entry));
    }

    /// The entries of the text from byte `at` to `end`. Those before it belonged to reasoning or calls.
    pub(super) fn take(&mut self, at: usize, end: usize) -> Vec<Value> {
        let mut taken = Vec::new();
        while let Some((start, _)) = self.pending.front()
            && *start < end
        {
            if let Some((start, entry)) = self.pending.pop_front()
                && start >= at
            {
                taken.push(entry);
            }
        }
        taken
    }
}

fn described(token: u32, logprob: f32, tokenizer: &Tokenizer) -> Value {
    let bytes = tokenizer.token_bytes(token);
    let text = match tokenizer.control_text(token) {
        Some(name) => name.into(),
        None => String::from_utf8_lossy(bytes),
    };
    json!({"token": text, "bytes": bytes, "logprob": f64::from(logprob.max(LEAST))})
}
