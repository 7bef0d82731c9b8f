//! What a model file holds, without starting an engine.

use std::path::Path;

use backend::model::{self, plan};

use super::{Fault, FaultKind};

/// What a model file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// Tokens the model was trained for.
    pub context: u64,
    /// For people, several lines.
    pub text: String,
}

/// Reads the head of the model at `path`, and plans the memory for a window of `context` tokens, or else of as many as
/// the model was trained for.
///
/// # Errors
/// It is no model, or none that is supported.
pub fn inspect(path: &Path, context: Option<usize>) -> Result<Inspection, Fault> {
    let _ = (path, context);
    todo()
}
