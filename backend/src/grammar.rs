//! What the sampler may draw: tools, `tool_choice` and `text.format` of a request become one [`Constraint`].
//!
//! ```text
//! Vocabulary ── Grammars::new ──▶ Grammars (once a model)
//! ToolSet, Choice, parallel, TextFormat, CallSyntax ── Grammars::constraint ──▶ Constraint (once a request) + what had to be Relaxed
//! ```
//!
//! Invariants: schemas and grammars come from clients and are not trusted, so each is limited before it is compiled, and ends in an answer or in a
//! [`GrammarError`] that names the tool and the field; one tool's odd schema never costs another tool its constraint; nothing here panics outwards.

pub mod choice;
pub mod tools;
pub mod vocabulary;

use protocol::{ApiError, FieldError};

pub use choice::{Choice, TextFormat};
pub use tools::{Input, Syntax, Tool, ToolSet};
pub use vocabulary::Vocabulary;

use crate::{call_syntax::CallSyntax, engine::constraint::Constraint};

/// The grammar compiler of one model. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Grammars {
    vocabulary: std::sync::Arc<Vocabulary>,
}

/// A part of a tool's schema that the grammar cannot hold the model to. What is generated may break it, and nothing else.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Relaxed {
    pub tool: String,
    /// JSON pointer into `parameters` of the schema that has the keyword, `/properties/to`.
    pub path: String,
    /// The keyword that was dropped; empty: the whole schema at `path`.
    pub keyword: String,
    pub reason: String,
}

/// A request whose grammar cannot be built: a client's fault.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{param}: {problem}")]
pub struct GrammarError {
    /// JSON path of the request field at fault, `tools[3].parameters`.
    pub param: String,
    /// What came and what is allowed; names the tool where there is one.
    pub problem: String,
}

impl From<FieldError> for GrammarError {
    fn from(error: FieldError) -> Self {
        GrammarError {
            param: error.param,
            problem: error.problem,
        }
    }
}

impl From<GrammarError> for ApiError {
    fn from(error: GrammarError) -> Self {
        FieldError::new(error.param, error.problem).into()
    }
}

impl Grammars {
    /// Builds what all requests share; takes 0.1–0.5 s for 128k tokens.
    ///
    /// # Errors
    /// A vocabulary that contradicts itself.
    pub fn new(vocabulary: Vocabulary) -> Result<Self, GrammarError> {
        vocabulary
            .token_env()
            .map_err(|problem| FieldError::new("tokenizer", problem))?;
        Ok(Grammars {
            vocabulary: std::sync::Arc::new(vocabulary),
        })
    }

    /// The constraint of a request, `None` where any text will do, and what of the tools' schemas it does not hold.
    ///
    /// # Errors
    /// A choice of a tool that is not there; a schema or grammar beyond the limits; `text.format` that cannot be compiled whole.
    #[allow(clippy::type_complexity)]
    pub fn constraint(
        &self,
        tools: &ToolSet,
        choice: &Choice,
        parallel: bool,
        format: &TextFormat,
        syntax: CallSyntax,
    ) -> Result<(Option<Box<dyn Constraint>>, Vec<Relaxed>), GrammarError> {
        todo!()
    }
}
