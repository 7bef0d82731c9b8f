//! The response resource: its [`Phase`]s and the fields a complete one must have.
//!
//! Source: OpenAI OpenAPI 2.3.0 `Response`; Open Responses 2026-04-24 `ResponseResource`, which requires every field
//! of [`complete`] to be present.

use serde_json::{Value, json};

use crate::Object;

/// What an assistant message is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Text on the way to a tool call.
    Commentary,
    FinalAnswer,
}

impl Phase {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Commentary => "commentary",
            Self::FinalAnswer => "final_answer",
        }
    }
}

/// Adds to `response` every field of the resource it lacks, from the request where the request says it and the
/// documented default where it does not. What is there stays as it is.
pub fn complete(response: &mut Object, request: &Object, now_unix: u64) {
    let defaults = [
        ("object", json!("response")),
        ("created_at", json!(now_unix)),
        ("status", json!("in_progress")),
        ("background", json!(false)),
        ("completed_at", Value::Null),
        ("error", Value::Null),
        ("frequency_penalty", json!(0.0)),
        ("incomplete_details", Value::Null),
        ("instructions", Value::Null),
        ("max_output_tokens", Value::Null),
        ("max_tool_calls", Value::Null),
        ("metadata", json!({})),
        ("model", json!("")),
        ("output", json!([])),
        ("parallel_tool_calls", json!(true)),
        ("presence_penalty", json!(0.0)),
        ("previous_response_id", Value::Null),
        ("prompt_cache_key", Value::Null),
        ("reasoning", Value::Null),
        ("safety_identifier", Value::Null),
        ("service_tier", json!("default")),
        ("store", json!(false)),
        ("temperature", json!(1.0)),
        ("text", json!({"format": {"type": "text"}})),
        ("tool_choice", json!("auto")),
        ("tools", json!([])),
        ("top_logprobs", json!(0)),
        ("top_p", json!(1.0)),
        ("truncation", json!("disabled")),
        ("usage", Value::Null),
    ];
    for (key, default) in defaults {
        if response.contains_key(key) {
            continue;
        }
        let echoed = request
            .get(key)
            .filter(|value| ECHOED.contains(&key) && !value.is_null());
        response.insert(key.to_owned(), echoed.cloned().unwrap_or(default));
    }
}

/// The request fields that a response repeats.
pub const ECHOED: [&str; 16] = [
    "frequency_penalty",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "parallel_tool_calls",
    "presence_penalty",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_p",
];

/// `usage` with every field the clients insist on: integers under the Responses names, chat-completions names
/// translated, missing counts 0. A total that is missing is the sum.
///
/// Codex fails a turn on a details object without its integer, and on a missing `total_tokens`.
pub fn complete_usage(usage: &Object) -> Object {
    let count = |names: &[&str]| names.iter().find_map(|name| usage.get(*name)?.as_u64());
    let detail = |parents: &[&str], name: &str| {
        parents
            .iter()
            .find_map(|parent| usage.get(*parent)?.get(name)?.as_u64())
            .unwrap_or(0)
    };
    let input = count(&["input_tokens", "prompt_tokens"]).unwrap_or(0);
    let output = count(&["output_tokens", "completion_tokens"]).unwrap_or(0);
    let total = count(&["total_tokens"]).unwrap_or(input.saturating_add(output));
    let input_details = ["input_tokens_details", "prompt_tokens_details"];
    let output_details = ["output_tokens_details", "completion_tokens_details"];
    let mut complete = usage.clone();
    for renamed in [
        "prompt_tokens",
        "completion_tokens",
        "prompt_tokens_details",
        "completion_tokens_details",
    ] {
        complete.shift_remove(renamed);
    }
    complete.insert("input_tokens".into(), input.into());
    let inner = merged(
        usage,
        &input_details,
        &[
            ("cached_tokens", detail(&input_details, "cached_tokens")),
            (
                "cache_write_tokens",
                detail(&input_details, "cache_write_tokens"),
            ),
        ],
    );
    complete.insert("input_tokens_details".into(), inner.into());
    complete.insert("output_tokens".into(), output.into());
    let inner = merged(
        usage,
        &output_details,
        &[(
            "reasoning_tokens",
            detail(&output_details, "reasoning_tokens"),
        )],
    );
    complete.insert("output_tokens_details".into(), inner.into());
    complete.insert("total_tokens".into(), total.into());
    complete
}

fn merged(usage: &Object, parents: &[&str], counts: &[(&str, u64)]) -> Object {
    let mut object = parents
        .iter()
        .find_map(|parent| usage.get(*parent)?.as_object())
        .cloned()
        .unwrap_or_default();
    for (name, count) in counts {
        object.insert((*name).to_owned(), (*count).into());
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(value: &Value) -> Value {
        complete_usage(value.as_object().unwrap()).into()
    }

    #[test]
    fn empty_details_become_integers() {
        assert_eq!(
            usage(
                &json!({"input_tokens": 10, "input_tokens_details": {}, "output_tokens": 2,
                "output_tokens_details": {}, "total_tokens": 12})
            ),
            json!({"input_tokens": 10,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": 2, "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 12})
        );
    }

    #[test]
    fn chat_names_are_translated_and_a_missing_total_is_summed() {
        assert_eq!(
            usage(&json!({"prompt_tokens": 9, "completion_tokens": 3,
                "prompt_tokens_details": {"cached_tokens": 4}})),
            json!({"input_tokens": 9,
                "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
                "output_tokens": 3, "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 12})
        );
    }

    #[test]
    fn a_complete_resource_echoes_the_request_and_keeps_what_it_has() {
        let mut response = json!({"id": "resp_1", "status": "completed"})
            .as_object()
            .unwrap()
            .clone();
        let request = json!({"model": "m", "tools": [{"type": "custom"}], "temperature": null});
        complete(&mut response, request.as_object().unwrap(), 5);
        assert_eq!(response["status"], "completed");
        assert_eq!(response["model"], "m");
        assert_eq!(response["tools"], json!([{"type": "custom"}]));
        assert_eq!(response["temperature"], json!(1.0));
        assert_eq!(response["created_at"], 5);
    }
}
