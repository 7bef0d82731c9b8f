//! The only table from our errors to a status and an OpenAI error object.
//!
//! Codex repeats a 5xx up to thirty times and hides its message, so whatever repeating cannot mend is a 4xx here.

use http::{HeaderName, HeaderValue, StatusCode, header};
use protocol::{
    ApiError, ErrorKind,
    error::{CONTEXT_LENGTH_EXCEEDED, RATE_LIMIT_EXCEEDED},
};
use warp::reply::Response;

use super::{body, context::RequestContext, guard};
use crate::{
    headers::X_REQUEST_ID,
    mcp, translate,
    upstream::{SendError, probe::ProbeError},
};

pub(super) const REQUEST_TOO_LARGE: &str = "request_too_large";
pub(super) const UPSTREAM_UNREACHABLE: &str = "upstream_unreachable";

/// An answer that is an error.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) status: StatusCode,
    pub(super) error: ApiError,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Failure {
    pub(super) fn new(status: StatusCode, error: ApiError) -> Self {
        Self {
            status,
            error,
            headers: Vec::new(),
        }
    }

    pub(super) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// 404: nothing lives at this path.
    pub(super) fn no_route() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            ApiError::new(
                ErrorKind::NotFound,
                "nothing is served at this path; see /health, /metrics, /v1/responses, /v1/models, /mcp/<name>",
            ),
        )
    }

    /// 404: nothing is relayed.
    pub(super) fn no_mcp_proxy() -> Self {
        let message = "the bridge setting mcpProxy is not set, so no MCP server is reached here";
        Self::new(
            StatusCode::NOT_FOUND,
            ApiError::new(ErrorKind::NotFound, message),
        )
    }

    /// 405: the path exists, but not for this method.
    pub(super) fn wrong_method(allow: &'static str) -> Self {
        Self::invalid(
            StatusCode::METHOD_NOT_ALLOWED,
            format!("this path answers {allow} only"),
        )
        .with_header(header::ALLOW, HeaderValue::from_static(allow))
    }

    /// 503: the grace for open answers is over, and this one has not begun.
    pub(super) fn stopping() -> Self {
        Self::server(
            StatusCode::SERVICE_UNAVAILABLE,
            "the bridge is stopping".to_owned(),
            protocol::error::SERVER_ERROR,
        )
        .with_header(header::RETRY_AFTER, HeaderValue::from_static("1"))
    }

    /// 426. Codex then falls back to HTTP at once; there is no protocol to name in `Upgrade`.
    pub(super) fn websocket() -> Self {
        Self::new(
            StatusCode::UPGRADE_REQUIRED,
            ApiError::new(
                ErrorKind::InvalidRequest,
                "WebSocket is not served here; use POST, or set supports_websockets = false",
            )
            .with_code("websocket_not_supported"),
        )
    }

    /// 404: no model of that name.
    pub(super) fn unknown_model(message: String) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            ApiError::new(ErrorKind::NotFound, message).with_code("model_not_found"),
        )
    }

    /// A response that the model server began and then failed, for a client that waits for the whole of it.
    pub(super) fn of_response(error: ApiError) -> Self {
        let status = match (error.kind, error.code.as_deref()) {
            (_, Some(RATE_LIMIT_EXCEEDED)) | (ErrorKind::RateLimit, _) => {
                StatusCode::TOO_MANY_REQUESTS
            }
            (ErrorKind::Server, _) => StatusCode::BAD_GATEWAY,
            _ => StatusCode::BAD_REQUEST,
        };
        Self::new(status, error)
    }

    /// Writes the answer; the request's id goes into the message, where users find it.
    pub(super) fn respond(self, request: &RequestContext) -> Response {
        request
            .log
            .update(|record| record.failure = Some(self.error.message.clone()));
        let mut error = self.error;
        error.message = format!("{} (request {})", error.message, request.id);
        let mut response = json(self.status, &error.body());
        response.headers_mut().extend(self.headers);
        response
    }

    /// The answer as it goes over a connection, to a request whose head nobody has read to its end.
    pub(super) fn to_bytes(&self, id: &str) -> Vec<u8> {
        let mut error = self.error.clone();
        error.message = format!("{} (request {id})", error.message);
        let body = error.body().to_string();
        let mut answer = format!("HTTP/1.1 {}\r\n", self.status).into_bytes();
        let mut field = |name: &HeaderName, value: &[u8]| {
            answer.extend_from_slice(name.as_str().as_bytes());
            answer.extend_from_slice(b": ");
            answer.extend_from_slice(value);
            answer.extend_from_slice(b"\r\n");
        };
        field(&header::CONTENT_TYPE, b"application/json");
        field(&header::CONTENT_LENGTH, body.len().to_string().as_bytes());
        field(&header::CONNECTION, b"close");
        field(&X_REQUEST_ID, id.as_bytes());
        for (name, value) in &self.headers {
            field(name, value.as_bytes());
        }
        answer.extend_from_slice(b"\r\n");
        answer.extend_from_slice(body.as_bytes());
        answer
    }

    fn invalid(status: StatusCode, message: String) -> Self {
        Self::new(status, ApiError::new(ErrorKind::InvalidRequest, message))
    }

    fn server(status: StatusCode, message: String, code: &str) -> Self {
        Self::new(
            status,
            ApiError::new(ErrorKind::Server, message).with_code(code),
        )
    }
}

/// A JSON answer.
pub(super) fn json(status: StatusCode, value: &serde_json::Value) -> Response {
    let mut response = Response::new(value.to_string().into());
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

impl From<&body::Error> for Failure {
    fn from(error: &body::Error) -> Self {
        use body::Error as E;
        let message = error.to_string();
        // The rest of the body stays unread, so no other request can follow it on this connection.
        let and_close = |failure: Self| {
            failure.with_header(header::CONNECTION, HeaderValue::from_static("close"))
        };
        match error {
            E::TooLarge { .. } => and_close(Self::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                ApiError::new(ErrorKind::InvalidRequest, message).with_code(REQUEST_TOO_LARGE),
            )),
            E::Coding(_) => and_close(
                Self::invalid(StatusCode::UNSUPPORTED_MEDIA_TYPE, message).with_header(
                    header::ACCEPT_ENCODING,
                    HeaderValue::from_static(body::ALLOWED_CODINGS),
                ),
            ),
            E::Idle(_) => and_close(Self::invalid(StatusCode::REQUEST_TIMEOUT, message)),
            E::Cut(_)
            | E::Compressed { .. }
            | E::Utf8(_)
            | E::ByteOrderMark
            | E::Json(_)
            | E::NotAnObject(_) => Self::invalid(StatusCode::BAD_REQUEST, message),
            E::Worker => Self::server(
                StatusCode::INTERNAL_SERVER_ERROR,
                message,
                protocol::error::SERVER_ERROR,
            ),
        }
    }
}

impl From<&guard::Refusal> for Failure {
    fn from(refusal: &guard::Refusal) -> Self {
        use guard::Refusal as R;
        let message = refusal.to_string();
        match refusal {
            R::NoHost | R::BadHost => Self::invalid(StatusCode::BAD_REQUEST, message),
            R::Host(_) | R::Origin(_) | R::CrossSite => {
                Self::invalid(StatusCode::FORBIDDEN, message)
            }
            R::NoKey | R::WrongKey => Self::new(
                StatusCode::UNAUTHORIZED,
                ApiError::new(ErrorKind::Authentication, message).with_code("invalid_api_key"),
            )
            .with_header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")),
        }
    }
}

impl From<translate::Error> for Failure {
    fn from(error: translate::Error) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error.into())
    }
}

impl From<&SendError> for Failure {
    fn from(error: &SendError) -> Self {
        use SendError as E;
        let (status, retry_after) = match error {
            E::Unreachable { .. } | E::Broken { .. } => (StatusCode::BAD_GATEWAY, None),
            E::TimedOut { .. } => (StatusCode::GATEWAY_TIMEOUT, None),
            E::Unusable { .. } => (StatusCode::BAD_REQUEST, None),
            E::Loading { retry_after, .. } => {
                let after = retry_after.clone();
                let after = after.unwrap_or(HeaderValue::from_static("1"));
                (StatusCode::SERVICE_UNAVAILABLE, Some(after))
            }
            E::Starting { .. } => (
                StatusCode::SERVICE_UNAVAILABLE,
                Some(HeaderValue::from_static("1")),
            ),
            E::Stopped { .. } => (StatusCode::SERVICE_UNAVAILABLE, None),
            E::Refused {
                status,
                error,
                retry_after,
            } => {
                let permanent = error.kind != ErrorKind::Server
                    || error.code.as_deref() == Some(CONTEXT_LENGTH_EXCEEDED);
                let status = match status.is_server_error() && permanent {
                    true => StatusCode::BAD_REQUEST,
                    false => *status,
                };
                (status, retry_after.clone())
            }
        };
        let failure = Self::new(status, error.to_api());
        match retry_after {
            Some(after) => failure.with_header(header::RETRY_AFTER, after),
            None => failure,
        }
    }
}

impl From<&ProbeError> for Failure {
    fn from(error: &ProbeError) -> Self {
        use ProbeError as E;
        let message = error.to_string();
        match error {
            E::Unreachable { .. } => {
                Self::server(StatusCode::BAD_GATEWAY, message, UPSTREAM_UNREACHABLE)
            }
            E::Silent { .. } => {
                Self::server(StatusCode::GATEWAY_TIMEOUT, message, UPSTREAM_UNREACHABLE)
            }
            E::Loading { .. } => Self::server(
                StatusCode::SERVICE_UNAVAILABLE,
                message,
                protocol::error::SERVER_ERROR,
            )
            .with_header(header::RETRY_AFTER, HeaderValue::from_static("1")),
            E::Status { .. } | E::TooLarge { .. } | E::NotModels { .. } => Self::server(
                StatusCode::BAD_GATEWAY,
                message,
                protocol::error::SERVER_ERROR,
            ),
        }
    }
}

impl From<&mcp::RelayError> for Failure {
    fn from(error: &mcp::RelayError) -> Self {
        if let Some(error) = error.request_body() {
            return Self::from(error);
        }
        let status = if error.is_timeout() {
            StatusCode::GATEWAY_TIMEOUT
        } else {
            StatusCode::BAD_GATEWAY
        };
        Self::server(status, error.to_string(), "mcp_server_unreachable")
    }
}
