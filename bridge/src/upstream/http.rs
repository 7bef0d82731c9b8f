//! Sends a normalized request to a Responses server and judges its first answer.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use protocol::{ApiError, ErrorKind, Object};
use url::Url;

use super::{
    Answer, Detected, SendError,
    client::{Client, authority},
    direct::{Direct, Fault},
    place,
    probe::{self, ProbeError, root_cause},
};
use crate::{
    config::{HttpUpstream, UpstreamKind},
    stream::fault,
    translate::{Capabilities, Dialect},
};

/// How long what was learnt of a server is believed. A restarted server may have another model or window.
const BELIEVED: Duration = Duration::from_secs(30);

/// One Responses server.
#[derive(Debug, Clone)]
pub struct Http {
    client: Client,
    settings: Arc<HttpUpstream>,
    endpoint: Url,
    /// `None` where only reqwest gets through.
    direct: Option<Arc<Direct>>,
    max_response_bytes: usize,
    learnt: Arc<Mutex<Option<(Instant, Target)>>>,
}

/// What a request must be made for.
#[derive(Debug, Clone)]
pub struct Target {
    pub capabilities: Capabilities,
    /// Context window in tokens.
    pub context: Option<u64>,
}

impl Target {
    /// llama-server needs every repair; any other native server is trusted.
    pub fn needs_repair(&self) -> bool {
        self.capabilities.dialect == Dialect::LlamaCpp
    }

    /// What is assumed of a server that cannot be asked: nothing that would refuse a request.
    pub fn assumed(kind: UpstreamKind) -> Self {
        Self {
            capabilities: Capabilities {
                dialect: match kind {
                    UpstreamKind::Responses => Dialect::Responses,
                    UpstreamKind::LlamaCpp | UpstreamKind::Auto => Dialect::LlamaCpp,
                },
                vision: true,
                parallel_calls: true,
                custom_grammar: false,
            },
            context: None,
        }
    }

    /// What holds whichever server it is: a request refused for this one would be refused for every other.
    pub fn unasked(kind: UpstreamKind) -> Self {
        Self::assumed(match kind {
            UpstreamKind::Auto => UpstreamKind::Responses,
            configured => configured,
        })
    }

    fn from_detected(detected: &Detected) -> Self {
        let mut target = Self::assumed(detected.kind);
        // Only llama-server tells what it cannot do; of any other server nothing is assumed that would cost the model
        // an image.
        if detected.kind == UpstreamKind::LlamaCpp {
            target.capabilities.vision = detected.vision;
            target.capabilities.parallel_calls = detected.parallel_calls;
        }
        target.context = detected.context;
        target
    }
}

impl Http {
    pub fn new(client: Client, settings: HttpUpstream, max_response_bytes: usize) -> Self {
        let endpoint = place::below(&settings.base_url, "responses");
        let direct = Direct::new(&endpoint, settings.connect_timeout).map(Arc::new);
        Self {
            client,
            endpoint,
            direct,
            settings: Arc::new(settings),
            max_response_bytes,
            learnt: Arc::default(),
        }
    }

    pub fn settings(&self) -> &HttpUpstream {
        &self.settings
    }

    /// `host:port`, for messages.
    pub fn address(&self) -> String {
        authority(&self.settings.base_url)
    }

    /// What the server is, as far as that is known without asking.
    pub fn known(&self) -> Option<Target> {
        if self.settings.kind == UpstreamKind::Responses {
            return Some(Target::assumed(UpstreamKind::Responses));
        }
        let learnt = self.learnt().clone();
        learnt
            .filter(|(when, _)| when.elapsed() < BELIEVED)
            .map(|(_, target)| target)
    }

    /// What the server is, asked at most every half minute.
    ///
    /// # Errors
    /// The server does not answer, or not yet.
    pub async fn target(&self) -> Result<Target, SendError> {
        if let Some(target) = self.known() {
            return Ok(target);
        }
        let target = match probe::detect(&self.client, &self.settings).await {
            Ok(detected) => Target::from_detected(&detected),
            Err(error) => self.told(&error)?,
        };
        *self.learnt() = Some((Instant::now(), target.clone()));
        Ok(target)
    }

    /// Posts the JSON text `body` to `/responses`; the answer is a success.
    ///
    /// # Errors
    /// Anything but a 2xx, or none at all.
    pub async fn send(&self, body: Bytes, mut headers: HeaderMap) -> Result<Answer, SendError> {
        let fixed = [
            (header::CONTENT_TYPE, "application/json"),
            (header::ACCEPT, "text/event-stream, application/json"),
        ];
        for (name, value) in fixed {
            headers.insert(name, HeaderValue::from_static(value));
        }
        if let Some(key) = &self.settings.api_key {
            headers.insert(header::AUTHORIZATION, bearer(key.expose()));
        }
        let sent = async {
            let post = self.post(body, headers);
            match self.settings.idle_timeout {
                Some(idle) => tokio::time::timeout(idle, post).await.ok(),
                None => Some(post.await),
            }
        };
        let answer = match sent.await {
            Some(Ok(answer)) => answer,
            Some(Err(fault)) => {
                *self.learnt() = None;
                return Err(self.unsent(fault));
            }
            None => return Err(self.unsent(Fault::TimedOut)),
        };
        if answer.status.is_success() {
            return Ok(answer);
        }
        if answer.status.is_client_error() || answer.status.is_server_error() {
            return Err(self.refused(answer).await);
        }
        let why = match answer.status.is_redirection() {
            true => "a redirect of the model endpoint is not followed",
            // 101 among them: nobody asked for another protocol.
            false => "which answers no request",
        };
        Err(self.unusable(format!("answered {}; {why}", answer.status)))
    }

    /// The answer is of another kind than the `wanted` one.
    pub fn not(&self, wanted: &str, answer: &Answer) -> SendError {
        self.unusable(format!(
            "was asked for {wanted} and answered {} with {}",
            answer.status,
            answer.content_type().unwrap_or("no content type")
        ))
    }

    fn unusable(&self, problem: String) -> SendError {
        SendError::Unusable {
            address: self.address(),
            problem,
        }
    }

    async fn post(&self, body: Bytes, headers: HeaderMap) -> Result<Answer, Fault> {
        if let Some(direct) = &self.direct {
            return direct.post(headers, body).await;
        }
        let request = self.client.post(self.endpoint.clone());
        match request.headers(headers).body(body).send().await {
            Ok(response) => Ok(Answer::from(response)),
            Err(error) if error.is_timeout() => Err(Fault::TimedOut),
            Err(error) if error.is_connect() => Err(Fault::Unreachable(root_cause(&error))),
            Err(error) => Err(Fault::Broken(root_cause(&error))),
        }
    }

    /// The whole JSON answer, of at most `max_response_bytes`.
    ///
    /// # Errors
    /// The body breaks, is too long, or is no JSON object.
    pub async fn json(&self, mut answer: Answer) -> Result<Object, SendError> {
        let mut bytes = BytesMut::new();
        self.read(&mut answer, &mut bytes).await?;
        serde_json::from_slice(&bytes).map_err(|fault| {
            let says_json = answer.content_type().is_some_and(|it| it.contains("json"));
            if !says_json {
                return self.not("JSON", &answer);
            }
            SendError::Broken {
                address: self.address(),
                problem: format!("its answer is no JSON object: {fault}"),
            }
        })
    }

    async fn refused(&self, mut answer: Answer) -> SendError {
        let status = answer.status;
        let retry_after = answer.headers.get(header::RETRY_AFTER).cloned();
        let mut body = BytesMut::new();
        // The status is known: a body that is too long or breaks off takes nothing away from it.
        let _ = self.read(&mut answer, &mut body).await;
        let error = match serde_json::from_slice::<Object>(&body) {
            Ok(answer) => fault::reported(&answer),
            Err(_) => ApiError::new(
                kind_of(status),
                format!(
                    "the model server at {} answered {status}: {}",
                    self.address(),
                    excerpt(&body)
                ),
            ),
        };
        if status == StatusCode::SERVICE_UNAVAILABLE {
            return SendError::Loading {
                address: self.address(),
                message: error.message,
                retry_after,
            };
        }
        // The status tells where the error does not. A server that has no such endpoint will not have one in a second.
        let error = match status {
            StatusCode::NOT_IMPLEMENTED => fault::permanent(error, ErrorKind::InvalidRequest),
            status if status.is_client_error() => fault::permanent(error, kind_of(status)),
            _ => error,
        };
        SendError::Refused {
            status,
            error,
            retry_after,
        }
    }

    /// Reads the body into `body`, which keeps what came before a fault.
    async fn read(&self, answer: &mut Answer, body: &mut BytesMut) -> Result<(), SendError> {
        let broken = |problem: String| SendError::Broken {
            address: self.address(),
            problem,
        };
        let chunks = &mut answer.body;
        loop {
            let next = match self.settings.idle_timeout {
                Some(idle) => match tokio::time::timeout(idle, chunks.next()).await {
                    Ok(next) => next,
                    Err(_) => {
                        return Err(broken(format!(
                            "it was silent for {idle:?} (upstream.idleTimeout)"
                        )));
                    }
                },
                None => chunks.next().await,
            };
            let Some(chunk) = next else {
                return Ok(());
            };
            body.extend_from_slice(&chunk.map_err(broken)?);
            if body.len() > self.max_response_bytes {
                return Err(broken(format!(
                    "its answer is larger than {} bytes (limits.maxResponseBytes)",
                    self.max_response_bytes
                )));
            }
        }
    }

    fn unsent(&self, fault: Fault) -> SendError {
        let address = self.address();
        match fault {
            Fault::TimedOut => SendError::TimedOut { address },
            Fault::Unreachable(problem) => SendError::Unreachable { address, problem },
            Fault::Broken(problem) => SendError::Broken { address, problem },
        }
    }

    /// A server that answered, though not with anything known, is no llama-server.
    fn told(&self, error: &ProbeError) -> Result<Target, SendError> {
        let address = self.address();
        match error {
            ProbeError::Loading { .. } => Err(SendError::Loading {
                address,
                message: error.to_string(),
                retry_after: None,
            }),
            ProbeError::Silent { .. } => Err(SendError::Loading {
                address,
                message: error.to_string(),
                retry_after: None,
            }),
            ProbeError::Unreachable { cause, .. } => Err(SendError::Unreachable {
                address,
                problem: cause.clone(),
            }),
            ProbeError::Status { .. }
            | ProbeError::TooLarge { .. }
            | ProbeError::NotModels { .. } => Ok(Target::unasked(self.settings.kind)),
        }
    }

    fn learnt(&self) -> std::sync::MutexGuard<'_, Option<(Instant, Target)>> {
        self.learnt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bearer(key: &str) -> HeaderValue {
    // The configuration refuses keys that no header can carry.
    let mut value =
        HeaderValue::from_str(&format!("Bearer {key}")).unwrap_or(HeaderValue::from_static(""));
    value.set_sensitive(true);
    value
}

fn kind_of(status: StatusCode) -> ErrorKind {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ErrorKind::Authentication,
        StatusCode::NOT_FOUND => ErrorKind::NotFound,
        StatusCode::TOO_MANY_REQUESTS => ErrorKind::RateLimit,
        status if status.is_client_error() => ErrorKind::InvalidRequest,
        _ => ErrorKind::Server,
    }
}

fn excerpt(body: &[u8]) -> String {
    const LONGEST: usize = 300;
    let text = String::from_utf8_lossy(&body[..body.len().min(LONGEST)])
        .trim()
        .to_owned();
    if text.is_empty() {
        "an empty body".to_owned()
    } else {
        text
    }
}
