//! What a handler knows about the request it serves, beside its body.

use std::fmt;

use http::{HeaderMap, Method, header};
use protocol::Ids;

use super::log::RequestLog;
use crate::headers::{X_API_KEY, X_REQUEST_ID};

/// Longest `x-request-id` taken over from a client; a longer one is replaced, not cut.
const LONGEST_ID: usize = 128;

/// One request, without its body.
#[derive(Clone)]
pub struct RequestContext {
    /// The client's `x-request-id` where it is sane, else made here. It stands in every error and in the log.
    pub id: String,
    /// As the client sent them, but without the keys to the bridge.
    pub headers: HeaderMap,
    /// The line that will be written when the answer ends.
    pub log: RequestLog,
    /// The client presented the key, or none is needed.
    pub(super) trusted: bool,
}

impl RequestContext {
    pub(super) fn new(id: String, headers: &HeaderMap, log: RequestLog, trusted: bool) -> Self {
        let mut headers = headers.clone();
        headers.remove(header::AUTHORIZATION);
        headers.remove(X_API_KEY);
        Self {
            id,
            headers,
            log,
            trusted,
        }
    }
}

impl fmt::Debug for RequestContext {
    /// Without the header fields: they may hold a client's secrets.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RequestContext")
            .field("id", &self.id)
            .field("log", &self.log)
            .finish_non_exhaustive()
    }
}

/// Request line parts that only routing needs.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) method: Method,
    pub(super) query: Option<String>,
}

/// The client's own id, or a new one.
pub(super) fn request_id(headers: &HeaderMap) -> String {
    headers
        .get(X_REQUEST_ID)
        .and_then(|value| value.to_str().ok())
        .filter(|id| (1..=LONGEST_ID).contains(&id.len()) && id.bytes().all(is_id_byte))
        .map_or_else(|| Ids::random().make("req"), str::to_owned)
}

fn is_id_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn id_for(sent: &str) -> String {
        let mut headers = HeaderMap::new();
        headers.insert(X_REQUEST_ID, HeaderValue::from_str(sent).unwrap());
        request_id(&headers)
    }

    #[test]
    fn a_sane_id_is_taken_over_and_any_other_replaced() {
        assert_eq!(id_for("turn-7_a.b:c"), "turn-7_a.b:c");
        for bad in ["", "two words", "a\"b", &"x".repeat(LONGEST_ID + 1)] {
            assert!(id_for(bad).starts_with("req_"), "{bad:?}");
        }
        assert!(request_id(&HeaderMap::new()).starts_with("req_"));
    }
}
