//! Any method on `/mcp/<name>`.

use std::sync::Arc;

use http::{Method, StatusCode, header};
use warp::{Reply, reply::Response};

use super::{
    State,
    body::{Chunks, Limited},
    context::{Line, RequestContext},
    error::Failure,
};
use crate::mcp::{RelayRequest, ServerName};

const ALLOW: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

pub(super) async fn relay(
    state: Arc<State>,
    request: RequestContext,
    line: Line,
    name: String,
    chunks: Chunks,
) -> Response {
    let Some(relay) = &state.mcp else {
        return Failure::no_mcp_proxy().respond(&request);
    };
    let Some(name) = ServerName::parse(&name) else {
        return Failure::no_route().respond(&request);
    };
    // TRACE would show the client header fields that proxies on the way have added for themselves.
    if matches!(line.method, Method::TRACE | Method::CONNECT) {
        return Failure::wrong_method(ALLOW).respond(&request);
    }
    let has_body = request.headers.contains_key(header::CONTENT_LENGTH)
        || request.headers.contains_key(header::TRANSFER_ENCODING);
    let limit = state.config.limits.max_request_body_bytes;
    let body = match has_body
        .then(|| Limited::new(chunks, &request.headers, limit))
        .transpose()
    {
        Ok(body) => body,
        Err(error) => return Failure::from(&error).respond(&request),
    };
    let upward = RelayRequest {
        method: line.method,
        query: line.query.as_deref(),
        headers: &request.headers,
        body,
    };
    match relay.forward(&name, upward).await {
        Ok(answer) => downward(&request, answer),
        Err(error) => Failure::from(&error).respond(&request),
    }
}

fn downward(request: &RequestContext, mut answer: reqwest::Response) -> Response {
    let status = answer.status();
    request
        .log
        .update(|record| record.upstream_status = Some(status.as_u16()));
    let headers = std::mem::take(answer.headers_mut());
    let mut response = if has_no_body(status) {
        Response::new("".into())
    } else {
        warp::reply::stream(answer.bytes_stream()).into_response()
    };
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

fn has_no_body(status: StatusCode) -> bool {
    status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED
}
