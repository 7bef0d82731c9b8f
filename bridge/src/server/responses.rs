//! `POST /v1/responses`: normalize, send, rewrite.
//!
//! The upstream is asked before our own status goes out, so what it refuses keeps its status. Only a server that does
//! not listen yet, or is still loading, makes a streaming client wait inside a stream: with life signs, since a refusal
//! would make Codex ask again up to thirty times.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use protocol::{
    ApiError, ErrorKind, EventKind, Ids, Object,
    error::{INVALID_PROMPT, RATE_LIMIT_EXCEEDED},
    object::str_or_empty,
    response,
};
use serde_json::Value;
use sync_wrapper::SyncFuture;
use tokio::time::{Instant, sleep, timeout};
use warp::reply::Response;

use super::{
    State,
    context::RequestContext,
    error::{self, Failure},
};
use crate::{
    config::Policy,
    metrics::{Action, EventLabels, Metrics},
    stream::{
        Body, Connected, Connecting, End, ResponseStream, Rewriter, Settings, guard::Guard,
        release_body,
    },
    translate::{self, Normalized, Translation, normalize, restore},
    upstream::{Http, SendError, Target, Upstream, http as wire},
};

/// Pauses between two tries to reach a server that is not ready: doubled from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(2);

pub(super) async fn create(state: Arc<State>, request: RequestContext, body: Object) -> Response {
    match respond(&state, &request, body).await {
        Ok(response) => response,
        Err(failure) => failure.respond(&request),
    }
}

async fn respond(
    state: &Arc<State>,
    request: &RequestContext,
    body: Object,
) -> Result<Response, Failure> {
    let Upstream::Http(upstream) = &state.upstream;
    let call = Call {
        upstream: upstream.clone(),
        policy: state.config.policy.clone(),
        headers: upward(request),
    };
    let asked = str_or_empty(&body, "model").to_owned();
    request
        .log
        .update(|record| record.model_asked = Some(asked));
    let prepared = match upstream.target().await {
        Ok(target) => Prepared::ready(body, &call.policy, target)?,
        Err(fault) => {
            // Faults of the request are told at once, whatever the server turns out to be.
            let target = Target::assumed(upstream.settings().kind);
            let draft = normalize(body.clone(), &call.policy, &target.capabilities)?;
            if draft.prewarm {
                return Ok(prewarmed(&draft.translation, request));
            }
            return wait_or_fail(
                state,
                request,
                call,
                Prepared::Raw(body, Box::new(draft.translation)),
                fault,
            )
            .await;
        }
    };
    let Prepared::Ready(ready) = &prepared else {
        return Err(Failure::from(&SendError::TimedOut {
            address: upstream.address(),
        }));
    };
    let (normalized, target) = &**ready;
    if normalized.prewarm {
        return Ok(prewarmed(&normalized.translation, request));
    }
    log_counts(request, &normalized.translation);
    match call
        .upstream
        .send(&normalized.body, call.headers.clone())
        .await
    {
        Ok(answer) => {
            let sent = Sent {
                answer,
                translation: normalized.translation.clone(),
                target: target.clone(),
            };
            answered(state, request, &call, sent).await
        }
        Err(fault) => wait_or_fail(state, request, call, prepared, fault).await,
    }
}

/// A request on its way, without its body.
#[derive(Clone)]
struct Call {
    upstream: Http,
    policy: Policy,
    headers: HeaderMap,
}

/// A request as far as it is known what to make of it.
enum Prepared {
    /// The upstream is known.
    Ready(Box<(Normalized, Target)>),
    /// It could not be asked; the translation was made for the assumed one.
    Raw(Object, Box<Translation>),
}

impl Prepared {
    fn ready(body: Object, policy: &Policy, target: Target) -> Result<Self, translate::Error> {
        let normalized = normalize(body, policy, &target.capabilities)?;
        Ok(Self::Ready(Box::new((normalized, target))))
    }

    fn translation(&self) -> &Translation {
        match self {
            Self::Ready(ready) => &ready.0.translation,
            Self::Raw(_, translation) => translation,
        }
    }
}

/// An upstream that has taken the request.
struct Sent {
    answer: reqwest::Response,
    translation: Translation,
    target: Target,
}

async fn wait_or_fail(
    state: &Arc<State>,
    request: &RequestContext,
    call: Call,
    prepared: Prepared,
    fault: SendError,
) -> Result<Response, Failure> {
    let Some(wait) = call
        .upstream
        .settings()
        .wait_for_ready
        .filter(|_| fault.may_pass())
    else {
        return Err(Failure::from(&fault));
    };
    tracing::info!(id = request.id, wait = ?wait, "waiting for the model server: {fault}");
    let translation = prepared.translation().clone();
    let until = Instant::now() + wait;
    if !translation.stream {
        let sent = wait_and_send(&call, prepared, until, fault)
            .await
            .map_err(WaitError::into_failure)?;
        return answered(state, request, &call, sent).await;
    }
    let repair = translation_target_needs_repair(&call);
    let waiting = call.clone();
    let connecting: Connecting = Box::pin(SyncFuture::new(async move {
        let sent = wait_and_send(&waiting, prepared, until, fault)
            .await
            .map_err(WaitError::into_api)?;
        if !wire::is_event_stream(&sent.answer) {
            return Err(no_stream(&waiting.upstream, &sent.answer).to_api());
        }
        Ok(Connected {
            repair: sent.target.needs_repair(),
            context: sent.target.context,
            translation: sent.translation,
            body: wire::body(sent.answer),
        })
    }));
    let rewriter = rewriter(state, request, translation, repair, None);
    Ok(events(state, request, &call, connecting, rewriter, None))
}

/// Until the server is known, life signs are filled as for llama-server unless the configuration says otherwise.
fn translation_target_needs_repair(call: &Call) -> bool {
    Target::assumed(call.upstream.settings().kind).needs_repair()
}

enum WaitError {
    Send(SendError),
    Request(translate::Error),
}

impl WaitError {
    fn into_failure(self) -> Failure {
        match self {
            Self::Send(error) => Failure::from(&error),
            Self::Request(error) => Failure::from(error),
        }
    }

    /// Inside a stream. A server that stayed away for the whole wait is no reason to ask again at once.
    fn into_api(self) -> ApiError {
        match self {
            Self::Send(error) if error.may_pass() => error.to_api().with_code(INVALID_PROMPT),
            Self::Send(error) => error.to_api(),
            Self::Request(error) => error.into(),
        }
    }
}

async fn wait_and_send(
    call: &Call,
    mut prepared: Prepared,
    until: Instant,
    mut fault: SendError,
) -> Result<Sent, WaitError> {
    let mut pause = FIRST_PAUSE;
    while fault.may_pass() && Instant::now() + pause < until {
        sleep(pause).await;
        pause = (pause * 2).min(LAST_PAUSE);
        if let Prepared::Raw(body, _) = &prepared {
            match call.upstream.target().await {
                Ok(target) => {
                    prepared = Prepared::ready(body.clone(), &call.policy, target)
                        .map_err(WaitError::Request)?;
                }
                Err(error) => fault = error,
            }
        }
        if let Prepared::Ready(ready) = &prepared {
            let (normalized, target) = &**ready;
            match call
                .upstream
                .send(&normalized.body, call.headers.clone())
                .await
            {
                Ok(answer) => {
                    return Ok(Sent {
                        answer,
                        translation: normalized.translation.clone(),
                        target: target.clone(),
                    });
                }
                Err(error) => fault = error,
            }
        }
    }
    Err(WaitError::Send(fault))
}

async fn answered(
    state: &Arc<State>,
    request: &RequestContext,
    call: &Call,
    sent: Sent,
) -> Result<Response, Failure> {
    let status = sent.answer.status().as_u16();
    request
        .log
        .update(|record| record.upstream_status = Some(status));
    let Sent {
        answer,
        translation,
        target,
    } = sent;
    if translation.stream {
        if !wire::is_event_stream(&answer) {
            return Err(Failure::from(&no_stream(&call.upstream, &answer)));
        }
        let passed = passed_down(answer.headers());
        let rewriter = rewriter(
            state,
            request,
            translation,
            target.needs_repair(),
            target.context,
        );
        let mut response = events(
            state,
            request,
            call,
            never(),
            rewriter,
            Some(wire::body(answer)),
        );
        response.headers_mut().extend(passed);
        return Ok(response);
    }
    let passed = passed_down(answer.headers());
    let object = if wire::is_event_stream(&answer) {
        let mut rewriter = rewriter(
            state,
            request,
            translation,
            target.needs_repair(),
            target.context,
        );
        rewriter.invent_no_phases();
        let end = collect(state, call, wire::body(answer), rewriter).await?;
        finished(request, end)?
    } else {
        let mut object = call
            .upstream
            .json(answer)
            .await
            .map_err(|error| Failure::from(&error))?;
        restore::response(&mut object, &translation);
        object
    };
    request.log.update(|record| {
        record.model_served = Some(str_or_empty(&object, "model").to_owned());
        record.terminal_event = Some(format!("response.{}", str_or_empty(&object, "status")));
    });
    let mut response = error::json(StatusCode::OK, &Value::Object(object));
    response.headers_mut().extend(passed);
    Ok(response)
}

/// An event stream around `rewriter`.
fn events(
    state: &Arc<State>,
    request: &RequestContext,
    call: &Call,
    connecting: Connecting,
    rewriter: Rewriter,
    body: Option<Body>,
) -> Response {
    let guard = Guard::new(state.config.limits.max_event_bytes);
    let idle = call.upstream.settings().idle_timeout;
    let mut stream = ResponseStream::new(connecting, guard, rewriter, call.policy.keep_alive, idle);
    if let Some(body) = body {
        stream = stream.open(body);
    }
    let (log, first) = (request.log.clone(), request.log.clone());
    let metrics = state.metrics.clone();
    let stream = stream.observed(
        move || first.first_event(),
        Box::new(move |guard, rewriter| {
            count_events(&metrics, guard, rewriter);
            log.update(|record| {
                let Some(end) = rewriter.end() else { return };
                record.terminal_event = Some(end.kind.as_str().to_owned());
                record.model_served = Some(str_or_empty(&end.response, "model").to_owned());
                record.calls = Some(calls(&end.response));
                if record.failure.is_none() {
                    record.failure = end.error.as_ref().map(|error| error.message.clone());
                }
            });
        }),
    );
    let mut response = warp::reply::Reply::into_response(warp::reply::stream(stream));
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

fn count_events(metrics: &Metrics, guard: &Guard, rewriter: &Rewriter) {
    let sent = rewriter.sent();
    let add = |action, count| {
        metrics
            .events
            .get_or_create(&EventLabels { action })
            .inc_by(count)
    };
    add(Action::Verbatim, sent.verbatim);
    add(Action::Rewritten, sent.rewritten);
    metrics.replaced_bytes.inc_by(guard.replaced());
    if guard.replaced() > 0 {
        tracing::warn!(
            count = guard.replaced(),
            "bad UTF-8 from the model server became U+FFFD"
        );
    }
    let (calls, patches) = rewriter.repairs();
    if calls > 0 {
        tracing::warn!(
            count = calls,
            "calls left out: the client said parallel_tool_calls = false"
        );
    }
    if patches > 0 {
        tracing::warn!(count = patches, "patch markers repaired");
    }
}

/// Reads an event stream to its end, for a client that wants one JSON answer.
async fn collect(
    state: &State,
    call: &Call,
    mut body: Body,
    mut rewriter: Rewriter,
) -> Result<End, Failure> {
    let mut guard = Guard::new(state.config.limits.max_event_bytes);
    let idle = call.upstream.settings().idle_timeout;
    while rewriter.end().is_none() {
        let next = match idle {
            Some(idle) => timeout(idle, body.next()).await.map_err(|_| {
                Failure::from(&SendError::TimedOut {
                    address: call.upstream.address(),
                })
            })?,
            None => body.next().await,
        };
        let broken = |problem: String| {
            Failure::from(&SendError::Broken {
                address: call.upstream.address(),
                problem,
            })
        };
        match next {
            Some(Ok(chunk)) => guard
                .push(chunk, |frame| rewriter.handle(&frame))
                .map_err(|error| broken(format!("{error} (limits.maxEventBytes)")))?,
            Some(Err(problem)) => return Err(broken(problem)),
            None => {
                if let Some(frame) = guard.finish() {
                    rewriter.handle(&frame);
                }
                rewriter.finish();
            }
        }
        // Nobody reads the events.
        rewriter.take();
    }
    release_body(body);
    count_events(&state.metrics, &guard, &rewriter);
    // The loop ends only when there is one.
    rewriter.into_end().ok_or_else(|| {
        Failure::from(&SendError::TimedOut {
            address: call.upstream.address(),
        })
    })
}

/// The response object of an answer that succeeded.
fn finished(request: &RequestContext, end: End) -> Result<Object, Failure> {
    if end.kind != EventKind::Failed {
        let mut object = end.response;
        restore::summarise_all(&mut object);
        return Ok(object);
    }
    let mut error = end
        .error
        .unwrap_or_else(|| ApiError::new(ErrorKind::Server, "the response failed"));
    // `respond` writes the request's id itself.
    let id = format!(" (request {})", request.id);
    if let Some(message) = error.message.strip_suffix(&id) {
        error.message = message.to_owned();
    }
    let status = match (error.kind, error.code.as_deref()) {
        (_, Some(RATE_LIMIT_EXCEEDED)) | (ErrorKind::RateLimit, _) => StatusCode::TOO_MANY_REQUESTS,
        (ErrorKind::Server, _) => StatusCode::BAD_GATEWAY,
        _ => StatusCode::BAD_REQUEST,
    };
    Err(Failure::new(status, error))
}

fn rewriter(
    state: &State,
    request: &RequestContext,
    translation: Translation,
    repair: bool,
    context: Option<u64>,
) -> Rewriter {
    let settings = Settings {
        phase: Some(state.config.policy.phase),
        repair,
        context,
        max_held_bytes: state.config.limits.max_held_bytes,
        request_id: request.id.clone(),
        now_unix: now_unix(),
        ids: Ids::random(),
    };
    Rewriter::new(settings, translation)
}

/// The answer to `generate: false`: a completed response with nothing in it, and no work upstream.
fn prewarmed(translation: &Translation, request: &RequestContext) -> Response {
    let mut object = Object::new();
    object.insert("id".into(), Ids::random().make("resp").into());
    object.insert("object".into(), "response".into());
    object.insert("status".into(), "completed".into());
    response::complete(&mut object, &translation.declared, now_unix());
    object.insert(
        "usage".into(),
        response::complete_usage(&Object::new()).into(),
    );
    request
        .log
        .update(|record| record.terminal_event = Some(EventKind::Completed.as_str().to_owned()));
    if !translation.stream {
        return error::json(StatusCode::OK, &Value::Object(object));
    }
    let mut body = bytes::BytesMut::new();
    let mut started = object.clone();
    started.insert("status".into(), "in_progress".into());
    for (number, (kind, object)) in [
        (EventKind::Created, started),
        (EventKind::Completed, object),
    ]
    .into_iter()
    .enumerate()
    {
        let mut event = protocol::event::lifecycle(kind, object);
        event.insert("sequence_number".into(), number.into());
        protocol::sse::encode(kind.as_str(), &Value::Object(event).to_string(), &mut body);
    }
    body.extend_from_slice(protocol::sse::DONE);
    let mut response = Response::new(body.freeze().into());
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    response
}

fn log_counts(request: &RequestContext, translation: &Translation) {
    let counts = &translation.counts;
    request
        .log
        .update(|record| record.tools = Some(counts.tools_sent));
    tracing::debug!(id = request.id, ?counts, "normalized");
}

fn calls(response: &Object) -> usize {
    let items = response.get("output").and_then(Value::as_array);
    items.map_or(0, |items| {
        items
            .iter()
            .filter_map(Value::as_object)
            .filter(|item| protocol::ItemKind::of(item).is_call())
            .count()
    })
}

/// What of a client's header goes upstream: nothing that says who the client is. In particular never its
/// authorization, and never `X-Conversation-Id`, which would make llama-server go on after a disconnect.
fn upward(request: &RequestContext) -> HeaderMap {
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
fn passed_down(headers: &HeaderMap) -> HeaderMap {
    headers
        .iter()
        .filter(|(name, _)| {
            name.as_str() == "x-codex-turn-state" || name.as_str().starts_with("x-ratelimit-")
        })
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

fn no_stream(upstream: &Http, answer: &reqwest::Response) -> SendError {
    let content_type = answer
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    SendError::Broken {
        address: upstream.address(),
        problem: format!(
            "it was asked for an event stream and answered with {}",
            content_type.unwrap_or("no content type")
        ),
    }
}

fn never() -> Connecting {
    Box::pin(futures_util::future::pending())
}

fn now_unix() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
