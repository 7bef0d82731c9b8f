//! Why a model was not loaded, and why a request was not taken.

use protocol::{ApiError, ErrorKind, FieldError, error};

use crate::model::OneLine;

/// Characters of what a model file made somebody say.
const SAID: usize = 500;

/// The backend could not start. One sentence each, naming what was asked, what was found and what is supported.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("{0}")]
    Model(String),
    #[error("tokenizer: {}", OneLine(.0, SAID))]
    Tokenizer(String),
    /// As [`crate::prompt::PromptError`] says it.
    #[error("{}", OneLine(.0, SAID))]
    Template(String),
    #[error("grammar compiler: {0}")]
    Grammar(String),
    #[error("device {asked}: {problem}")]
    Device { asked: String, problem: String },
    #[error("{option}: {problem}")]
    Option {
        option: &'static str,
        problem: String,
    },
    /// What is needed, what there is, and what to lower.
    #[error("{0}")]
    Memory(String),
}

/// What a client can do about a refusal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// 400: change the request. Repeating it as it is does not help.
    Invalid,
    /// 429: come back in so many seconds.
    Busy { retry_after: u64 },
    /// 503: the engine has stopped.
    Down,
}

/// A request that was not taken.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{}", error.message)]
pub struct RespondError {
    pub refusal: Refusal,
    pub error: ApiError,
}

impl RespondError {
    /// 400.
    pub(crate) fn invalid(param: Option<&str>, message: String) -> RespondError {
        let mut error = ApiError::new(ErrorKind::InvalidRequest, message);
        error.param = param.map(str::to_owned);
        RespondError {
            refusal: Refusal::Invalid,
            error,
        }
    }

    /// 429.
    pub(crate) fn busy(message: String, retry_after: u64) -> RespondError {
        RespondError {
            refusal: Refusal::Busy { retry_after },
            error: ApiError::new(ErrorKind::RateLimit, message)
                .with_code(error::RATE_LIMIT_EXCEEDED),
        }
    }

    /// 503.
    pub(crate) fn down(message: String) -> RespondError {
        RespondError {
            refusal: Refusal::Down,
            error: ApiError::new(ErrorKind::Server, message).with_code(error::SERVER_ERROR),
        }
    }
}

impl From<FieldError> for RespondError {
    fn from(error: FieldError) -> RespondError {
        RespondError {
            refusal: Refusal::Invalid,
            error: error.into(),
        }
    }
}
