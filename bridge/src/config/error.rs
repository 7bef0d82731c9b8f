//! What can be wrong with a configuration, each as one line: where, which key, what came, what is allowed.

use std::io;

use serde_json::Value;

use super::keys::Kind;

/// A configuration that the program does not start with.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{file}: cannot be read: {source}")]
    Unreadable { file: String, source: io::Error },

    #[error("{file}: {problem}")]
    Syntax { file: String, problem: String },

    /// `place` is a file, an environment variable or a flag.
    #[error("{place}: {key}: {came}; {allowed}")]
    Setting {
        place: String,
        key: String,
        came: String,
        allowed: String,
    },

    #[error("{name}: {problem}; text is allowed")]
    Variable { name: String, problem: &'static str },

    /// The layers cannot be put together; never the user's fault.
    #[error("configuration: {0}")]
    Merge(String),
}

/// A fault whose layer is not known yet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// The path in snake_case.
    pub(super) path: String,
    pub(super) came: String,
    pub(super) allowed: String,
}

impl Fault {
    pub(super) fn new(
        path: impl Into<String>,
        came: impl Into<String>,
        allowed: impl Into<String>,
    ) -> Self {
        Self {
            path: path.into(),
            came: came.into(),
            allowed: allowed.into(),
        }
    }
}

/// A value as a message may show it: on one line, not too long, and without a key or password in it.
pub(super) fn shown(value: &Value, kind: Kind) -> String {
    const LONGEST: usize = 80;
    match value {
        Value::String(text) if kind == Kind::Secret && text.is_empty() => {
            "an empty string".to_owned()
        }
        Value::String(_) if kind == Kind::Secret => "a string with other characters".to_owned(),
        Value::Number(_) if kind == Kind::Secret => "a number".to_owned(),
        Value::String(text) if text.contains("://") && text.contains('@') => {
            "a URL with credentials".to_owned()
        }
        Value::String(text) if text.contains("://") && text.contains('?') => {
            "a URL with a query".to_owned()
        }
        // A variable that was to hold a table. These may hold a key further down.
        Value::String(text) if text.starts_with(['{', '[']) => "text that is not JSON".to_owned(),
        Value::Object(_) => "a table".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        _ => {
            let text = value.to_string();
            match text.char_indices().nth(LONGEST) {
                Some((end, _)) => format!("{}…", &text[..end]),
                None => text,
            }
        }
    }
}
