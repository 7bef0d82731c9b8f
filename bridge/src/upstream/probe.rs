//! What stands behind the upstream address, asked rather than assumed.
//!
//! `/props` answers only on llama-server and tells the running model, its window and what its chat template can do.
//! Any other server is asked for its model list. [`Probe`] keeps an answer for a second and asks once however many
//! wait for it, so a health check every few milliseconds costs the upstream nothing.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use reqwest::{Response, StatusCode};
use serde_json::Value;
use tokio::sync::Mutex;
use url::Url;

use self::judge::{from_models, from_props};
use super::{
    client::{Client, Request, authority},
    place,
};
use crate::config::{HttpUpstream, UpstreamKind};

mod judge;

pub use self::judge::{Detected, TemplateCaps, context_of, sees};

const FRESH: Duration = Duration::from_secs(1);

/// A health check must not hang. `/props` repeats the chat template, which is some ten kilobytes.
const PROBE: Bounds = Bounds {
    patience: Duration::from_secs(2),
    bytes: 4 * 1024 * 1024,
};

/// How long to wait for an answer, and how much of it to take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) patience: Duration,
    pub(crate) bytes: usize,
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum ProbeError {
    #[error("the model server at {server} cannot be reached: {cause}")]
    Unreachable { server: String, cause: String },
    #[error("the model server at {server} did not answer in {} s", .after.as_secs())]
    Silent { server: String, after: Duration },
    #[error("the model server at {server} is still loading its model")]
    Loading { server: String },
    #[error("the model server at {server} answered {status} to GET {path}")]
    Status {
        server: String,
        status: StatusCode,
        path: String,
    },
    #[error("the model server at {server} answered GET {path} with more than {limit} bytes")]
    TooLarge {
        server: String,
        path: String,
        limit: usize,
    },
    #[error(
        "the model server at {server} answered GET {path} with something that is no model list"
    )]
    NotModels { server: String, path: String },
}

/// Asks the upstream what it is.
///
/// # Errors
/// It cannot be reached, is still loading, or does not speak as its configured kind would.
pub async fn detect(client: &Client, upstream: &HttpUpstream) -> Result<Detected, ProbeError> {
    if upstream.kind != UpstreamKind::Responses {
        let answer = get(
            client,
            upstream,
            place::beside_v1(&upstream.base_url, "props"),
            PROBE,
        )
        .await?;
        if answer.is_loading() {
            return Err(ProbeError::Loading {
                server: authority(&upstream.base_url),
            });
        }
        if let Some(detected) = answer.json().as_ref().and_then(from_props) {
            return Ok(detected);
        }
    }
    let answer = get(
        client,
        upstream,
        place::below(&upstream.base_url, "models"),
        PROBE,
    )
    .await?;
    if !answer.status.is_success() {
        return Err(answer.status_error(upstream));
    }
    let list = answer.json().unwrap_or_default();
    Ok(from_models(&list, upstream.kind))
}

/// The last answer of an upstream, and the means to ask again.
#[derive(Debug)]
pub struct Probe {
    client: Client,
    upstream: HttpUpstream,
    last: Mutex<Option<(Instant, Outcome)>>,
}

pub type Outcome = Result<Arc<Detected>, ProbeError>;

impl Probe {
    pub fn new(client: Client, upstream: HttpUpstream) -> Self {
        Self {
            client,
            upstream,
            last: Mutex::new(None),
        }
    }

    /// At most a second old.
    pub async fn outcome(&self) -> Outcome {
        // Held while asking: whoever comes meanwhile waits and takes the same answer.
        let mut last = self.last.lock().await;
        if let Some((when, outcome)) = &*last
            && when.elapsed() < FRESH
        {
            return outcome.clone();
        }
        let outcome = detect(&self.client, &self.upstream).await.map(Arc::new);
        *last = Some((Instant::now(), outcome.clone()));
        outcome
    }
}

/// A whole answer, whatever its status.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Bytes,
    path: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// llama-server answers 503 to everything until its model is there.
    pub(crate) fn is_loading(&self) -> bool {
        self.status == StatusCode::SERVICE_UNAVAILABLE
            && self
                .json()
                .is_some_and(|body| body["error"]["type"] == "unavailable_error")
    }

    pub(crate) fn status_error(&self, upstream: &HttpUpstream) -> ProbeError {
        ProbeError::Status {
            server: authority(&upstream.base_url),
            status: self.status,
            path: self.path.clone(),
        }
    }
}

/// One small GET with the upstream's own key.
pub(crate) async fn get(
    client: &Client,
    upstream: &HttpUpstream,
    url: Url,
    bounds: Bounds,
) -> Result<Reply, ProbeError> {
    let path = url.path().to_owned();
    let request = authorized(client.get(url), upstream).timeout(bounds.patience);
    let failed = |error: &reqwest::Error| failure(upstream, error, bounds.patience);
    let mut response = request.send().await.map_err(|error| failed(&error))?;
    let body = read(&mut response, bounds.bytes)
        .await
        .map_err(|error| failed(&error))?
        .ok_or_else(|| ProbeError::TooLarge {
            server: authority(&upstream.base_url),
            path: path.clone(),
            limit: bounds.bytes,
        })?;
    Ok(Reply {
        status: response.status(),
        headers: std::mem::take(response.headers_mut()),
        body,
        path,
    })
}

/// `None` when it is too large.
async fn read(response: &mut Response, limit: usize) -> Result<Option<Bytes>, reqwest::Error> {
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > limit {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body.freeze()))
}

fn authorized(request: Request, upstream: &HttpUpstream) -> Request {
    match &upstream.api_key {
        Some(key) => request.bearer_auth(key.expose()),
        None => request,
    }
}

fn failure(upstream: &HttpUpstream, error: &reqwest::Error, patience: Duration) -> ProbeError {
    let server = authority(&upstream.base_url);
    if error.is_timeout() {
        let after = if error.is_connect() {
            upstream.connect_timeout.min(patience)
        } else {
            patience
        };
        ProbeError::Silent { server, after }
    } else {
        ProbeError::Unreachable {
            server,
            cause: root_cause(error),
        }
    }
}

/// The innermost error says it best: "connection refused" rather than "error sending request".
pub(crate) fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}
