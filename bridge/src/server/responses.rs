//! `POST /v1/responses`. A stub until the real one arrives.

use std::sync::Arc;

use protocol::{ApiError, ErrorKind, Object};
use warp::reply::Response;

use super::{State, context::RequestContext, error::Failure};

pub(super) async fn create(_state: Arc<State>, request: RequestContext, _body: Object) -> Response {
    Failure::new(
        http::StatusCode::NOT_IMPLEMENTED,
        ApiError::new(ErrorKind::Server, "not here yet"),
    )
    .respond(&request)
}
