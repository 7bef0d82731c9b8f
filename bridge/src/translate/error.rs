//! [`Error`]: why a request cannot be translated. Each names the field at fault; all of them are the client's to mend.

use protocol::{ApiError, ErrorKind, FieldError, ToolId};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A field has the wrong type, is missing, or names what is not there.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// Legal in the API, but nothing here or upstream can do it.
    #[error("{param}: {problem}")]
    Unsupported { param: String, problem: String },
    /// Two tools would be one upstream.
    #[error("{param}: {first} and {second} would both be sent as \"{wire}\"")]
    Collision {
        param: String,
        first: Box<ToolId>,
        second: Box<ToolId>,
        wire: String,
    },
}

impl Error {
    pub(super) fn unsupported(param: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Unsupported {
            param: param.into(),
            problem: problem.into(),
        }
    }

    /// JSON path of the field at fault; never empty.
    pub fn param(&self) -> &str {
        match self {
            Self::Field(error) => &error.param,
            Self::Unsupported { param, .. } | Self::Collision { param, .. } => param,
        }
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let api = Self::new(ErrorKind::InvalidRequest, error.to_string()).with_param(error.param());
        match error {
            Error::Unsupported { .. } => api.with_code("unsupported_value"),
            Error::Field(_) | Error::Collision { .. } => api,
        }
    }
}
