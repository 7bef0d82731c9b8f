//! Fields of the Chat Completions API in a request for a response. A client that was only pointed to another path would lose them without a word, and
//! wonder about the answer; every other field that is not known here is let through ([`super`]).

use protocol::Object;

use super::Error;

/// What no Responses server reads, and what it reads instead.
const NOWHERE: [(&str, &str); 3] = [
    ("messages", "input"),
    ("functions", "tools"),
    ("function_call", "tool_choice"),
];
/// What llama-server reads beside the Responses API, and the bundled engine does not.
const NOT_HERE: [(&str, &str); 4] = [
    ("max_tokens", "max_output_tokens"),
    ("max_completion_tokens", "max_output_tokens"),
    ("response_format", "text.format"),
    ("reasoning_effort", "reasoning.effort"),
];

/// # Errors
/// A field that would be lost whichever server gets the request.
pub(super) fn refuse(request: &Object) -> Result<(), Error> {
    none_of(request, &NOWHERE)
}

/// # Errors
/// A field that the bundled engine would not read.
pub fn refuse_chat_fields(request: &Object) -> Result<(), Error> {
    none_of(request, &NOWHERE)?;
    none_of(request, &NOT_HERE)
}

fn none_of(request: &Object, fields: &[(&str, &str)]) -> Result<(), Error> {
    let is_said = |field: &str| request.get(field).is_some_and(|value| !value.is_null());
    match fields.iter().find(|(field, _)| is_said(field)) {
        None => Ok(()),
        Some((field, instead)) => Err(Error::unsupported(
            *field,
            format!("is of the Chat Completions API; the Responses API has {instead} instead"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(value: Value) -> Object {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_field_that_would_be_lost_is_named_with_its_successor() {
        let refused = refuse(&object(json!({"model": "m", "messages": []}))).unwrap_err();
        assert_eq!(refused.param(), "messages");
        assert_eq!(
            refused.to_string(),
            "messages: is of the Chat Completions API; the Responses API has input instead"
        );
        let limited = object(json!({"model": "m", "input": "x", "max_tokens": 7}));
        assert_eq!(refuse(&limited), Ok(()));
        let refused = refuse_chat_fields(&limited).unwrap_err();
        assert_eq!(refused.param(), "max_tokens");
    }

    #[test]
    fn what_is_null_says_nothing() {
        let request = object(json!({"messages": null, "max_tokens": null, "client_metadata": {}}));
        assert_eq!(refuse_chat_fields(&request), Ok(()));
    }
}
