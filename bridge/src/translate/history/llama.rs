//! One item as llama-server takes it. It knows messages, function calls with their outputs, and reasoning with text;
//! everything else gets there as one of these, or is left out and counted.

use protocol::{
    FieldError, ItemKind, Object,
    object::{join, required_str, str_or_empty},
};
use serde_json::{Value, json};

use super::{
    super::{Counts, Error},
    Rewriting, content, object,
};
use crate::config::UnknownTools;

/// The item, or none when it says nothing to the model.
pub(super) fn item(
    item: Object,
    path: &str,
    how: &Rewriting<'_>,
    counts: &mut Counts,
) -> Result<Option<Object>, Error> {
    let kind = str_or_empty(&item, "type").to_owned();
    match ItemKind::of(&item) {
        ItemKind::Message => message(item, path, how.upstream.vision).map(Some),
        ItemKind::Reasoning => Ok(reasoning(&item, counts)),
        ItemKind::FunctionCall => function_call(item, path, counts).map(Some),
        ItemKind::FunctionCallOutput => Ok(Some(output(item, how, counts))),
        ItemKind::WebSearchCall => Ok(Some(note(&web_search(&item)))),
        ItemKind::ImageGenerationCall => {
            let prompt = str_or_empty(&item, "revised_prompt");
            Ok(Some(note(&format!("[generated an image: {prompt}]"))))
        }
        ItemKind::LocalShellCall => Ok(Some(hosted_call(item, "local_shell", "action"))),
        ItemKind::LocalShellCallOutput => Ok(Some(output(item, how, counts))),
        // Encrypted by whoever made it.
        ItemKind::Compaction => {
            counts.drop_item(&kind);
            Ok(None)
        }
        ItemKind::ItemReference => Err(Error::unsupported(
            join(path, "type"),
            "\"item_reference\" points to a stored item, and llama-server stores none; send the item itself",
        )),
        _ => other(item, &kind, path, how, counts),
    }
}

/// Item types with no [`ItemKind`] of their own.
fn other(
    item: Object,
    kind: &str,
    path: &str,
    how: &Rewriting<'_>,
    counts: &mut Counts,
) -> Result<Option<Object>, Error> {
    match kind {
        "shell_call" => Ok(Some(hosted_call(item, "shell", "action"))),
        "apply_patch_call" => Ok(Some(hosted_call(item, "apply_patch", "operation"))),
        "shell_call_output" | "apply_patch_call_output" => Ok(Some(output(item, how, counts))),
        "agent_message" => {
            let message = agent_message(item);
            content::check_message(&message, path, false, how.upstream.vision)?;
            Ok(Some(message))
        }
        "" => Err(FieldError::missing(join(path, "type"), "the type of an item").into()),
        _ if how.policy.unknown_tools == UnknownTools::Drop => {
            counts.drop_item(kind);
            Ok(None)
        }
        _ => Err(Error::unsupported(
            join(path, "type"),
            format!(
                "llama-server takes no \"{kind}\" item (the bridge setting unknownTools = \"drop\" leaves such items out)"
            ),
        )),
    }
}

fn message(mut message: Object, path: &str, vision: bool) -> Result<Object, Error> {
    let role = required_str(&message, "role", path)?;
    if !["user", "assistant", "system", "developer"].contains(&role) {
        let expected = "\"user\", \"assistant\", \"system\" or \"developer\"";
        let role = role.into();
        return Err(FieldError::unexpected(join(path, "role"), expected, &role).into());
    }
    let is_assistant = role == "assistant";
    content::check_message(&message, path, is_assistant, vision)?;
    // What tells two threads apart, and never reaches a template.
    message.retain(|key, value| {
        !(key == "id" || key == "status" || key.starts_with("internal_") || value.is_null())
    });
    // Without it, and with content as a list, an assistant message is "cannot determine type".
    message.insert("type".into(), "message".into());
    if is_assistant {
        content::only_output_text(&mut message);
    }
    Ok(message)
}

/// Reasoning with its text, which the server asks for in `content[0]`; an encrypted or empty one says nothing.
fn reasoning(item: &Object, counts: &mut Counts) -> Option<Object> {
    let text = [texts(item, "content"), texts(item, "summary")]
        .into_iter()
        .find(|text| !text.is_empty());
    let Some(text) = text else {
        counts.drop_item("reasoning");
        return None;
    };
    Some(object([
        ("type", Some("reasoning".into())),
        ("summary", Some(json!([]))),
        (
            "content",
            Some(json!([{"type": "reasoning_text", "text": text}])),
        ),
    ]))
}

fn texts(item: &Object, key: &str) -> String {
    let parts = item.get(key).and_then(Value::as_array);
    let texts: Vec<&str> = parts
        .into_iter()
        .flatten()
        .filter_map(|part| part.get("text")?.as_str())
        .filter(|text| !text.is_empty())
        .collect();
    texts.join("\n")
}

fn function_call(mut call: Object, path: &str, counts: &mut Counts) -> Result<Object, Error> {
    required_str(&call, "call_id", path)?;
    required_str(&call, "name", path)?;
    let arguments = arguments(call.shift_remove("arguments"), counts);
    Ok(object([
        ("type", Some("function_call".into())),
        ("call_id", call.shift_remove("call_id")),
        ("name", call.shift_remove("name")),
        ("arguments", Some(arguments.into())),
    ]))
}

/// The arguments as the text of an object, which templates take apart. What the model once wrote wrongly must not end
/// the conversation, so it is carried as the one member of an object.
fn arguments(arguments: Option<Value>, counts: &mut Counts) -> String {
    let text = match arguments {
        None | Some(Value::Null) => return "{}".to_owned(),
        Some(Value::String(text)) if text.trim().is_empty() => return "{}".to_owned(),
        Some(Value::String(text)) => text,
        Some(value) => value.to_string(),
    };
    if serde_json::from_str::<Object>(&text).is_ok() {
        return text;
    }
    counts.mend("malformed arguments");
    json!({ "malformed_arguments": text }).to_string()
}

/// A call of a built-in tool, as if it had been a function.
fn hosted_call(mut call: Object, name: &str, arguments: &str) -> Object {
    let arguments = call.shift_remove(arguments).unwrap_or_else(|| json!({}));
    object([
        ("type", Some("function_call".into())),
        ("call_id", call_id(&mut call)),
        ("name", Some(name.into())),
        ("arguments", Some(arguments.to_string().into())),
    ])
}

fn output(mut output: Object, how: &Rewriting<'_>, counts: &mut Counts) -> Object {
    let text = content::tool_output(output.shift_remove("output"), how.upstream.vision, counts);
    object([
        ("type", Some("function_call_output".into())),
        ("call_id", call_id(&mut output)),
        ("output", Some(text)),
    ])
}

/// `call_id`, or `id` where an item has only that (`local_shell_call_output`).
fn call_id(item: &mut Object) -> Option<Value> {
    [item.shift_remove("call_id"), item.shift_remove("id")]
        .into_iter()
        .flatten()
        .find(Value::is_string)
}

/// What another agent of the same session said.
fn agent_message(mut item: Object) -> Object {
    let content = match item.shift_remove("content") {
        Some(Value::Array(parts)) => parts
            .into_iter()
            .filter(|part| part.get("type").and_then(Value::as_str) == Some("input_text"))
            .collect(),
        Some(content @ Value::String(_)) => content,
        _ => "".into(),
    };
    object([
        ("type", Some("message".into())),
        ("role", Some("user".into())),
        ("content", Some(content)),
    ])
}

fn web_search(item: &Object) -> String {
    let field = |key: &str| {
        item.get("action")
            .and_then(|action| action.get(key)?.as_str())
    };
    let told = match (
        field("type"),
        field("query"),
        field("url"),
        field("pattern"),
    ) {
        (_, Some(query), _, _) => format!("for {}", Value::from(query)),
        (Some("find_in_page" | "find"), _, Some(url), Some(pattern)) => {
            format!("for {} in {url}", Value::from(pattern))
        }
        (_, _, Some(url), _) => format!("and opened {url}"),
        _ => item
            .get("action")
            .map_or_else(String::new, Value::to_string),
    };
    format!("[searched the web {told}]")
}

fn note(text: &str) -> Object {
    object([
        ("type", Some("message".into())),
        ("role", Some("assistant".into())),
        (
            "content",
            Some(json!([{"type": "output_text", "text": text}])),
        ),
    ])
}
