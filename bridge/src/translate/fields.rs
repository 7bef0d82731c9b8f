//! The request's scalar fields: model, stream, limits, reasoning, `text.format`, and what must not reach llama-server.

use protocol::{
    FieldError, Object,
    object::{as_object, drop_nulls, required_str},
};
use serde_json::{Value, json};

use super::{Dialect, Error};
use crate::config::Policy;

/// Fields that llama-server ignores or refuses. They hold ids that change from turn to turn or name the client's
/// installation, and a server that starts to read one tomorrow would change its answers.
const NOT_FOR_LLAMA: [&str; 22] = [
    "background",
    "client_metadata",
    "context_management",
    "conversation",
    "generate",
    "include",
    "max_tool_calls",
    "metadata",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "stream_options",
    "text",
    "top_logprobs",
    "truncation",
    "user",
];

/// The model to ask for: the request's, or what an alias makes of it.
pub(super) fn model(request: &Object, policy: &Policy) -> Result<String, Error> {
    let asked = required_str(request, "model", "")?;
    if asked.trim().is_empty() {
        return Err(FieldError::new("model", "must not be blank").into());
    }
    let aliases = &policy.model_aliases;
    let alias = aliases.get(asked).or_else(|| aliases.get("*"));
    Ok(alias.map_or(asked, String::as_str).to_owned())
}

/// Sets the model; the name that was asked for, when it is another.
pub(super) fn set_model(body: &mut Object, model: &str) -> Option<String> {
    match body.insert("model".into(), model.into()) {
        Some(Value::String(asked)) if asked != model => Some(asked),
        _ => None,
    }
}

pub(super) fn stream(request: &Object) -> Result<bool, Error> {
    match request.get("stream") {
        None => Ok(false),
        Some(Value::Bool(stream)) => Ok(*stream),
        Some(other) => Err(FieldError::unexpected("stream", "a boolean", other).into()),
    }
}

/// The client's limit. Only llama-server needs it checked: it reads a negative one as "no limit".
pub(super) fn max_output_tokens(request: &Object, dialect: Dialect) -> Result<Option<u64>, Error> {
    match request.get("max_output_tokens") {
        None | Some(Value::Null) => Ok(None),
        Some(limit) => match limit.as_u64() {
            Some(limit) if limit > 0 => Ok(Some(limit)),
            _ if dialect == Dialect::Responses => Ok(None),
            _ => {
                Err(FieldError::unexpected("max_output_tokens", "an integer above 0", limit).into())
            }
        },
    }
}

/// Whether `text.format` asks for JSON.
pub(super) fn is_structured(request: &Object) -> bool {
    let kind = request
        .get("text")
        .and_then(|text| text.get("format")?.get("type")?.as_str());
    matches!(kind, Some("json_schema" | "json_object"))
}

/// `text.format` as llama-server's `response_format`; it ignores the former.
pub(super) fn text_format(request: &Object, dialect: Dialect) -> Result<Option<Value>, Error> {
    if dialect == Dialect::Responses {
        return Ok(None);
    }
    let text = match request.get("text") {
        None | Some(Value::Null) => return Ok(None),
        Some(text) => as_object(text, "text")?,
    };
    let format = match text.get("format") {
        None | Some(Value::Null) => return Ok(None),
        Some(format) => as_object(format, "text.format")?,
    };
    match required_str(format, "type", "text.format")? {
        "text" => Ok(None),
        "json_object" => Ok(Some(json!({"type": "json_object"}))),
        "json_schema" => {
            if !format.get("schema").is_some_and(Value::is_object) {
                return Err(FieldError::missing("text.format.schema", "a JSON schema").into());
            }
            let mut schema = format.clone();
            schema.shift_remove("type");
            drop_nulls(&mut schema);
            Ok(Some(json!({"type": "json_schema", "json_schema": schema})))
        }
        other => Err(Error::unsupported(
            "text.format.type",
            format!("\"{other}\" is none of text, json_object and json_schema"),
        )),
    }
}

/// Applies the configured reasoning effort where the client gives none.
pub(super) fn set_effort(body: &mut Object, policy: &Policy) {
    let Some(effort) = &policy.default_reasoning_effort else {
        return;
    };
    let reasoning = body.entry("reasoning").or_insert(Value::Null);
    if reasoning.is_null() {
        *reasoning = json!({});
    }
    if let Some(reasoning) = reasoning.as_object_mut() {
        let given = reasoning.entry("effort").or_insert(Value::Null);
        if given.is_null() {
            *given = effort.as_str().into();
        }
    }
}

/// Brings the remaining fields into the form the upstream takes.
pub(super) fn write(
    body: &mut Object,
    response_format: Option<Value>,
    dialect: Dialect,
) -> Result<(), Error> {
    if dialect == Dialect::Responses {
        body.shift_remove("generate");
        return Ok(());
    }
    match body.get("previous_response_id") {
        None | Some(Value::Null) => {}
        Some(_) => {
            return Err(Error::unsupported(
                "previous_response_id",
                "llama-server keeps no responses; send the whole conversation in input",
            ));
        }
    }
    let effort = body
        .get("reasoning")
        .and_then(|reasoning| reasoning.get("effort"))
        .filter(|effort| effort.is_string())
        .cloned();
    drop_nulls(body);
    body.retain(|key, _| !NOT_FOR_LLAMA.contains(&key.as_str()));
    if let Some(effort) = effort {
        body.insert("reasoning".into(), json!({"effort": effort}));
    }
    if let Some(format) = response_format {
        body.insert("response_format".into(), format);
    }
    // Always a stream: llama-server does not notice that the client of a non-streaming request has left. Progress
    // events begin before the first token, so that a long prefill is not silence.
    body.insert("stream".into(), true.into());
    body.insert("return_progress".into(), true.into());
    Ok(())
}
