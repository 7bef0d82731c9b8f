//! What a model file holds, without starting an engine.

use std::path::Path;

use backend::{
    cpu::Cpu,
    model::{
        self, inspect,
        plan::{self, PlanOptions},
    },
};

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
    let model = model::open(path).map_err(|error| Fault {
        message: error.to_string(),
        kind: if path.exists() {
            FaultKind::Unusable
        } else {
            FaultKind::Missing
        },
    })?;
    let trained = model.config.context;
    let options = PlanOptions {
        context: context.unwrap_or(trained),
        ..PlanOptions::default()
    };
    Ok(Inspection {
        context: u64::try_from(trained).unwrap_or(u64::MAX),
        text: inspect::Inspection::new(&model, Cpu::plan(&model, options), plan::available())
            .to_string(),
    })
}
