//! [`Checker`]: does a finished call satisfy the schema as the client wrote it? For the log and for tests; the grammar has seen to it before.

use std::sync::OnceLock;

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use super::{limits, tools::Tool};

/// Checks the arguments of one tool's calls. Compiles its schema when first asked.
#[derive(Debug)]
pub struct Checker {
    schema: std::sync::Arc<Value>,
    validator: OnceLock<Result<Validator, String>>,
}

/// What a check found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Checked {
    Valid,
    /// The first thing that is wrong, and where.
    Invalid(String),
    /// The schema itself is none; nothing can be said.
    Unknown(String),
}

impl Checker {
    pub fn new(tool: &Tool) -> Self {
        Checker {
            schema: tool.schema(),
            validator: OnceLock::new(),
        }
    }

    /// Checks arguments as they were generated.
    pub fn check(&self, arguments: &str) -> Checked {
        let value: Value = match serde_json::from_str(arguments) {
            Ok(value) => value,
            Err(error) => return Checked::Invalid(format!("the arguments are no JSON: {error}")),
        };
        let validator = self.validator.get_or_init(|| build(&self.schema));
        match validator {
            Err(problem) => Checked::Unknown(problem.clone()),
            Ok(validator) => match validator.validate(&value) {
                Ok(()) => Checked::Valid,
                Err(error) => Checked::Invalid(format!("{}: {error}", error.instance_path())),
            },
        }
    }
}

fn build(schema: &Value) -> Result<Validator, String> {
    limits::measure(schema)?;
    if super::schema::normalize(schema).depth > limits::MAX_CHECKED_DEPTH {
        return Err("references lead too deep".to_owned());
    }
    // A pattern from a client may be made to backtrack for ever.
    let patterns = PatternOptions::fancy_regex()
        .backtrack_limit(100_000)
        .size_limit(4 << 20)
        .dfa_size_limit(8 << 20);
    jsonschema::options()
        .with_pattern_options(patterns)
        .build(schema)
        .map_err(|error| format!("{}: {error}", error.instance_path()))
}
