//! The model server behind the bridge.
//!
//! [`Upstream`] is an enum and not a trait: there are two kinds, a server reached over HTTP and the engine inside this
//! program. Both answer with the text of an event stream in the Responses dialect.

mod answer;
pub mod bundled;
pub mod client;
mod direct;
pub mod http;
pub(crate) mod place;
pub mod probe;

use ::http::{HeaderValue, StatusCode};
use protocol::{
    ApiError, ErrorKind,
    error::{INVALID_PROMPT, SERVER_ERROR},
};

use crate::config::UpstreamConfig;

pub use self::{
    answer::Answer,
    bundled::Bundled,
    http::{Http, Target},
    probe::Detected,
};

/// Where requests go.
#[derive(Debug, Clone)]
pub enum Upstream {
    Http(Http),
    Bundled(Bundled),
}

impl Upstream {
    pub fn new(config: &UpstreamConfig, client: client::Client, max_response_bytes: usize) -> Self {
        match config {
            UpstreamConfig::Http(settings) => {
                Self::Http(Http::new(client, settings.clone(), max_response_bytes))
            }
            UpstreamConfig::Bundled(settings) => Self::Bundled(Bundled::new(settings.clone())),
        }
    }
}

/// Why there is no answer to translate.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SendError {
    #[error("the model server at {address} cannot be reached: {problem}")]
    Unreachable { address: String, problem: String },
    #[error("the model server at {address} is not ready: {message}")]
    Loading {
        address: String,
        message: String,
        retry_after: Option<HeaderValue>,
    },
    #[error("the model is not ready: {message}")]
    Starting { message: String },
    #[error("the engine is not running: {message}")]
    Stopped { message: String },
    #[error("the model server at {address} did not answer in time")]
    TimedOut { address: String },
    /// No repetition makes this server answer as it must.
    #[error("the model server at {address} {problem}")]
    Unusable { address: String, problem: String },
    #[error("the connection to the model server at {address} failed: {problem}")]
    Broken { address: String, problem: String },
    /// `status` is the server's own.
    #[error("{}", error.message)]
    Refused {
        status: StatusCode,
        error: ApiError,
        retry_after: Option<HeaderValue>,
    },
}

impl SendError {
    /// Waiting may help: nobody listens yet, or the model is still being loaded.
    pub fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. } | Self::Loading { .. } | Self::Starting { .. }
        )
    }

    /// As a client is told it, in an answer or inside a stream.
    pub fn to_api(&self) -> ApiError {
        let ours = |kind, code| ApiError::new(kind, self.to_string()).with_code(code);
        match self {
            Self::Refused { error, .. } => error.clone(),
            Self::Unusable { .. } => ours(ErrorKind::InvalidRequest, INVALID_PROMPT),
            Self::Unreachable { .. }
            | Self::Loading { .. }
            | Self::Starting { .. }
            | Self::Stopped { .. }
            | Self::TimedOut { .. }
            | Self::Broken { .. } => ours(ErrorKind::Server, SERVER_ERROR),
        }
    }
}
