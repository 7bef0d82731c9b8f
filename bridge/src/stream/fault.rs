//! What an upstream's error object means to a client, whether it came as an answer or inside a stream.
//!
//! llama-server: `{"code": 400, "message": …, "type": "exceed_context_size_error", "n_prompt_tokens": …, "n_ctx": …}`,
//! `code` a number, no `param`. OpenAI: `{"code": "…"|null, "message", "type", "param"}`. In a failed response:
//! `{"code", "message"}`.

use protocol::{
    ApiError, ErrorKind, Object,
    error::{CONTEXT_LENGTH_EXCEEDED, INVALID_PROMPT, SERVER_ERROR},
    object::str_or_empty,
};
use serde_json::Value;

/// Faults llama-server reports as 500 although no repetition can mend them. Codex repeats a 500 up to 30 times and then
/// hides its message.
const PERMANENT: [&str; 5] = [
    "image input is not supported",
    "audio input is not supported",
    "Failed to parse tools",
    "failed to parse grammar",
    "Grammar trigger word should be marked as preserved token",
];

/// The error that `answer` reports, as a client is told it: the message kept, the code one that Codex acts on. `answer` is a
/// whole body or event with an `error` in it, or the error itself.
pub(crate) fn reported(answer: &Object) -> ApiError {
    match answer.get("error") {
        Some(Value::Object(error)) => told(error),
        Some(Value::String(message)) => {
            let mut error = answer.clone();
            error.insert("message".into(), message.as_str().into());
            told(&error)
        }
        _ => told(answer),
    }
}

/// Makes a fault that looks as if it would pass one of `kind`, which no repetition mends.
pub(crate) fn permanent(mut fault: ApiError, kind: ErrorKind) -> ApiError {
    if fault.kind == ErrorKind::Server {
        fault.kind = kind;
        if fault.code.as_deref() == Some(SERVER_ERROR) {
            fault.code = Some(INVALID_PROMPT.to_owned());
        }
    }
    fault
}

fn told(error: &Object) -> ApiError {
    let message = match error.get("message") {
        Some(Value::String(message)) => message.clone(),
        _ => Value::Object(error.clone()).to_string(),
    };
    let kind = str_or_empty(error, "type");
    if kind == "exceed_context_size_error"
        || error.get("code").and_then(Value::as_str) == Some(CONTEXT_LENGTH_EXCEEDED)
    {
        return ApiError::new(ErrorKind::InvalidRequest, with_numbers(message, error))
            .with_code(CONTEXT_LENGTH_EXCEEDED);
    }
    let permanent = PERMANENT.iter().any(|known| message.contains(known));
    let kind = match kind {
        _ if permanent => ErrorKind::InvalidRequest,
        "invalid_request_error" => ErrorKind::InvalidRequest,
        "authentication_error" | "permission_error" => ErrorKind::Authentication,
        "rate_limit_error" | "rate_limit_exceeded" => ErrorKind::RateLimit,
        "not_found" | "not_found_error" => ErrorKind::NotFound,
        // In a failed response the code says it alone.
        "" if str_or_empty(error, "code") == INVALID_PROMPT => ErrorKind::InvalidRequest,
        _ => ErrorKind::Server,
    };
    let code = match error.get("code") {
        Some(Value::String(code)) => code.clone(),
        _ if kind == ErrorKind::Server => SERVER_ERROR.to_owned(),
        // Codex shows the message of this one and does not retry.
        _ => INVALID_PROMPT.to_owned(),
    };
    let fault = ApiError::new(kind, message).with_code(code);
    match error.get("param").and_then(Value::as_str) {
        Some(param) => fault.with_param(param),
        None => fault,
    }
}

/// llama-server gives the two numbers beside the message; Codex shows only the message.
fn with_numbers(message: String, error: &Object) -> String {
    let number = |key: &str| error.get(key).and_then(Value::as_u64);
    match (number("n_prompt_tokens"), number("n_ctx")) {
        (Some(prompt), Some(context))
            if !(message.contains(&prompt.to_string())
                && message.contains(&context.to_string())) =>
        {
            format!("{message} ({prompt} prompt tokens, context window {context})")
        }
        _ => message,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(error: &Value) -> (ErrorKind, Option<String>, String) {
        let error = reported(error.as_object().unwrap());
        (error.kind, error.code, error.message)
    }

    #[test]
    fn llama_servers_overflow_becomes_the_code_codex_acts_on_with_both_numbers() {
        assert_eq!(
            told(
                &json!({"code": 400, "type": "exceed_context_size_error", "message": "too long",
                "n_prompt_tokens": 18383, "n_ctx": 8192})
            ),
            (
                ErrorKind::InvalidRequest,
                Some("context_length_exceeded".into()),
                "too long (18383 prompt tokens, context window 8192)".into()
            )
        );
    }

    #[test]
    fn a_failed_response_that_blames_the_prompt_is_a_request_error() {
        for (code, kind) in [
            ("invalid_prompt", ErrorKind::InvalidRequest),
            ("server_error", ErrorKind::Server),
        ] {
            assert_eq!(
                told(&json!({"code": code, "message": "grammar: too many items"})),
                (kind, Some(code.into()), "grammar: too many items".into())
            );
        }
    }

    #[test]
    fn a_500_that_no_repetition_mends_is_a_request_error() {
        for message in [
            "image input is not supported - hint",
            "Grammar trigger word should be marked as preserved token: <tool_call>",
        ] {
            assert_eq!(
                told(&json!({"code": 500, "type": "server_error", "message": message})),
                (
                    ErrorKind::InvalidRequest,
                    Some("invalid_prompt".into()),
                    message.into()
                )
            );
        }
    }

    #[test]
    fn an_error_without_a_message_is_shown_whole() {
        assert_eq!(told(&json!({"why": 1})).2, r#"{"why":1}"#);
        assert_eq!(told(&json!({"error": ["a"]})).2, r#"{"error":["a"]}"#);
    }

    #[test]
    fn the_error_may_be_an_object_a_string_or_the_answer_itself() {
        for answer in [
            json!({"error": {"message": "boo"}}),
            json!({"error": "boo"}),
            json!({"message": "boo"}),
            json!({"message": "boo", "error": null}),
        ] {
            assert_eq!(told(&answer).2, "boo", "{answer}");
        }
    }
}
