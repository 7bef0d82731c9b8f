//! The request's `instructions` and `input` as turns.
//!
//! The client sends the whole history with every request, so what was accepted once must be accepted for ever: an unfinished call, a result nobody
//! asked for, arguments that are no JSON and images from a tool all have a reading here. Only what the user can correct is refused, with its path.

use std::collections::HashMap;

use protocol::{
    FieldError, ItemKind, Object,
    object::{as_object, describe, join, optional_str, required_str},
};
use serde_json::Value;

use super::{PromptError, python};

/// What was said so far, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversation {
    pub turns: Vec<Turn>,
}

/// One turn. Text is the request's own, unchanged.
#[derive(Clone, Debug, PartialEq)]
pub enum Turn {
    /// Instructions, `developer` and `system` messages. Leading ones are merged into one; later ones stay where they are.
    System(String),
    User(String),
    Assistant {
        /// Raw reasoning, where the request carries it.
        reasoning: String,
        text: String,
        /// The calls made after the text, each with its result.
        calls: Vec<Call>,
    },
}

/// A call and its result.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub id: String,
    pub name: String,
    /// Parsed arguments; a string where the model's text was not JSON.
    pub arguments: Value,
    /// What the client answered; `None`: it never did.
    pub output: Option<String>,
}

/// Stands for an image in a tool's result: the history is replayed, and an error would end the conversation. In a message it is refused.
const NOTE: &str = "[image omitted: this model reads text only]";
const INPUT: &str = "a string or an array of items";
const ROLES: &str = "\"user\", \"assistant\", \"system\" or \"developer\"";

impl Conversation {
    /// Reads `instructions` and `input` of a request as the bridge sends it: function calls only.
    pub fn from_request(request: &Object) -> Result<Conversation, PromptError> {
        let mut reader = Reader::default();
        if let Some(text) = optional_str(request, "instructions", "")?
            && !text.is_empty()
        {
            reader.turns.push(Turn::System(text.to_owned()));
        }
        match request.get("input") {
            Some(Value::String(text)) => reader.turns.push(Turn::User(text.clone())),
            Some(Value::Array(items)) => reader.read(items)?,
            Some(other) => return Err(FieldError::unexpected("input", INPUT, other).into()),
            None => return Err(FieldError::missing("input", INPUT).into()),
        }
        let mut turns = reader.turns;
        turns.retain(|turn| match turn {
            Turn::System(text) => !text.is_empty(),
            Turn::User(_) => true,
            Turn::Assistant {
                reasoning,
                text,
                calls,
            } => !(reasoning.is_empty() && text.is_empty() && calls.is_empty()),
        });
        Ok(Conversation {
            turns: merge_leading(turns),
        })
    }
}

fn merge_leading(turns: Vec<Turn>) -> Vec<Turn> {
    let mut merged: Vec<Turn> = Vec::with_capacity(turns.len());
    for turn in turns {
        match (turn, merged.as_mut_slice()) {
            (Turn::System(more), [Turn::System(text)]) => {
                text.push_str("\n\n");
                text.push_str(&more);
            }
            (turn, _) => merged.push(turn),
        }
    }
    merged
}

#[derive(Debug, Default)]
struct Reader {
    turns: Vec<Turn>,
    /// Calls whose result has not come, by id: turn and place in the turn, oldest first.
    open: HashMap<String, Vec<(usize, usize)>>,
    /// The last turn is the assistant's and no result has been seen since: further calls are parallel ones.
    calling: bool,
}

impl Reader {
    fn read(&mut self, items: &[Value]) -> Result<(), FieldError> {
        for (index, item) in items.iter().enumerate() {
            let path = format!("input[{index}]");
            let item = as_object(item, &path)?;
            match ItemKind::of(item) {
                ItemKind::Message => self.message(item, &path, &items[index + 1..])?,
                ItemKind::Reasoning => self.reasoning(item, &path)?,
                ItemKind::FunctionCall => self.call(item, &path)?,
                ItemKind::FunctionCallOutput => self.output(item, &path)?,
                _ if passes_silently(item) => {}
                _ => {
                    let found = item.get("type").unwrap_or(&Value::Null);
                    return Err(FieldError::new(
                        join(&path, "type"),
                        format!(
                            "must be \"message\", \"function_call\", \"function_call_output\" or \"reasoning\", but {} came",
                            describe(found)
                        ),
                    ));
                }
            }
        }
        Ok(())
    }

    fn message(&mut self, item: &Object, path: &str, later: &[Value]) -> Result<(), FieldError> {
        let role = required_str(item, "role", path)?;
        let content = join(path, "content");
        let text = match item.get("content") {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(parts)) if role == "assistant" => message_text(parts, &content, "")?,
            Some(Value::Array(parts)) => message_text(parts, &content, "\n")?,
            Some(other) => {
                return Err(FieldError::unexpected(
                    content,
                    "a string or an array of parts",
                    other,
                ));
            }
        };
        match role {
            "user" => self.push(Turn::User(text)),
            "system" | "developer" => self.push(Turn::System(text)),
            "assistant" => self.assistant(text, later),
            _ => {
                let found = Value::from(role);
                return Err(FieldError::unexpected(join(path, "role"), ROLES, &found));
            }
        }
        Ok(())
    }

    fn push(&mut self, turn: Turn) {
        self.turns.push(turn);
        self.calling = false;
    }

    fn assistant(&mut self, more: String, later: &[Value]) {
        let waiting = self.calling && self.waits_for(later);
        if let Some(Turn::Assistant { text, calls, .. }) = self.turns.last_mut() {
            // Text between a call and its result was said with the call; no template can put it anywhere else.
            if calls.is_empty() && text.is_empty() {
                *text = more;
                return;
            }
            if waiting {
                if !text.is_empty() && !more.is_empty() {
                    text.push('\n');
                }
                text.push_str(&more);
                return;
            }
        }
        self.push(Turn::Assistant {
            reasoning: String::new(),
            text: more,
            calls: Vec::new(),
        });
    }

    /// Does the result of one of the last turn's calls come later?
    fn waits_for(&self, later: &[Value]) -> bool {
        let Some(Turn::Assistant { calls, .. }) = self.turns.last() else {
            return false;
        };
        calls
            .iter()
            .filter(|call| call.output.is_none())
            .any(|call| {
                later.iter().any(|item| {
                    item["type"] == "function_call_output" && item["call_id"] == call.id.as_str()
                })
            })
    }

    fn reasoning(&mut self, item: &Object, path: &str) -> Result<(), FieldError> {
        let mut raw = String::new();
        match item.get("content") {
            None | Some(Value::Null) => {}
            Some(Value::Array(parts)) => {
                for (index, part) in parts.iter().enumerate() {
                    let place = format!("{path}.content[{index}]");
                    raw.push_str(required_str(as_object(part, &place)?, "text", &place)?);
                }
            }
            Some(other) => {
                return Err(FieldError::unexpected(
                    join(path, "content"),
                    "an array of parts or null",
                    other,
                ));
            }
        }
        if raw.is_empty() {
            return Ok(());
        }
        match self.turns.last_mut() {
            Some(Turn::Assistant {
                reasoning,
                text,
                calls,
            }) if text.is_empty() && calls.is_empty() => reasoning.push_str(&raw),
            _ => self.push(Turn::Assistant {
                reasoning: raw,
                text: String::new(),
                calls: Vec::new(),
            }),
        }
        Ok(())
    }

    fn call(&mut self, item: &Object, path: &str) -> Result<(), FieldError> {
        let id = required_str(item, "call_id", path)?.to_owned();
        let call = Call {
            name: required_str(item, "name", path)?.to_owned(),
            arguments: arguments(item, path)?,
            id: id.clone(),
            output: None,
        };
        let joins = match self.turns.last() {
            Some(Turn::Assistant { calls, .. }) => calls.is_empty() || self.calling,
            _ => false,
        };
        if !joins {
            self.turns.push(Turn::Assistant {
                reasoning: String::new(),
                text: String::new(),
                calls: Vec::new(),
            });
        }
        self.calling = true;
        let turn = self.turns.len() - 1;
        if let Some(Turn::Assistant { calls, .. }) = self.turns.last_mut() {
            self.open.entry(id).or_default().push((turn, calls.len()));
            calls.push(call);
        }
        Ok(())
    }

    fn output(&mut self, item: &Object, path: &str) -> Result<(), FieldError> {
        let id = optional_str(item, "call_id", path)?.unwrap_or_default();
        let place = join(path, "output");
        let output = match item.get("output") {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(parts)) => output_parts(parts, &place)?,
            Some(other) => {
                return Err(FieldError::unexpected(
                    place,
                    "a string or an array of parts",
                    other,
                ));
            }
        };
        self.calling = false;
        let called = self
            .open
            .get_mut(id)
            .filter(|places| !places.is_empty())
            .map(|places| places.remove(0));
        if let Some((turn, index)) = called
            && let Some(Turn::Assistant { calls, .. }) = self.turns.get_mut(turn)
            && let Some(call) = calls.get_mut(index)
        {
            call.output = Some(output);
            return Ok(());
        }
        // A result without its call: the call was compacted away or never sent. What it says may still matter.
        self.turns.push(Turn::User(format!(
            "Result of an earlier tool call:\n{output}"
        )));
        Ok(())
    }
}

fn message_text(parts: &[Value], path: &str, between: &str) -> Result<String, FieldError> {
    let mut text = String::new();
    for (index, part) in parts.iter().enumerate() {
        let place = format!("{path}[{index}]");
        let part = as_object(part, &place)?;
        let more = match required_str(part, "type", &place)? {
            "input_text" | "output_text" | "text" => required_str(part, "text", &place)?,
            "refusal" => required_str(part, "refusal", &place)?,
            "input_image" => {
                return Err(FieldError::new(
                    place,
                    "is an image, but this model reads text only",
                ));
            }
            other => {
                return Err(FieldError::new(
                    join(&place, "type"),
                    format!(
                        "must be \"input_text\", \"output_text\" or \"refusal\", but {} came",
                        describe(&Value::from(other))
                    ),
                ));
            }
        };
        if !text.is_empty() && !text.ends_with('\n') {
            text.push_str(between);
        }
        text.push_str(more);
    }
    Ok(text)
}

/// Results have whatever parts a tool made; what is not text leaves a note.
fn output_parts(parts: &[Value], path: &str) -> Result<String, FieldError> {
    let mut text = String::new();
    for (index, part) in parts.iter().enumerate() {
        let place = format!("{path}[{index}]");
        let part = as_object(part, &place)?;
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        match (part.get("text"), part.get("type").and_then(Value::as_str)) {
            (Some(Value::String(more)), _) => text.push_str(more),
            (_, Some("input_image" | "image")) => text.push_str(NOTE),
            (_, Some(kind)) => {
                text.push_str(&format!("[{kind} omitted: this model reads text only]"));
            }
            (_, None) => text.push_str("[part omitted: this model reads text only]"),
        }
    }
    Ok(text)
}

/// The arguments as an object where they are one. Models write them as a string, sometimes twice; and sometimes what they write is no JSON at all.
fn arguments(item: &Object, path: &str) -> Result<Value, FieldError> {
    let text = match item.get("arguments") {
        None | Some(Value::Null) => return Ok(Value::Object(Object::new())),
        Some(object @ Value::Object(_)) if python::is_too_deep(object) => {
            return Err(python::too_deep(join(path, "arguments")));
        }
        Some(Value::Object(object)) => return Ok(Value::Object(object.clone())),
        Some(Value::String(text)) => text,
        Some(other) => {
            return Err(FieldError::unexpected(
                join(path, "arguments"),
                "a string",
                other,
            ));
        }
    };
    if text.trim().is_empty() {
        return Ok(Value::Object(Object::new()));
    }
    Ok(match serde_json::from_str::<Value>(text) {
        Ok(Value::String(inner)) => match serde_json::from_str::<Value>(&inner) {
            Ok(Value::Object(object)) => Value::Object(object),
            _ => Value::String(inner),
        },
        Ok(value) => value,
        Err(_) => Value::String(text.clone()),
    })
}

/// Items of a history that are somebody else's business: hosted tools, other servers' compactions.
fn passes_silently(item: &Object) -> bool {
    let kind = item.get("type").and_then(Value::as_str).unwrap_or_default();
    matches!(
        kind,
        "web_search_call"
            | "file_search_call"
            | "image_generation_call"
            | "code_interpreter_call"
            | "compaction"
            | "compaction_summary"
            | "configuration_update"
    ) || ["mcp_", "computer_call", "program"]
        .iter()
        .any(|start| kind.starts_with(start))
}

#[cfg(test)]
mod tests;
