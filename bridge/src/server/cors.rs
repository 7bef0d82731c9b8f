//! What a browser needs to hear before it lets an allowed page read our answers.
//!
//! A preflight bears no key, by design of the browser, so it is answered before the key is asked for. It promises
//! nothing: the request that follows is checked like any other.

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use warp::reply::Response;

const METHODS: HeaderValue =
    HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
const EXPOSED: HeaderValue =
    HeaderValue::from_static("x-request-id, retry-after, mcp-session-id, mcp-protocol-version");

pub(super) fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// The answer to a preflight of an allowed origin; `allow` adds the origin itself.
pub(super) fn preflight(request: &HeaderMap) -> Response {
    let mut response = Response::new("".into());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    if let Some(asked) = request.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, asked.clone());
    }
    if request.contains_key("access-control-request-private-network") {
        headers.insert(
            "access-control-allow-private-network",
            HeaderValue::from_static("true"),
        );
    }
    headers.insert(
        header::ACCESS_CONTROL_MAX_AGE,
        HeaderValue::from_static("600"),
    );
    response
}

/// Lets the page at `origin` read this answer.
pub(super) fn allow(origin: HeaderValue, response: &mut HeaderMap) {
    response.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    response.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    response.append(header::VARY, HeaderValue::from_static("origin"));
}
