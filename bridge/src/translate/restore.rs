//! The way back: an output item of the upstream in the shape in which Codex declared the tool it calls.
//!
//! Codex looks tools up by (namespace, name) and by the type of the item; any other spelling is an "unsupported call",
//! and a freeform `apply_patch` that comes back as a function ends the turn. Used for the items of stream events, of
//! the terminal event's output, and of non-streaming answers alike, so that all of them agree.

mod patch;
mod unwrap;

use protocol::{ItemKind, Object, ToolKind, object::str_or_empty, response::complete_usage};
use serde_json::{Value, json};

use super::{Tool, Translation};

pub use patch::repaired as repaired_patch;
pub(crate) use unwrap::Unwrap;

/// Restores one output item in place; true when a patch's markers were repaired. What is no call, or calls a tool
/// nobody declared, stays as it is.
pub fn item(item: &mut Object, translation: &Translation) -> bool {
    if ItemKind::of(item) != ItemKind::FunctionCall || !str_or_empty(item, "namespace").is_empty() {
        return false;
    }
    let Some(tool) = translation.catalog.resolve(str_or_empty(item, "name")) else {
        arguments_as_text(item);
        return false;
    };
    match tool.id.kind {
        ToolKind::Function => {
            function_call(item, tool);
            false
        }
        ToolKind::Custom => custom_call(item, tool, translation.repair_patch_markers),
        ToolKind::ToolSearch => {
            search_call(item, tool);
            false
        }
    }
}

/// The input of a custom tool's call from its arguments: the string `input` of the object, else the text as it came.
pub fn custom_input(arguments: &str) -> String {
    match serde_json::from_str::<Object>(arguments) {
        Ok(mut object) => match object.shift_remove("input") {
            Some(Value::String(input)) => input,
            _ => arguments.to_owned(),
        },
        Err(_) => arguments.to_owned(),
    }
}

/// A restored item whose arguments were cut: their whole text became the input of a custom tool's call, with the opening of
/// its wrapper. Takes that away.
pub fn cut(item: &mut Object) {
    if let Some(Value::String(input)) = item.get_mut("input")
        && let Some(text) = unwrap::of_cut(input)
    {
        *input = text;
    }
}

/// Restores a non-streaming answer in place; how many patches were repaired.
pub fn response(response: &mut Object, translation: &Translation) -> usize {
    let mut repaired = 0;
    let is_cut = is_incomplete(response);
    if let Some(output) = response.get_mut("output").and_then(Value::as_array_mut) {
        for output_item in output.iter_mut().filter_map(Value::as_object_mut) {
            // An item knows best about itself.
            let is_cut = match str_or_empty(output_item, "status") {
                "" => is_cut,
                _ => is_incomplete(output_item),
            };
            let is_cut = is_cut
                && ItemKind::of(output_item) == ItemKind::FunctionCall
                && serde_json::from_str::<Object>(str_or_empty(output_item, "arguments")).is_err();
            repaired += usize::from(item(output_item, translation));
            if is_cut {
                cut(output_item);
            }
        }
    }
    echo(response, translation);
    if let Some(Value::Object(usage)) = response.get("usage") {
        let usage = complete_usage(usage);
        response.insert("usage".into(), usage.into());
    }
    summarise_all(response);
    repaired
}

/// Puts the request's own fields where the upstream echoes what it was sent; what it does not echo stays away.
pub fn echo(response: &mut Object, translation: &Translation) {
    for key in ["model", "tool_choice", "tools", "instructions"] {
        if let Some(came) = response.get_mut(key)
            && let Some(declared) = translation.declared.get(key)
            && came != declared
        {
            came.clone_from(declared);
        }
    }
    if let Some(tools) = response.get_mut("tools")
        && !translation.declared.contains_key("tools")
    {
        *tools = json!([]);
    }
}

/// What only a JSON answer gets: a summary for reasoning without one, and `output_text`. Its items are restored already.
pub fn summarise_all(response: &mut Object) {
    let Some(output) = response.get_mut("output").and_then(Value::as_array_mut) else {
        return;
    };
    for output_item in output.iter_mut().filter_map(Value::as_object_mut) {
        summarise(output_item);
    }
    let text = output_text(output);
    if !response.get("output_text").is_some_and(Value::is_string) {
        response.insert("output_text".into(), text.into());
    }
}

fn is_incomplete(item: &Object) -> bool {
    str_or_empty(item, "status") == "incomplete"
}

fn function_call(item: &mut Object, tool: &Tool) {
    rename(item, tool);
    arguments_as_text(item);
    if tool.encrypted {
        item.insert("encrypted_function_args".into(), json!([]));
    }
}

fn custom_call(item: &mut Object, tool: &Tool, repair: bool) -> bool {
    rename(item, tool);
    let input = match item.shift_remove("arguments") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => custom_input(&text),
        Some(value) => custom_input(&value.to_string()),
    };
    let repaired = (repair && tool.is_apply_patch())
        .then(|| repaired_patch(&input))
        .flatten();
    let is_repaired = repaired.is_some();
    item.insert("type".into(), "custom_tool_call".into());
    item.insert("input".into(), repaired.unwrap_or(input).into());
    is_repaired
}

fn search_call(item: &mut Object, tool: &Tool) {
    item.insert("type".into(), "tool_search_call".into());
    item.shift_remove("name");
    let arguments = match item.shift_remove("arguments") {
        None | Some(Value::Null) => json!({}),
        Some(Value::String(text)) if text.is_empty() => json!({}),
        // Text that is no JSON stays a text: Codex then tells the model what was wrong with it.
        Some(Value::String(text)) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        Some(arguments) => arguments,
    };
    item.insert("arguments".into(), arguments);
    let execution = tool.execution.as_deref().unwrap_or("client");
    item.insert("execution".into(), execution.into());
}

fn rename(item: &mut Object, tool: &Tool) {
    item.insert("name".into(), tool.id.name.as_str().into());
    match &tool.id.namespace {
        Some(namespace) => item.insert("namespace".into(), namespace.as_str().into()),
        None => item.shift_remove("namespace"),
    };
}

/// Codex drops a call whose `arguments` are missing or no string.
fn arguments_as_text(item: &mut Object) {
    let text = match item.get("arguments") {
        Some(Value::String(_)) => return,
        None | Some(Value::Null) => String::new(),
        Some(value) => value.to_string(),
    };
    item.insert("arguments".into(), text.into());
}

/// Gives reasoning without a summary the summary its clients show: its own text.
fn summarise(item: &mut Object) {
    let has_summary = matches!(item.get("summary"), Some(Value::Array(parts)) if !parts.is_empty());
    if ItemKind::of(item) != ItemKind::Reasoning || has_summary {
        return;
    }
    let content = item.get("content").and_then(Value::as_array);
    let texts: Vec<&str> = content
        .into_iter()
        .flatten()
        .filter_map(|part| part.get("text")?.as_str())
        .collect();
    let summary = if texts.is_empty() {
        json!([])
    } else {
        json!([{"type": "summary_text", "text": texts.join("\n")}])
    };
    item.insert("summary".into(), summary);
}

fn output_text(output: &[Value]) -> String {
    output
        .iter()
        .filter(|item| item.get("type").and_then(Value::as_str) == Some("message"))
        .filter_map(|item| item.get("content")?.as_array())
        .flatten()
        .filter_map(|part| part.get("text")?.as_str())
        .collect()
}
