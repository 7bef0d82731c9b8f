//! The few header fields that pass the bridge on the way of a response.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::server::RequestContext;

/// What of a client's header goes upstream: nothing that says who the client is. In particular never its
/// authorization, and never `X-Conversation-Id`, which would make llama-server go on after a disconnect.
pub(super) fn upward(request: &RequestContext) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Ok(id) = HeaderValue::from_str(&request.id) {
        headers.insert(HeaderName::from_static("x-request-id"), id);
    }
    for name in ["traceparent", "tracestate"] {
        if let Some(value) = request.headers.get(name) {
            headers.insert(HeaderName::from_static(name), value.clone());
        }
    }
    headers
}

/// What of the upstream's header reaches the client. Never `openai-model`: Codex shows an alarm when it differs from the
/// model it asked for.
pub(super) fn passed_down(headers: &HeaderMap) -> HeaderMap {
    headers
        .iter()
        .filter(|(name, _)| {
            name.as_str() == "x-codex-turn-state" || name.as_str().starts_with("x-ratelimit-")
        })
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
