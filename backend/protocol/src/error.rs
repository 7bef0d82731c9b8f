//! [`ApiError`]: the OpenAI error object, `{"error":{message,type,param,code}}`, four keys always.
//!
//! Source: OpenAI OpenAPI 2.3.0, `Error`; codes as Codex reads them (it acts on `context_length_exceeded`,
//! `rate_limit_exceeded`, `insufficient_quota`, `usage_not_included` and `invalid_prompt`).

use serde_json::{Value, json};

use crate::FieldError;

/// The request cannot be served because it is too long for the model's window.
pub const CONTEXT_LENGTH_EXCEEDED: &str = "context_length_exceeded";
/// A failure that repeating will not mend; Codex shows its message and does not retry.
pub const INVALID_PROMPT: &str = "invalid_prompt";
/// A failure that may pass; Codex retries.
pub const SERVER_ERROR: &str = "server_error";
pub const RATE_LIMIT_EXCEEDED: &str = "rate_limit_exceeded";

/// The `type` of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    InvalidRequest,
    Authentication,
    NotFound,
    RateLimit,
    Server,
}

impl ErrorKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest | Self::NotFound => "invalid_request_error",
            Self::Authentication => "authentication_error",
            Self::RateLimit => "rate_limit_error",
            Self::Server => "server_error",
        }
    }
}

/// What a client is told when something failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    pub kind: ErrorKind,
    pub message: String,
    /// JSON path of the request field at fault.
    pub param: Option<String>,
    pub code: Option<String>,
}

impl ApiError {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            param: None,
            code: None,
        }
    }

    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    pub fn with_param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// The HTTP body: `{"error":{…}}`.
    pub fn body(&self) -> Value {
        json!({"error": {
            "message": self.message,
            "type": self.kind.as_str(),
            "param": self.param,
            "code": self.code,
        }})
    }

    /// The `error` of a failed response: `{code, message}`.
    pub fn response_error(&self) -> Value {
        json!({
            "code": self.code.as_deref().unwrap_or(SERVER_ERROR),
            "message": self.message,
        })
    }
}

impl From<FieldError> for ApiError {
    fn from(error: FieldError) -> Self {
        Self::new(ErrorKind::InvalidRequest, error.to_string()).with_param(error.param)
    }
}
