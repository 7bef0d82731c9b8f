//! The function tools of a request, and how much of them the prompt shows.

use protocol::{
    FieldError, Object,
    object::{as_object, describe, join, optional_str, required_str},
};
use serde_json::{Value, json};

use super::{PromptError, python};

/// How tools are shown to the model.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum ToolsMode {
    /// `Compact` for models under 3 billion parameters, and where the schemas would fill more than a quarter of the context; else `Full`.
    #[default]
    Auto,
    /// Whole JSON schemas.
    Full,
    /// One signature line a tool.
    Compact,
    /// Not at all.
    Off,
}

/// The function tools of a request, in its order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tools {
    pub list: Vec<Tool>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    pub name: String,
    pub description: String,
    /// JSON schema of the arguments; `{"type": "object", "properties": {}}` where the request has none.
    pub parameters: Value,
}

impl Tools {
    /// Reads `tools`. Anything but a function is an error that names its place.
    pub fn from_request(request: &Object) -> Result<Tools, PromptError> {
        let entries = match request.get("tools") {
            None | Some(Value::Null) => return Ok(Tools::default()),
            Some(Value::Array(entries)) => entries,
            Some(other) => return Err(FieldError::unexpected("tools", "an array", other).into()),
        };
        let mut list = Vec::with_capacity(entries.len());
        for (index, entry) in entries.iter().enumerate() {
            let path = format!("tools[{index}]");
            let entry = as_object(entry, &path)?;
            let kind = required_str(entry, "type", &path)?;
            if kind != "function" {
                let problem = format!(
                    "must be \"function\" here, but {} came",
                    describe(&Value::from(kind))
                );
                return Err(FieldError::new(join(&path, "type"), problem).into());
            }
            let parameters = match entry.get("parameters") {
                None | Some(Value::Null) => json!({"type": "object", "properties": {}}),
                Some(schema @ Value::Object(_)) if python::is_too_deep(schema) => {
                    return Err(python::too_deep(join(&path, "parameters")).into());
                }
                Some(Value::Object(schema)) => Value::Object(schema.clone()),
                Some(other) => {
                    return Err(FieldError::unexpected(
                        join(&path, "parameters"),
                        "an object",
                        other,
                    )
                    .into());
                }
            };
            list.push(Tool {
                name: required_str(entry, "name", &path)?.to_owned(),
                description: optional_str(entry, "description", &path)?
                    .unwrap_or_default()
                    .to_owned(),
                parameters,
            });
        }
        Ok(Tools { list })
    }

    /// Roughly the tokens of all schemas; JSON has about four bytes a token.
    pub(super) fn estimated_tokens(&self) -> usize {
        self.list
            .iter()
            .map(|tool| {
                tool.name.len() + tool.description.len() + tool.parameters.to_string().len() + 80
            })
            .sum::<usize>()
            / 4
    }
}

#[cfg(test)]
mod tests;
