//! From a request in the Responses dialect to the tokens the model reads.
//!
//! ```text
//! request → Conversation (items → turns) ─┐
//!         → Tools (function tools)        ├→ Template::render → Rendered { tokens, … }
//! model's chat template + vocabulary ─────┘
//! ```
//!
//! Invariants: text from a request never becomes a control token; the tokens of a turn are a prefix of those of the next turn, as far as the model's
//! template allows it, so that the prefix cache works; the same request always gives the same tokens.

mod compact;
mod conversation;
mod date;
mod environment;
mod escape;
mod families;
mod habits;
mod messages;
mod probation;
mod python;
mod template;
#[cfg(test)]
pub(crate) mod testing;
mod tools;

pub use conversation::{Call, Conversation, Turn};
pub use date::Date;
pub(crate) use probation::{RENDERING, on_probation};
pub use template::{RenderOptions, Rendered, Template, TemplateOptions};
pub use tools::{Tool, Tools, ToolsMode};

/// Why no prompt could be made. Each is the request's or the model file's fault and is told to the user as it is.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PromptError {
    /// A field of the request, with its JSON path.
    #[error(transparent)]
    Request(#[from] protocol::FieldError),
    /// The model's chat template does not compile, or refused the conversation.
    #[error("chat template: {0}")]
    Template(String),
    /// The conversation is so long that the template cannot be run to its end.
    #[error(
        "the conversation and its tools have about {bytes} bytes, too much to make a prompt of"
    )]
    TooLong { bytes: usize },
    /// The template works on something that its fuel does not bound, and nothing can stop it: whoever runs it has to end.
    #[error("chat template: it does more work than {seconds} s are enough for")]
    Endless { seconds: u64 },
}

impl PromptError {
    /// The JSON path of the offending field, for `error.param`.
    pub fn param(&self) -> Option<&str> {
        match self {
            PromptError::Request(error) => Some(&error.param),
            PromptError::TooLong { .. } => Some("input"),
            PromptError::Template(_) | PromptError::Endless { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests;
