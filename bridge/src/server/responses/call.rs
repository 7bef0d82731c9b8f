//! A request on its way to the upstream: what it is made into, and the wait for a server that is not ready.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::HeaderMap;
use protocol::{ApiError, Object, error::INVALID_PROMPT, object::str_or_empty};
use tokio::time::{Instant, sleep};

use super::super::{State, error::Failure, log::Record};
use crate::{
    translate::{self, Counts, Normalized, Translation, normalize},
    upstream::{Answer, Http, SendError, Target},
};

/// Pauses between two tries to reach a server that is not ready: doubled from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(2);

/// Whom to ask, with which header fields.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) state: Arc<State>,
    pub(super) upstream: Http,
    pub(super) headers: HeaderMap,
}

/// A request made for a known upstream.
pub(super) struct Ready {
    json: Bytes,
    model: String,
    pub(super) translation: Translation,
    pub(super) target: Target,
}

/// A request as far as it is known what to make of it.
pub(super) enum Prepared {
    Ready(Box<Ready>),
    /// The client wants no answer from the model.
    Prewarm(Box<Translation>),
    /// The upstream could not be asked what it is. The translation was made for the assumed one: it tells whether the
    /// client streams and what it declared.
    Raw {
        request: Object,
        translation: Box<Translation>,
        fault: SendError,
    },
}

/// An upstream that has taken the request.
pub(super) struct Sent {
    pub(super) answer: Answer,
    /// Its model, as the upstream was asked for it.
    pub(super) model: String,
    pub(super) translation: Translation,
    pub(super) target: Target,
}

impl Call {
    pub(super) fn upstream(&self) -> &Http {
        &self.upstream
    }

    /// # Errors
    /// The request cannot be translated. That is told before anybody is asked, whatever the server turns out to be.
    pub(super) async fn prepare(&self, request: Object) -> Result<Prepared, translate::Error> {
        let upstream = self.upstream();
        if let Some(target) = upstream.known() {
            return self.made_for(request, target);
        }
        let unasked = Target::unasked(upstream.settings().kind);
        let ready = match self.made_for(request.clone(), unasked)? {
            Prepared::Ready(ready) => ready,
            other => return Ok(other),
        };
        match upstream.target().await {
            Ok(target) => self.made_for(request, target),
            Err(fault) => Ok(Prepared::Raw {
                request,
                translation: Box::new(ready.translation),
                fault,
            }),
        }
    }

    pub(super) async fn send(&self, ready: &Ready) -> Result<Answer, SendError> {
        self.upstream()
            .send(ready.json.clone(), self.headers.clone())
            .await
    }

    /// Tries again until the server takes the request, fails for another reason, or `until` has come.
    pub(super) async fn wait_and_send(
        &self,
        mut prepared: Prepared,
        until: Instant,
        mut fault: SendError,
    ) -> Result<Sent, WaitError> {
        let mut pause = FIRST_PAUSE;
        while fault.may_pass() && Instant::now() + pause < until {
            sleep(pause).await;
            pause = (pause * 2).min(LAST_PAUSE);
            if let Prepared::Raw { request, .. } = &prepared {
                match self.upstream().target().await {
                    Ok(target) => prepared = self.made_for(request.clone(), target)?,
                    Err(error) => fault = error,
                }
            }
            if let Prepared::Ready(ready) = prepared {
                match self.send(&ready).await {
                    Ok(answer) => return Ok(ready.sent(answer)),
                    Err(error) => fault = error,
                }
                prepared = Prepared::Ready(ready);
            }
        }
        Err(WaitError::Send(fault))
    }

    fn made_for(&self, request: Object, target: Target) -> Result<Prepared, translate::Error> {
        let Normalized {
            body,
            mut translation,
            prewarm,
        } = normalize(request, &self.state.config.policy, &target.capabilities)?;
        if prewarm {
            return Ok(Prepared::Prewarm(Box::new(translation)));
        }
        let model = str_or_empty(&body, "model").to_owned();
        let json = encode(&body, &mut translation.counts);
        Ok(Prepared::Ready(Box::new(Ready {
            json,
            model,
            translation,
            target,
        })))
    }
}

impl Ready {
    pub(super) fn sent(self, answer: Answer) -> Sent {
        Sent {
            answer,
            model: self.model,
            translation: self.translation,
            target: self.target,
        }
    }
}

impl Sent {
    pub(super) fn note(&self, record: &mut Record) {
        record.upstream_status = Some(self.answer.status.as_u16());
        record.model_served = Some(self.model.clone());
    }
}

impl Prepared {
    pub(super) fn translation(&self) -> &Translation {
        match self {
            Self::Ready(ready) => &ready.translation,
            Self::Raw { translation, .. } | Self::Prewarm(translation) => translation,
        }
    }
}

/// The body as JSON; what its two large parts take is noted on the way.
fn encode(body: &Object, counts: &mut Counts) -> Bytes {
    let mut json = Vec::with_capacity(1024);
    for (key, value) in body {
        json.push(if json.is_empty() { b'{' } else { b',' });
        // Strings and JSON values always print.
        let _ = serde_json::to_writer(&mut json, key);
        json.push(b':');
        let before = json.len();
        let _ = serde_json::to_writer(&mut json, value);
        match key.as_str() {
            "tools" => counts.tool_bytes = json.len() - before,
            "input" => counts.input_bytes = json.len() - before,
            _ => {}
        }
    }
    if json.is_empty() {
        json.push(b'{');
    }
    json.push(b'}');
    json.into()
}

/// Why the wait for a server was in vain.
pub(super) enum WaitError {
    Send(SendError),
    Request(translate::Error),
}

impl From<translate::Error> for WaitError {
    fn from(error: translate::Error) -> Self {
        Self::Request(error)
    }
}

impl WaitError {
    pub(super) fn into_failure(self) -> Failure {
        match self {
            Self::Send(error) => Failure::from(&error),
            Self::Request(error) => Failure::from(error),
        }
    }

    /// Inside a stream. A server that stayed away for the whole wait is no reason to ask again at once.
    pub(super) fn into_api(self) -> ApiError {
        match self {
            Self::Send(error) if error.may_pass() => error.to_api().with_code(INVALID_PROMPT),
            Self::Send(error) => error.to_api(),
            Self::Request(error) => error.into(),
        }
    }
}
