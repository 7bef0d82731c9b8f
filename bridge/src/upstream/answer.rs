//! An upstream's answer whose body is still to be read, whichever client fetched it.

use futures_util::StreamExt;
use http::{HeaderMap, StatusCode, header};

use super::probe::root_cause;
use crate::stream::Body;

pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// Dropping it cancels the answer.
    pub body: Body,
}

impl Answer {
    pub fn is_event_stream(&self) -> bool {
        self.content_type().is_some_and(|value| {
            value
                .trim_start()
                .to_ascii_lowercase()
                .starts_with("text/event-stream")
        })
    }

    /// As the upstream wrote it; `None` when it wrote none, or no text.
    pub fn content_type(&self) -> Option<&str> {
        self.headers.get(header::CONTENT_TYPE)?.to_str().ok()
    }
}

impl From<reqwest::Response> for Answer {
    fn from(mut response: reqwest::Response) -> Self {
        let headers = std::mem::take(response.headers_mut());
        let status = response.status();
        let chunks = response.bytes_stream();
        Self {
            status,
            headers,
            body: Box::pin(chunks.map(|chunk| chunk.map_err(|fault| root_cause(&fault)))),
        }
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Answer")
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}
