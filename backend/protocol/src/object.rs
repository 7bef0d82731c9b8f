//! [`Object`], an ordered JSON object, and the typed, path-reporting reads every parser of this project uses.

use std::fmt;

use serde_json::{Map, Value};

/// A JSON object that keeps the order of its keys.
pub type Object = Map<String, Value>;

/// A field that is not what the protocol allows: where, what came, what is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// JSON path of the field, e.g. `tools[3].name`.
    pub param: String,
    /// What came and what is allowed, as half a sentence that follows the path.
    pub problem: String,
}

impl FieldError {
    pub fn new(param: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            param: param.into(),
            problem: problem.into(),
        }
    }

    /// `param` must be `expected`, but `found` came.
    pub fn unexpected(param: impl Into<String>, expected: &str, found: &Value) -> Self {
        Self::new(
            param,
            format!("must be {expected}, but {} came", describe(found)),
        )
    }

    pub fn missing(param: impl Into<String>, expected: &str) -> Self {
        Self::new(param, format!("is missing; it must be {expected}"))
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.param, self.problem)
    }
}

impl std::error::Error for FieldError {}

/// The child path `parent.key`, or `key` at the top.
pub fn join(parent: &str, key: &str) -> String {
    if parent.is_empty() {
        key.to_owned()
    } else {
        format!("{parent}.{key}")
    }
}

/// What a value is, short enough for an error message: type, and the value itself where that is short.
pub fn describe(value: &Value) -> String {
    const LONGEST: usize = 40;
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => format!("the boolean {flag}"),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) if text.chars().count() <= LONGEST => {
            format!("the string {}", Value::from(text.as_str()))
        }
        Value::String(text) => format!("a string of {} bytes", text.len()),
        Value::Array(list) => format!("an array of {}", list.len()),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// The string at `key`; `None` when it is absent or null.
///
/// # Errors
/// Any other type.
pub fn optional_str<'a>(
    object: &'a Object,
    key: &str,
    parent: &str,
) -> Result<Option<&'a str>, FieldError> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(FieldError::unexpected(join(parent, key), "a string", other)),
    }
}

/// The string at `key`.
///
/// # Errors
/// Absent, null, or any other type.
pub fn required_str<'a>(
    object: &'a Object,
    key: &str,
    parent: &str,
) -> Result<&'a str, FieldError> {
    match object.get(key) {
        None => Err(FieldError::missing(join(parent, key), "a string")),
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(FieldError::unexpected(join(parent, key), "a string", other)),
    }
}

/// The string at `key`, or `""` when there is no string there.
pub fn str_or_empty<'a>(object: &'a Object, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The value as an object.
///
/// # Errors
/// Any other type.
pub fn as_object<'a>(value: &'a Value, path: &str) -> Result<&'a Object, FieldError> {
    value
        .as_object()
        .ok_or_else(|| FieldError::unexpected(path, "an object", value))
}

/// Drops every top-level key whose value is null: the protocol treats null and absent alike.
pub fn drop_nulls(object: &mut Object) {
    object.retain(|_, value| !value.is_null());
}
