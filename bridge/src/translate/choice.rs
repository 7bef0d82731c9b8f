//! `tool_choice` in all its forms. A choice names tools as Codex declared them; a flattened or sanitised spelling, or
//! the wrong kind, selects nothing and is refused.

use protocol::{
    FieldError, Object, ToolKind,
    object::{as_object, describe, join, optional_str, required_str},
};
use serde_json::{Value, json};

use super::{Dialect, Error, Tool, ToolCatalog, declare::is_web_search, element, web_search};
use crate::config::Policy;

#[derive(Debug)]
pub(super) enum Choice {
    /// The client said nothing.
    Absent,
    /// `auto`, `none` or `required`.
    Mode(String),
    One {
        wire_name: String,
        /// The choice as it goes to a native server.
        native: Object,
    },
    Several {
        wire_names: Vec<String>,
        mode: String,
        native: Object,
    },
}

impl Choice {
    /// The tools it allows; `None` allows all.
    pub(super) fn wire_names(&self) -> Option<Vec<&str>> {
        match self {
            Self::Absent | Self::Mode(_) => None,
            Self::One { wire_name, .. } => Some(vec![wire_name]),
            Self::Several { wire_names, .. } => {
                Some(wire_names.iter().map(String::as_str).collect())
            }
        }
    }

    /// The answer must be a call, and not the JSON that `text.format` may ask for.
    pub(super) fn forces_a_call(&self) -> bool {
        match self {
            Self::Absent => false,
            Self::Mode(mode) | Self::Several { mode, .. } => mode == "required",
            Self::One { .. } => true,
        }
    }

    /// `tool_choice` upstream. llama-server reads any object as `auto`, so there the tool list is narrowed instead.
    pub(super) fn value(&self, dialect: Dialect) -> Option<Value> {
        match (self, dialect) {
            (Self::Absent, _) => None,
            (Self::Mode(mode) | Self::Several { mode, .. }, Dialect::LlamaCpp)
            | (Self::Mode(mode), Dialect::Responses) => Some(mode.as_str().into()),
            (Self::One { .. }, Dialect::LlamaCpp) => Some("required".into()),
            (Self::One { native, .. } | Self::Several { native, .. }, Dialect::Responses) => {
                Some(native.clone().into())
            }
        }
    }
}

pub(super) fn choose(
    choice: Option<&Value>,
    catalog: &ToolCatalog,
    policy: &Policy,
) -> Result<Choice, Error> {
    const PATH: &str = "tool_choice";
    match choice {
        None | Some(Value::Null) => Ok(Choice::Absent),
        Some(Value::String(mode)) if mode == "required" && catalog.tools().is_empty() => {
            Err(FieldError::new(PATH, "is \"required\", but no tool is left to call").into())
        }
        Some(Value::String(mode)) if ["auto", "none", "required"].contains(&mode.as_str()) => {
            Ok(Choice::Mode(mode.clone()))
        }
        Some(Value::Object(choice)) => {
            if required_str(choice, "type", PATH)? == "allowed_tools" {
                return several(choice, catalog, policy);
            }
            let tool = select(choice, PATH, catalog, policy)?;
            Ok(Choice::One {
                wire_name: tool.wire_name.clone(),
                native: native(choice, tool),
            })
        }
        Some(other) => {
            let expected = "\"auto\", \"none\", \"required\" or an object";
            Err(FieldError::unexpected(PATH, expected, other).into())
        }
    }
}

fn several(choice: &Object, catalog: &ToolCatalog, policy: &Policy) -> Result<Choice, Error> {
    let mode = match choice.get("mode") {
        None => "auto",
        Some(Value::String(mode)) if mode == "auto" || mode == "required" => mode,
        Some(other) => {
            let expected = "\"auto\" or \"required\"";
            return Err(FieldError::unexpected("tool_choice.mode", expected, other).into());
        }
    };
    const PATH: &str = "tool_choice.tools";
    let list = match choice.get("tools") {
        Some(Value::Array(list)) if !list.is_empty() => list,
        Some(other) => {
            return Err(
                FieldError::unexpected(PATH, "an array of at least one tool", other).into(),
            );
        }
        None => return Err(FieldError::missing(PATH, "an array of at least one tool").into()),
    };
    let mut wire_names = Vec::with_capacity(list.len());
    let mut selected = Vec::with_capacity(list.len());
    for (index, entry) in list.iter().enumerate() {
        let path = element(PATH, index);
        let entry = as_object(entry, &path)?;
        let tool = select(entry, &path, catalog, policy)?;
        wire_names.push(tool.wire_name.clone());
        selected.push(native(entry, tool));
    }
    let mut native = choice.clone();
    native.insert("tools".into(), json!(selected));
    Ok(Choice::Several {
        wire_names,
        mode: mode.to_owned(),
        native,
    })
}

/// The one tool that `selector` names.
fn select<'a>(
    selector: &Object,
    path: &str,
    catalog: &'a ToolCatalog,
    policy: &Policy,
) -> Result<&'a Tool, Error> {
    let kind = match required_str(selector, "type", path)? {
        "function" => ToolKind::Function,
        "custom" => ToolKind::Custom,
        "tool_search" => {
            return catalog
                .find(ToolKind::ToolSearch, None, "tool_search")
                .ok_or_else(|| {
                    FieldError::new(path, "names tool_search, which is not declared").into()
                });
        }
        hosted if is_web_search(hosted) => {
            return web_search::stand_in(catalog, policy).ok_or_else(|| {
                Error::unsupported(join(path, "type"), web_search::missing(hosted, policy))
            });
        }
        other => {
            return Err(Error::unsupported(
                join(path, "type"),
                format!(
                    "{} names a type of tool that is not offered here",
                    describe(&other.into())
                ),
            ));
        }
    };
    let name = required_str(selector, "name", path)?;
    let namespace = optional_str(selector, "namespace", path)?.filter(|name| !name.is_empty());
    catalog.find(kind, namespace, name).ok_or_else(|| {
        let kind = if kind == ToolKind::Custom {
            "custom tool"
        } else {
            "function"
        };
        let place = namespace.map_or(String::new(), |name| format!(" in namespace \"{name}\""));
        let problem = format!("names the {kind} \"{name}\"{place}, which is not declared");
        FieldError::new(join(path, "name"), problem).into()
    })
}

/// `selector` for a native server: the function under its wire name, other keys kept.
fn native(selector: &Object, tool: &Tool) -> Object {
    let mut native = selector.clone();
    native.shift_remove("namespace");
    native.insert("type".into(), "function".into());
    native.insert("name".into(), tool.wire_name.as_str().into());
    native
}
