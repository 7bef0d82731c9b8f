//! The scalar fields of a request: limits, sampling, stop strings, logprobs. Ranges are strict: what is outside is refused and named, never bent.
//!
//! Source: OpenAI OpenAPI 2.3.0 `CreateResponse`; the sampling fields that it lacks go by the names of llama.cpp's server.

use protocol::{FieldError, Object, object::optional_str};
use serde_json::Value;

use crate::{engine::request::MAX_TOP_LOGPROBS, sample::SamplingParams};

/// Most stop strings, and bytes of one.
const MAX_STOPS: usize = 16;
const MAX_STOP_BYTES: usize = 1024;
/// Asks for logprobs, in `include`.
const LOGPROBS: &str = "message.output_text.logprobs";

/// What a request says beside its conversation, tools and format.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    pub(crate) sampling: SamplingParams,
    /// The client's own limit.
    pub(crate) max_output_tokens: Option<usize>,
    /// Alternatives a token; `None`: no logprobs.
    pub(crate) logprobs: Option<usize>,
    pub(crate) stops: Vec<String>,
    /// Several calls may come.
    pub(crate) parallel: bool,
    /// `reasoning.effort`: `none` asks for no reasoning, anything else for some. `None`: the model's own way.
    pub(crate) thinking: Option<bool>,
    /// Whole turns may be left out when the window is too small (`truncation: "auto"`).
    pub(crate) may_truncate: bool,
}

/// Reads the fields. `defaults` are the model's; `seed` is taken where the request has none.
///
/// # Errors
/// A field of the wrong type or outside of its range, or one that asks for what this engine does not do.
pub(crate) fn read(
    request: &Object,
    defaults: &SamplingParams,
    seed: u64,
) -> Result<Settings, FieldError> {
    refuse(request)?;
    let number = |key: &str, least: f64, most: f64| number(request, key, least, most);
    let penalty = match number("repeat_penalty", 0.01, 100.0)? {
        Some(penalty) => Some(penalty),
        None => number("repetition_penalty", 0.01, 100.0)?,
    };
    let sampling = SamplingParams {
        temperature: number("temperature", 0.0, 2.0)?.unwrap_or(defaults.temperature),
        top_k: whole(request, "top_k", 0, u32::MAX.into())?
            .map_or(defaults.top_k, |top_k| top_k as usize),
        top_p: number("top_p", 0.0, 1.0)?.unwrap_or(defaults.top_p),
        min_p: number("min_p", 0.0, 1.0)?.unwrap_or(defaults.min_p),
        repetition_penalty: penalty.unwrap_or(defaults.repetition_penalty),
        presence_penalty: number("presence_penalty", -2.0, 2.0)?
            .unwrap_or(defaults.presence_penalty),
        frequency_penalty: number("frequency_penalty", -2.0, 2.0)?
            .unwrap_or(defaults.frequency_penalty),
        seed: seed_of(request)?.unwrap_or(seed),
    };
    let top_logprobs = whole(request, "top_logprobs", 0, MAX_TOP_LOGPROBS as u64)?;
    let wanted = includes(request)?.contains(&LOGPROBS);
    Ok(Settings {
        sampling,
        max_output_tokens: whole(request, "max_output_tokens", 1, u32::MAX.into())?
            .map(|limit| limit as usize),
        logprobs: wanted.then_some(top_logprobs.unwrap_or(0) as usize),
        stops: stops(request)?,
        parallel: flag(request, "parallel_tool_calls")?.unwrap_or(true),
        thinking: thinking(request)?,
        may_truncate: truncation(request)?,
    })
}

/// Fields that ask for what is not here. The bridge has answered them already, so they only come from a client of this crate.
fn refuse(request: &Object) -> Result<(), FieldError> {
    if flag(request, "background")? == Some(true) {
        let problem = "is true; a response is only made while its client waits";
        return Err(FieldError::new("background", problem));
    }
    for key in ["previous_response_id", "conversation", "prompt"] {
        if request.get(key).is_some_and(|value| !value.is_null()) {
            let problem = "is not known to this engine; send the whole conversation as input";
            return Err(FieldError::new(key, problem));
        }
    }
    if let Some(other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_))) =
        request.get("metadata")
    {
        return Err(FieldError::unexpected("metadata", "an object", other));
    }
    match request.get("model") {
        None | Some(Value::Null | Value::String(_)) => Ok(()),
        Some(other) => Err(FieldError::unexpected("model", "a string", other)),
    }
}

fn number(request: &Object, key: &str, least: f64, most: f64) -> Result<Option<f32>, FieldError> {
    let expected = || format!("a number from {least} to {most}");
    match request.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(came) => match came.as_f64() {
            Some(number) if (least..=most).contains(&number) => Ok(Some(number as f32)),
            _ => Err(FieldError::unexpected(key, &expected(), came)),
        },
    }
}

fn whole(request: &Object, key: &str, least: u64, most: u64) -> Result<Option<u64>, FieldError> {
    match request.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(came) => match came.as_u64() {
            Some(number) if (least..=most).contains(&number) => Ok(Some(number)),
            _ => {
                let expected = format!("a whole number from {least} to {most}");
                Err(FieldError::unexpected(key, &expected, came))
            }
        },
    }
}

fn flag(request: &Object, key: &str) -> Result<Option<bool>, FieldError> {
    match request.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(other) => Err(FieldError::unexpected(key, "a boolean", other)),
    }
}

/// `None` also for -1, by which llama.cpp's clients ask for a random one.
fn seed_of(request: &Object) -> Result<Option<u64>, FieldError> {
    match request.get("seed") {
        None | Some(Value::Null) => Ok(None),
        Some(came) if came.as_i64() == Some(-1) => Ok(None),
        Some(came) => match came.as_u64() {
            Some(seed) => Ok(Some(seed)),
            None => {
                let expected = "a whole number of 0 or more, or -1";
                Err(FieldError::unexpected("seed", expected, came))
            }
        },
    }
}

fn includes(request: &Object) -> Result<Vec<&str>, FieldError> {
    let list = match request.get("include") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(other) => {
            let expected = "an array of strings";
            return Err(FieldError::unexpected("include", expected, other));
        }
    };
    let names = list.iter().enumerate().map(|(index, name)| {
        name.as_str()
            .ok_or_else(|| FieldError::unexpected(format!("include[{index}]"), "a string", name))
    });
    names.collect()
}

fn stops(request: &Object) -> Result<Vec<String>, FieldError> {
    let one = |path: String, stop: &Value| match stop {
        Value::String(text) if (1..=MAX_STOP_BYTES).contains(&text.len()) => Ok(text.clone()),
        other => {
            let expected = format!("a string of 1 to {MAX_STOP_BYTES} bytes");
            Err(FieldError::unexpected(path, &expected, other))
        }
    };
    match request.get("stop") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(stop @ Value::String(_)) => Ok(vec![one("stop".to_owned(), stop)?]),
        Some(Value::Array(list)) if list.len() <= MAX_STOPS => list
            .iter()
            .enumerate()
            .map(|(index, stop)| one(format!("stop[{index}]"), stop))
            .collect(),
        Some(other) => {
            let expected = format!("a string, or an array of at most {MAX_STOPS} strings");
            Err(FieldError::unexpected("stop", &expected, other))
        }
    }
}

fn thinking(request: &Object) -> Result<Option<bool>, FieldError> {
    let reasoning = match request.get("reasoning") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Object(reasoning)) => reasoning,
        Some(other) => return Err(FieldError::unexpected("reasoning", "an object", other)),
    };
    let effort = optional_str(reasoning, "effort", "reasoning")?;
    Ok(effort.map(|effort| effort != "none"))
}

fn truncation(request: &Object) -> Result<bool, FieldError> {
    match optional_str(request, "truncation", "")? {
        None | Some("disabled") => Ok(false),
        Some("auto") => Ok(true),
        Some(other) => {
            let problem = format!("must be \"auto\" or \"disabled\", but \"{other}\" came");
            Err(FieldError::new("truncation", problem))
        }
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;
    use serde_json::json;

    use super::*;

    fn settings(request: &Value) -> Result<Settings, String> {
        let request = request.as_object().unwrap();
        let defaults = SamplingParams {
            temperature: 0.6,
            top_p: 0.9,
            ..SamplingParams::default()
        };
        read(request, &defaults, 7).map_err(|error| error.to_string())
    }

    #[test]
    fn what_a_request_leaves_out_is_the_models_own() {
        let expected = Settings {
            sampling: SamplingParams {
                temperature: 0.6,
                top_p: 0.9,
                seed: 7,
                ..SamplingParams::default()
            },
            max_output_tokens: None,
            logprobs: None,
            stops: Vec::new(),
            parallel: true,
            thinking: None,
            may_truncate: false,
        };
        assert_eq!(settings(&json!({})), Ok(expected.clone()));
        let nulls = json!({"temperature": null, "top_p": null, "stop": null, "seed": -1, "include": null, "reasoning": null, "top_logprobs": 3});
        assert_eq!(settings(&nulls), Ok(expected));
    }

    #[test]
    fn every_field_is_read() {
        let given = json!({
            "model": "m", "temperature": 0, "top_p": 0.5, "top_k": 40, "min_p": 0.05, "repeat_penalty": 1.1, "presence_penalty": -2,
            "frequency_penalty": 2.0, "seed": 9, "max_output_tokens": 1, "top_logprobs": 20, "stop": ["a", "b"], "parallel_tool_calls": false,
            "include": ["reasoning.encrypted_content", "message.output_text.logprobs"], "reasoning": {"effort": "none"}, "truncation": "auto",
        });
        let expected = Settings {
            sampling: SamplingParams {
                temperature: 0.0,
                top_k: 40,
                top_p: 0.5,
                min_p: 0.05,
                repetition_penalty: 1.1,
                presence_penalty: -2.0,
                frequency_penalty: 2.0,
                seed: 9,
            },
            max_output_tokens: Some(1),
            logprobs: Some(20),
            stops: vec!["a".to_owned(), "b".to_owned()],
            parallel: false,
            thinking: Some(false),
            may_truncate: true,
        };
        assert_eq!(settings(&given), Ok(expected));
    }

    #[test]
    fn what_is_out_of_range_is_refused_by_name() {
        for (field, value, message) in [
            (
                "temperature",
                json!(2.1),
                "temperature: must be a number from 0 to 2, but the number 2.1 came",
            ),
            (
                "temperature",
                json!("hot"),
                "temperature: must be a number from 0 to 2, but the string \"hot\" came",
            ),
            (
                "top_p",
                json!(-0.1),
                "top_p: must be a number from 0 to 1, but the number -0.1 came",
            ),
            (
                "top_k",
                json!(1.5),
                "top_k: must be a whole number from 0 to 4294967295, but the number 1.5 came",
            ),
            (
                "min_p",
                json!(2),
                "min_p: must be a number from 0 to 1, but the number 2 came",
            ),
            (
                "repeat_penalty",
                json!(0),
                "repeat_penalty: must be a number from 0.01 to 100, but the number 0 came",
            ),
            (
                "presence_penalty",
                json!(3),
                "presence_penalty: must be a number from -2 to 2, but the number 3 came",
            ),
            (
                "max_output_tokens",
                json!(0),
                "max_output_tokens: must be a whole number from 1 to 4294967295, but the number 0 came",
            ),
            (
                "max_output_tokens",
                json!(-1),
                "max_output_tokens: must be a whole number from 1 to 4294967295, but the number -1 came",
            ),
            (
                "top_logprobs",
                json!(21),
                "top_logprobs: must be a whole number from 0 to 20, but the number 21 came",
            ),
            (
                "seed",
                json!(-2),
                "seed: must be a whole number of 0 or more, or -1, but the number -2 came",
            ),
            (
                "stop",
                json!(""),
                "stop: must be a string of 1 to 1024 bytes, but the string \"\" came",
            ),
            (
                "stop",
                json!(["a", 1]),
                "stop[1]: must be a string of 1 to 1024 bytes, but the number 1 came",
            ),
            (
                "stop",
                json!(vec!["a"; 17]),
                "stop: must be a string, or an array of at most 16 strings, but an array of 17 came",
            ),
            (
                "parallel_tool_calls",
                json!(1),
                "parallel_tool_calls: must be a boolean, but the number 1 came",
            ),
            (
                "include",
                json!("x"),
                "include: must be an array of strings, but the string \"x\" came",
            ),
            (
                "reasoning",
                json!("high"),
                "reasoning: must be an object, but the string \"high\" came",
            ),
            (
                "truncation",
                json!("all"),
                "truncation: must be \"auto\" or \"disabled\", but \"all\" came",
            ),
            (
                "background",
                json!(true),
                "background: is true; a response is only made while its client waits",
            ),
            (
                "previous_response_id",
                json!("resp_1"),
                "previous_response_id: is not known to this engine; send the whole conversation as input",
            ),
            (
                "metadata",
                json!(5),
                "metadata: must be an object, but the number 5 came",
            ),
            (
                "model",
                json!(1),
                "model: must be a string, but the number 1 came",
            ),
        ] {
            let mut request = Object::new();
            request.insert(field.to_owned(), value);
            assert_eq!(settings(&request.into()), Err(message.to_owned()));
        }
    }
}
