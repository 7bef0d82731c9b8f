//! What the engine is asked for, and what it gives back: tokens in, tokens out. Text, tools and events are made of them further up.

use std::sync::Arc;

use super::constraint::{Constraint, ConstraintError};
use crate::sample::{Sampled, SamplingParams};

/// Most alternatives that can be reported with a token.
pub const MAX_TOP_LOGPROBS: usize = 20;

/// One generation.
#[derive(Debug)]
pub struct GenerateRequest {
    /// The whole prompt; not empty, and with `max_tokens >= 1` more it fits the context.
    pub prompt: Vec<u32>,
    /// Tokens at the start of `prompt` that other requests will share (instructions and tools): worth keeping on disk. 0: unknown.
    pub stable_prefix: usize,
    pub sampling: SamplingParams,
    /// Most tokens to generate; the engine lowers it to what the context leaves.
    pub max_tokens: usize,
    /// Generation stops after any of these; the token is not reported.
    pub end_tokens: Arc<[u32]>,
    /// `None`: every token may come at any time.
    pub constraint: Option<Box<dyn Constraint>>,
    /// Alternatives to report with each token, up to [`MAX_TOP_LOGPROBS`].
    pub top_logprobs: usize,
}

/// What a generation yields, in order: any number of `Progress`, any number of `Tokens`, one `Finished`.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Prompt tokens whose keys and values are ready, `cached` of them found and not computed.
    Progress {
        cached: usize,
        done: usize,
        total: usize,
    },
    /// Tokens of one step, several when a draft was accepted or a grammar left no choice. Never an end token. A token that a grammar forced was not
    /// drawn: its logprob is 0 and it has no alternatives.
    Tokens(Vec<Sampled>),
    Finished {
        reason: Finish,
        usage: Usage,
    },
}

/// Why a generation ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Finish {
    /// An end token came (given here), or the constraint said that the output is complete (`None`).
    Stop(Option<u32>),
    /// `max_tokens` or the end of the context.
    Length,
    /// The engine is shutting down.
    Stopped,
    /// The constraint cannot go on, nor could it if the request were repeated.
    Constraint(ConstraintError),
    /// The device failed, and the engine with it; the message is for the user.
    Device(String),
}

impl Finish {
    pub(crate) fn is_failure(&self) -> bool {
        matches!(self, Finish::Constraint(_) | Finish::Device(_))
    }
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Usage {
    pub prompt: usize,
    /// Of `prompt`, found in the cache.
    pub cached: usize,
    /// Generated, end token included.
    pub generated: usize,
    /// Of `generated`, proposed by prompt lookup or forced by the grammar, and accepted.
    pub drafted: usize,
}

/// Why a request was not taken.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SubmitError {
    /// A field of the request is outside of what is allowed; the message names it.
    #[error("{0}")]
    Invalid(String),
    #[error("the prompt has {prompt} tokens, and the context of this model is {context} tokens")]
    ContextExceeded { prompt: usize, context: usize },
    /// All slots of the queue are taken; a guess in seconds at when one frees.
    #[error("{queued} requests are waiting, the most allowed; try again in {retry_after}s")]
    QueueFull { queued: usize, retry_after: u64 },
    #[error("the engine is not running: {0}")]
    Down(String),
}
