//! Content parts for llama-server: messages hold text and, with vision, images; tool outputs hold the same, but what
//! the model cannot take is replaced by a note there. A tool output is replayed in every later request, and a refusal
//! would end the conversation for good.

use protocol::{
    FieldError, Object,
    object::{as_object, join, required_str, str_or_empty},
};
use serde_json::{Value, json};

use super::super::{Counts, Error, element};

/// Checks the content of one message.
pub(super) fn check_message(
    message: &Object,
    path: &str,
    is_assistant: bool,
    vision: bool,
) -> Result<(), Error> {
    let path = join(path, "content");
    let parts = match message.get("content") {
        Some(Value::String(_)) => return Ok(()),
        Some(Value::Array(parts)) => parts,
        Some(other) => {
            let expected = "a string or an array of parts";
            return Err(FieldError::unexpected(path, expected, other).into());
        }
        None => return Err(FieldError::missing(path, "a string or an array of parts").into()),
    };
    for (index, part) in parts.iter().enumerate() {
        let path = element(&path, index);
        let part = as_object(part, &path)?;
        match required_str(part, "type", &path)? {
            "input_text" => required_str(part, "text", &path).map(drop)?,
            "output_text" if is_assistant => required_str(part, "text", &path).map(drop)?,
            "refusal" if is_assistant => required_str(part, "refusal", &path).map(drop)?,
            "input_image" if vision && !is_assistant => {
                required_str(part, "image_url", &path).map(drop)?;
            }
            "input_image" if !is_assistant => {
                return Err(no_vision(path));
            }
            other => {
                return Err(Error::unsupported(
                    join(&path, "type"),
                    format!("llama-server takes no \"{other}\" in this message"),
                ));
            }
        }
    }
    Ok(())
}

/// Brings the content of an assistant message into the one form that is taken: a list of texts, refusals among them.
pub(super) fn only_output_text(message: &mut Object) {
    let texts = match message.get("content") {
        Some(Value::String(text)) => json!([{"type": "output_text", "text": text}]),
        Some(Value::Array(parts)) if parts.iter().any(is_refusal) => parts
            .iter()
            .map(|part| match part.get("refusal") {
                Some(refusal) if is_refusal(part) => {
                    json!({"type": "output_text", "text": refusal})
                }
                _ => part.clone(),
            })
            .collect(),
        _ => return,
    };
    message.insert("content".into(), texts);
}

fn is_refusal(part: &Value) -> bool {
    part.get("type").and_then(Value::as_str) == Some("refusal")
}

/// An item for a native server whose model has no vision; nothing but images changes.
pub(super) fn without_images(
    mut item: Object,
    path: &str,
    counts: &mut Counts,
) -> Result<Object, Error> {
    let is_image = |part: &Value| part.get("type").and_then(Value::as_str) == Some("input_image");
    let message = item.get("content").and_then(Value::as_array);
    if let Some(index) = message.and_then(|parts| parts.iter().position(is_image)) {
        return Err(no_vision(element(&join(path, "content"), index)));
    }
    let output = item.get_mut("output").and_then(Value::as_array_mut);
    for image in output.into_iter().flatten().filter(|part| is_image(part)) {
        *image = image_note(counts);
    }
    Ok(item)
}

/// A tool output: a string, or an array of `input_text` and `input_image`.
pub(super) fn tool_output(output: Option<Value>, vision: bool, counts: &mut Counts) -> Value {
    match output {
        None | Some(Value::Null) => "".into(),
        Some(Value::String(text)) => text.into(),
        Some(Value::Array(parts)) if parts.is_empty() => "".into(),
        Some(Value::Array(parts)) if parts.iter().all(is_part) => parts
            .into_iter()
            .map(|part| output_part(part, vision, counts))
            .collect(),
        Some(other) => other.to_string().into(),
    }
}

fn is_part(value: &Value) -> bool {
    value.get("type").is_some_and(Value::is_string)
}

fn output_part(part: Value, vision: bool, counts: &mut Counts) -> Value {
    let Value::Object(part) = part else {
        return part;
    };
    match str_or_empty(&part, "type") {
        "input_text" | "output_text" | "text" if part.get("text").is_some_and(Value::is_string) => {
            text(str_or_empty(&part, "text"))
        }
        "input_image" if !vision => image_note(counts),
        "input_image" if part.get("image_url").is_some_and(Value::is_string) => part.into(),
        kind => {
            counts.mend("unknown part in a tool output");
            text(&format!(
                "[{kind} omitted: the model server cannot take it]"
            ))
        }
    }
}

fn image_note(counts: &mut Counts) -> Value {
    counts.mend("image without vision");
    text("[image omitted: the model has no vision]")
}

fn no_vision(path: String) -> Error {
    Error::unsupported(path, "is an image, and the model has no vision")
}

fn text(text: &str) -> Value {
    json!({"type": "input_text", "text": text})
}
