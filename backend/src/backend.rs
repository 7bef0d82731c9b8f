//! [`Backend`], the door to the engine: a request in the Responses dialect in, native Responses events out.
//!
//! ```text
//! respond(request) → own thread: checks → prompt → grammar → engine queue → Responding: tokens → segments → events
//! ```
//!
//! Invariants: everything that can be wrong with a request is said by [`Backend::respond`], before the first event; work that takes milliseconds
//! (template, tokens, grammar) never runs on the caller's executor; dropping a [`Responding`] cancels its generation at the engine's next step.

pub mod error;
pub mod options;

use protocol::Object;

pub use self::{
    error::{LoadError, Refusal, RespondError},
    options::{BackendOptions, DeviceChoice, KvCache, ToolsMode, WarmStart},
};
pub use crate::respond::{Responding, Stamp};

/// A model, loaded, and the engine that runs it. Clones share both.
#[derive(Clone, Debug)]
pub struct Backend {}

impl Backend {
    /// Opens the model, checks that it fits into memory, and starts the engine. Blocks for as long as reading and repacking the weights takes.
    ///
    /// # Errors
    /// The model cannot be read or is of a kind that is not supported, the memory plan does not fit, or the device is not there.
    pub fn load(_options: &BackendOptions) -> Result<Backend, LoadError> {
        unimplemented!()
    }

    /// Takes a request in the Responses dialect, function tools only. Returns when it has been accepted into the engine's queue; the model may not have
    /// started on it. `stream` is not read: [`Responding`] can be read either way.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] for what the client must change, [`Refusal::Busy`] when the queue is full, [`Refusal::Down`] when the engine has stopped.
    pub async fn respond(&self, _request: Object) -> Result<Responding, RespondError> {
        unimplemented!()
    }

    /// Tokens of the prompt that [`Backend::respond`] would make of `request`.
    ///
    /// # Errors
    /// As [`Backend::respond`], the queue and the window apart.
    pub async fn input_tokens(&self, _request: Object) -> Result<usize, RespondError> {
        unimplemented!()
    }

    pub fn info(&self) -> &ModelInfo {
        unimplemented!()
    }

    /// A snapshot; cheap.
    pub fn status(&self) -> BackendStatus {
        unimplemented!()
    }

    /// Ends every open response with `response.failed`, writes the warm-start store and joins the engine's thread. Blocks until that is done. Later requests are refused with
    /// [`Refusal::Down`].
    pub fn shutdown(&self) {
        unimplemented!()
    }
}

/// What is being served. Fixed once loaded.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ModelInfo {
    /// The model's name as its file gives it, else the file's own name.
    pub id: String,
    /// Of the weights: `Q4_1`, `BF16`.
    pub format: String,
    /// Tokens of the running window: prompt and answer together.
    pub context: usize,
    /// Tokens the model was trained for.
    pub trained_context: usize,
    pub parameters: u64,
    pub weight_bytes: u64,
    /// Bytes of the KV cache.
    pub kv_bytes: u64,
    /// `cpu (avx512-vnni, 2 threads)`.
    pub device: String,
    pub threads: usize,
    /// `gpt2 (smollm)`: kind of tokenizer and of its pre-tokenizer.
    pub tokenizer: String,
    pub vocab: usize,
    /// The model's own template knows tools; otherwise they are shown in the family's format.
    pub template_knows_tools: bool,
    /// How the model is told to write calls: `llama_json`, `llama_pythonic`, `hermes`, `smollm2`.
    pub call_syntax: &'static str,
    /// Something worth one line at start-up, such as a window too small for Codex.
    pub warnings: Vec<String>,
}

/// How the engine is doing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackendStatus {
    /// `false` once the device failed or the engine was shut down; it does not come back.
    pub healthy: bool,
    /// Requests accepted and not yet running.
    pub queued: usize,
    pub running: usize,
    /// KV pages of 16 tokens.
    pub pages_total: usize,
    /// Held by running sequences.
    pub pages_used: usize,
    /// Held by the prefix cache only, free to be taken.
    pub pages_cached: usize,
    /// Since the start, all responses: prompt tokens computed.
    pub prompt_tokens: u64,
    /// Prompt tokens found in the cache.
    pub cached_tokens: u64,
    pub generated_tokens: u64,
    /// Of `generated_tokens`, drafted or forced by a grammar.
    pub drafted_tokens: u64,
    pub responses_completed: u64,
    pub responses_incomplete: u64,
    pub responses_failed: u64,
    pub responses_cancelled: u64,
    pub calls: u64,
    /// Finished calls whose arguments did not satisfy the tool's schema.
    pub invalid_calls: u64,
}
