//! [`Choice`] (`tool_choice`) and [`TextFormat`] (`text.format`): what the answer may be, read from a request.

use std::sync::Arc;

use protocol::{
    FieldError, Object,
    object::{as_object, join, optional_str, required_str},
};
use serde_json::Value;

use super::{GrammarError, limits, tools::ToolSet};

/// Whether, and which, calls may come.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Choice {
    /// Text, or calls of any tool.
    #[default]
    Auto,
    /// No call.
    None,
    /// At least one call.
    Required,
    /// At least one call, all of this function.
    Function(String),
    /// As `Auto`, or as `Required`, of these tools alone.
    Allowed { names: Vec<String>, required: bool },
}

/// What text of the answer must be.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum TextFormat {
    #[default]
    Text,
    /// One JSON object.
    JsonObject,
    /// One JSON value that satisfies the schema.
    JsonSchema(Arc<Value>),
}

impl Choice {
    /// Reads `tool_choice` of a request whose tools are `tools`.
    ///
    /// # Errors
    /// An unknown form, a tool that is not offered, `required` without a tool.
    pub fn from_request(request: &Object, tools: &ToolSet) -> Result<Self, GrammarError> {
        const PATH: &str = "tool_choice";
        let choice = match request.get(PATH) {
            None | Some(Value::Null) => return Ok(Choice::Auto),
            Some(Value::String(mode)) => match mode.as_str() {
                "auto" => Choice::Auto,
                "none" => Choice::None,
                "required" => Choice::Required,
                _ => {
                    let expected = "\"auto\", \"none\", \"required\" or an object";
                    let came = Value::from(mode.as_str());
                    return Err(FieldError::unexpected(PATH, expected, &came).into());
                }
            },
            Some(Value::Object(choice)) => object(choice, PATH)?,
            Some(other) => {
                let expected = "a string or an object";
                return Err(FieldError::unexpected(PATH, expected, other).into());
            }
        };
        choice.check(tools)?;
        Ok(choice)
    }

    /// Is `name` one of the tools that may be called?
    pub fn allows(&self, name: &str) -> bool {
        match self {
            Choice::None => false,
            Choice::Auto | Choice::Required => true,
            Choice::Function(only) => only == name,
            Choice::Allowed { names, .. } => names.iter().any(|allowed| allowed == name),
        }
    }

    /// Must the answer be a call?
    pub fn is_forced(&self) -> bool {
        match self {
            Choice::Auto | Choice::None => false,
            Choice::Required | Choice::Function(_) => true,
            Choice::Allowed { required, .. } => *required,
        }
    }

    pub(crate) fn check(&self, tools: &ToolSet) -> Result<(), GrammarError> {
        let names: &[String] = match self {
            Choice::Auto | Choice::None => return Ok(()),
            Choice::Required if tools.is_empty() => {
                let problem = "is \"required\", but no tool is offered";
                return Err(FieldError::new("tool_choice", problem).into());
            }
            Choice::Required => return Ok(()),
            Choice::Function(name) => std::slice::from_ref(name),
            Choice::Allowed { names, .. } if names.is_empty() => {
                let problem = "must name at least one tool";
                return Err(FieldError::new("tool_choice.tools", problem).into());
            }
            Choice::Allowed { names, .. } => names,
        };
        match names.iter().find(|name| tools.get(name).is_none()) {
            None => Ok(()),
            Some(name) => {
                let problem = format!("names \"{name}\", which is no tool of this request");
                Err(FieldError::new("tool_choice", problem).into())
            }
        }
    }
}

impl TextFormat {
    /// Reads `text.format` of a request.
    ///
    /// # Errors
    /// An unknown type, or a schema that is not an object.
    pub fn from_request(request: &Object) -> Result<Self, GrammarError> {
        const PATH: &str = "text.format";
        let text = match request.get("text") {
            None | Some(Value::Null) => return Ok(TextFormat::Text),
            Some(text) => as_object(text, "text")?,
        };
        let format = match text.get("format") {
            None | Some(Value::Null) => return Ok(TextFormat::Text),
            Some(format) => as_object(format, PATH)?,
        };
        match required_str(format, "type", PATH)? {
            "text" => Ok(TextFormat::Text),
            "json_object" => Ok(TextFormat::JsonObject),
            "json_schema" => match format.get("schema") {
                Some(schema @ Value::Object(_)) => {
                    limits::measure(schema)
                        .map_err(|problem| FieldError::new("text.format.schema", problem))?;
                    Ok(TextFormat::JsonSchema(Arc::new(schema.clone())))
                }
                Some(other) => {
                    let path = "text.format.schema";
                    Err(FieldError::unexpected(path, "an object", other).into())
                }
                None => Err(FieldError::missing("text.format.schema", "an object").into()),
            },
            other => {
                let problem = format!(
                    "must be \"text\", \"json_object\" or \"json_schema\", but \"{other}\" came"
                );
                Err(FieldError::new("text.format.type", problem).into())
            }
        }
    }
}

fn object(choice: &Object, path: &str) -> Result<Choice, FieldError> {
    match required_str(choice, "type", path)? {
        "function" | "custom" => Ok(Choice::Function(
            required_str(choice, "name", path)?.to_owned(),
        )),
        "allowed_tools" => {
            let required = match optional_str(choice, "mode", path)? {
                None | Some("auto") => false,
                Some("required") => true,
                Some(other) => {
                    let problem = format!("must be \"auto\" or \"required\", but \"{other}\" came");
                    return Err(FieldError::new(join(path, "mode"), problem));
                }
            };
            let path = join(path, "tools");
            let Some(Value::Array(list)) = choice.get("tools") else {
                return Err(FieldError::missing(path, "an array of tools"));
            };
            let names = list.iter().enumerate().map(|(index, entry)| {
                let path = format!("{path}[{index}]");
                let entry = as_object(entry, &path)?;
                Ok(required_str(entry, "name", &path)?.to_owned())
            });
            Ok(Choice::Allowed {
                names: names.collect::<Result<_, FieldError>>()?,
                required,
            })
        }
        other => {
            let problem =
                format!("must be \"function\" or \"allowed_tools\", but \"{other}\" came");
            Err(FieldError::new(join(path, "type"), problem))
        }
    }
}
