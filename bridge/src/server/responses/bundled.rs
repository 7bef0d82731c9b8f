//! A request for the bundled engine: checked, given to the engine, and its events rewritten like any upstream's.

use std::{sync::Arc, time::Duration};

use http::{HeaderName, HeaderValue, StatusCode};
use protocol::{ApiError, ErrorKind, Object, object::str_or_empty};
use sync_wrapper::SyncFuture;
use warp::reply::Response;

use super::{
    State, collect, error::Failure, events, finished_json, log_counts, never, prewarm, rewriter,
};
use crate::{
    server::{RequestContext, RequestLog},
    stream::{Connected, Connecting},
    translate::{Normalized, Translation, normalize, refuse_chat_fields},
    upstream::{
        SendError,
        bundled::{Answer, Bundled, CAPABILITIES},
    },
};

/// Tells what of the tools' schemas the engine could not enforce.
const RELAXED: HeaderName = HeaderName::from_static("x-codex-bridge-relaxed");
const LONGEST_RELAXED: usize = 1024;

/// What stands for an address in messages.
const ENGINE: &str = "bundled";

pub(super) async fn respond(
    state: &Arc<State>,
    engine: &Bundled,
    request: &RequestContext,
    body: Object,
) -> Result<Response, Failure> {
    refuse_chat_fields(&body)?;
    let Normalized {
        body,
        translation,
        prewarm,
    } = normalize(body, &state.config.policy, &CAPABILITIES)?;
    log_counts(request, &translation);
    check_model(str_or_empty(&body, "model"), engine)?;
    if prewarm {
        return Ok(prewarm::prewarmed(&translation, request));
    }
    let refused = |error: SendError| Failure::from(&error);
    let wait = engine.settings().wait_for_ready.unwrap_or_default();
    let is_ready = match engine.ready(Duration::ZERO).await {
        Err(fault) if fault.may_pass() && !wait.is_zero() => {
            tracing::info!(id = request.id, ?wait, "waiting for the engine: {fault}");
            false
        }
        outcome => {
            outcome.map_err(refused)?;
            true
        }
    };
    if !translation.stream {
        engine.ready(wait).await.map_err(refused)?;
        let answer = engine.respond(body).await.map_err(refused)?;
        note_served(&request.log, engine);
        return whole(state, request, translation, answer).await;
    }
    let rewriter = rewriter(state, request, translation.clone(), false, None);
    if !is_ready {
        let connecting =
            connect_when_ready(engine.clone(), wait, body, translation, request.log.clone());
        return Ok(events(request, state, None, connecting, rewriter, None));
    }
    let answer = engine.respond(body).await.map_err(refused)?;
    note_served(&request.log, engine);
    let mut response = events(request, state, None, never(), rewriter, Some(answer.body));
    tell_relaxed(&answer.relaxed, &mut response);
    Ok(response)
}

/// It has taken the request.
fn note_served(log: &RequestLog, engine: &Bundled) {
    log.update(|record| record.model_served = Some(engine.name().to_owned()));
}

/// A model that is not served is refused: Codex asks for hosted models by fixed names, and an answer by another model
/// should be somebody's decision (`modelAliases`).
fn check_model(asked: &str, engine: &Bundled) -> Result<(), Failure> {
    if asked == engine.name() {
        return Ok(());
    }
    let message = format!(
        "no model {asked:?} is served; there is: {} (the bridge setting modelAliases gives it other names, \"*\" all)",
        engine.name()
    );
    let error = ApiError::new(ErrorKind::NotFound, message)
        .with_param("model")
        .with_code("model_not_found");
    Err(Failure::new(StatusCode::NOT_FOUND, error))
}

fn connect_when_ready(
    engine: Bundled,
    wait: Duration,
    body: Object,
    translation: Translation,
    log: RequestLog,
) -> Connecting {
    Box::pin(SyncFuture::new(async move {
        let answer = async {
            engine.ready(wait).await?;
            engine.respond(body).await
        };
        match answer.await {
            Ok(answer) => {
                note_served(&log, &engine);
                Ok(Connected {
                    body: answer.body,
                    translation,
                    repair: false,
                    context: None,
                })
            }
            // A model that was not ready in all that time is no reason to ask again at once.
            Err(error) if error.may_pass() => {
                Err(error.to_api().with_code(protocol::error::INVALID_PROMPT))
            }
            Err(error) => Err(error.to_api()),
        }
    }))
}

async fn whole(
    state: &State,
    request: &RequestContext,
    translation: Translation,
    answer: Answer,
) -> Result<Response, Failure> {
    let rewriter = rewriter(state, request, translation, false, None);
    let end = collect::collect(request, state, ENGINE, None, answer.body, rewriter).await?;
    let object = collect::finished(request, end)?;
    let mut response = finished_json(request, object);
    tell_relaxed(&answer.relaxed, &mut response);
    Ok(response)
}

fn tell_relaxed(relaxed: &[String], response: &mut Response) {
    if relaxed.is_empty() {
        return;
    }
    let text: String = relaxed
        .join("; ")
        .chars()
        .take(LONGEST_RELAXED)
        .map(|letter| match letter {
            ' '..='~' => letter,
            _ => '?',
        })
        .collect();
    if let Ok(value) = HeaderValue::from_str(&text) {
        response.headers_mut().insert(RELAXED, value);
    }
}
