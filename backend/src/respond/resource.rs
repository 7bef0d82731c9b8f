//! The response resource as it is before anything was generated: what the request asked for, with the values that are in force.

use protocol::{Object, response, tool::GRAMMAR_FIELD};
use serde_json::{Value, json};

use super::request::Settings;

/// `model` stands where the request names none.
pub(super) fn resource(
    request: &Object,
    settings: &Settings,
    id: &str,
    model: &str,
    now: u64,
) -> Object {
    let mut resource = Object::new();
    resource.insert("id".into(), id.into());
    if !request.get("model").is_some_and(Value::is_string) {
        resource.insert("model".into(), model.into());
    }
    let sampling = &settings.sampling;
    for (key, value) in [
        ("temperature", sampling.temperature),
        ("top_p", sampling.top_p),
        ("presence_penalty", sampling.presence_penalty),
        ("frequency_penalty", sampling.frequency_penalty),
    ] {
        if !request.get(key).is_some_and(Value::is_number) {
            resource.insert(key.into(), number(value));
        }
    }
    let top_logprobs = settings.logprobs.unwrap_or(0);
    resource.insert("top_logprobs".into(), top_logprobs.into());
    let truncation = if settings.may_truncate {
        "auto"
    } else {
        "disabled"
    };
    resource.insert("truncation".into(), truncation.into());
    if let Some(Value::Array(tools)) = request.get("tools") {
        resource.insert("tools".into(), tools.iter().map(public).collect());
    }
    if let Some(Value::Object(text)) = request.get("text") {
        let mut text = text.clone();
        text.entry("format")
            .or_insert_with(|| json!({"type": "text"}));
        resource.insert("text".into(), text.into());
    }
    response::complete(&mut resource, request, now);
    resource
}

/// A tool without what only this engine reads of it.
fn public(tool: &Value) -> Value {
    let mut tool = tool.clone();
    if let Value::Object(tool) = &mut tool {
        tool.shift_remove(GRAMMAR_FIELD);
    }
    tool
}

/// The shortest decimal that is this number: 0.6 and not 0.6000000238418579.
fn number(value: f32) -> Value {
    serde_json::from_str(&format!("{value:?}")).unwrap_or(Value::Null)
}
