//! What the sampler may draw: tools, `tool_choice` and `text.format` of a request become one [`Constraint`].
//!
//! ```text
//! Vocabulary ── Grammars::new ──▶ Grammars (once a model)
//! ToolSet, Choice, parallel, TextFormat, CallSyntax ── Grammars::constraint ──▶ Constraint (once a request) + what had to be Relaxed
//! ```
//!
//! Invariants: schemas and grammars come from clients and are not trusted, so each is limited before it is compiled, and ends in an answer or in a
//! [`GrammarError`] that names the tool and the field; one tool's odd schema never costs another tool its constraint; nothing here panics outwards.

mod calls;
pub mod check;
pub mod choice;
mod compile;
mod custom;
mod digits;
mod escape;
mod lazy;
mod limits;
mod relax;
mod schema;
pub mod tools;
pub mod vocabulary;
mod walk;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex};

pub use check::{Checked, Checker};
pub use choice::{Choice, TextFormat};
use compile::{Cache, Compiler, Order};
use protocol::{ApiError, FieldError};
pub use tools::{Input, Syntax, Tool, ToolSet};
pub use vocabulary::Vocabulary;
use walk::Walk;

use crate::{call_syntax::CallSyntax, engine::constraint::Constraint};

/// The grammar compiler of one model. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Grammars {
    compiler: Arc<Compiler>,
    cache: Arc<Mutex<Cache>>,
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

/// A request whose grammar cannot be built: a client's fault, or too much else to do.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{param}: {problem}")]
pub struct GrammarError {
    /// JSON path of the request field at fault, `tools[3].parameters`.
    pub param: String,
    /// What came and what is allowed; names the tool where there is one.
    pub problem: String,
    /// The request is not at fault: seconds after which it may be taken.
    pub retry_after: Option<u64>,
}

impl GrammarError {
    fn busy(param: &str, problem: &str) -> Self {
        GrammarError {
            param: param.to_owned(),
            problem: format!("{problem}; try again in {}s", limits::RETRY_AFTER),
            retry_after: Some(limits::RETRY_AFTER),
        }
    }
}

impl From<FieldError> for GrammarError {
    fn from(error: FieldError) -> Self {
        GrammarError {
            param: error.param,
            problem: error.problem,
            retry_after: None,
        }
    }
}

impl From<GrammarError> for ApiError {
    fn from(error: GrammarError) -> Self {
        FieldError::new(error.param, error.problem).into()
    }
}

impl Grammars {
    /// What all requests share is built by [`Grammars::prepare`], or by the first request that needs it.
    ///
    /// # Errors
    /// A vocabulary that contradicts itself.
    pub fn new(vocabulary: Vocabulary) -> Result<Self, GrammarError> {
        let compiler =
            Compiler::new(vocabulary).map_err(|problem| FieldError::new("tokenizer", problem))?;
        Ok(Grammars {
            compiler: Arc::new(compiler),
            cache: Arc::default(),
        })
    }

    /// Builds what all requests share, unless it is there; takes 0.1–0.5 s for 128k tokens.
    pub fn prepare(&self) {
        if let Err(error) = self.compiler.factories() {
            tracing::error!(%error, "no grammar can be compiled: requests with tools will fail");
        }
    }

    /// The constraint of a request, `None` where any text will do, and what of the tools' schemas it does not hold.
    ///
    /// Blocks for up to 4 s, mostly for some milliseconds, and less for a tool list that came before.
    ///
    /// # Errors
    /// A choice of a tool that is not there; a schema or grammar beyond the limits; a grammar that is none; a `text.format` that cannot be compiled whole.
    #[allow(clippy::type_complexity)]
    pub fn constraint(
        &self,
        tools: &ToolSet,
        choice: &Choice,
        parallel: bool,
        format: &TextFormat,
        syntax: CallSyntax,
    ) -> Result<(Option<Box<dyn Constraint>>, Vec<Relaxed>), GrammarError> {
        choice.check(tools)?;
        let order = Order {
            tools: tools.clone(),
            choice: choice.clone(),
            parallel,
            format: format.clone(),
            syntax,
        };
        order.check_limits()?;
        if order.is_free() {
            return Ok((None, Vec::new()));
        }
        let key = order.key();
        let cached = lock(&self.cache).get(key);
        let compiled = match cached {
            Some(compiled) => compiled,
            None => {
                let compiled = Compiler::run(&self.compiler, order)?;
                lock(&self.cache).put(key, compiled.clone());
                compiled
            }
        };
        let walk = Walk::new(compiled.plan)
            .map_err(|error| FieldError::new("tools", error.to_string()))?;
        Ok((Some(Box::new(walk)), compiled.relaxed.to_vec()))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // The cache is whole between any two statements, so a panic elsewhere leaves nothing half done.
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
