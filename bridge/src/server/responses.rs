//! `POST /v1/responses`: normalize, send, rewrite.
//!
//! The upstream is asked before our own status goes out, so what it refuses keeps its status. Only a server that does
//! not listen yet, or is still loading, makes a streaming client wait inside a stream: with life signs, since a refusal
//! would make Codex ask again up to thirty times.

use std::{sync::Arc, time::Duration};

use http::{HeaderValue, StatusCode, header};
use protocol::{Ids, Object, object::str_or_empty};
use serde_json::Value;
use sync_wrapper::SyncFuture;
use tokio::time::Instant;
use warp::reply::Response;

use self::call::{Call, Prepared, Sent};
use super::{
    State,
    context::RequestContext,
    error::{self, Failure},
    log::RequestLog,
};
use crate::{
    metrics::{Action, EventLabels, Metrics},
    stream::{Body, Connected, Connecting, ResponseStream, Rewriter, Settings, guard::Guard},
    translate::{self, Translation, restore},
    upstream::{SendError, Target, Upstream},
};

mod bundled;

/// What the model server was asked for, in words.
const STREAM: &str = "an event stream";

mod call;
mod collect;
mod passing;
mod prewarm;
mod unknown;

pub(super) use self::unknown::UnknownFields;

pub(super) async fn create(state: Arc<State>, request: RequestContext, body: Object) -> Response {
    match respond(state, &request, body).await {
        Ok(response) => response,
        Err(failure) => failure.respond(&request),
    }
}

async fn respond(
    state: Arc<State>,
    request: &RequestContext,
    body: Object,
) -> Result<Response, Failure> {
    state.unknown_fields.note(&body, &state.metrics);
    let asked = str_or_empty(&body, "model").to_owned();
    request
        .log
        .update(|record| record.model_asked = Some(asked));
    let upstream = match &state.upstream {
        Upstream::Bundled(engine) => {
            return bundled::respond(&state, engine, request, body).await;
        }
        Upstream::Http(upstream) => upstream.clone(),
    };
    let call = Call {
        state,
        upstream,
        headers: passing::upward(request),
    };
    let prepared = call.prepare(body).await?;
    log_counts(request, prepared.translation());
    match prepared {
        Prepared::Prewarm(translation) => Ok(prewarm::prewarmed(&translation, request)),
        Prepared::Ready(ready) => match call.send(&ready).await {
            Ok(answer) => answered(request, &call, ready.sent(answer)).await,
            Err(fault) => wait_or_fail(request, call, Prepared::Ready(ready), fault).await,
        },
        Prepared::Raw { ref fault, .. } => {
            let fault = fault.clone();
            wait_or_fail(request, call, prepared, fault).await
        }
    }
}

async fn wait_or_fail(
    request: &RequestContext,
    call: Call,
    prepared: Prepared,
    fault: SendError,
) -> Result<Response, Failure> {
    let settings = call.upstream().settings();
    let Some(wait) = settings.wait_for_ready.filter(|_| fault.may_pass()) else {
        return Err(Failure::from(&fault));
    };
    tracing::info!(id = request.id, wait = ?wait, "waiting for the model server: {fault}");
    let until = Instant::now() + wait;
    if !prepared.translation().stream {
        let sent = call.wait_and_send(prepared, until, fault).await;
        return answered(request, &call, sent.map_err(|error| error.into_failure())?).await;
    }
    // Until the server is known, life signs are filled as for llama-server unless the configuration says otherwise.
    let repair = Target::assumed(settings.kind).needs_repair();
    let rewriter = rewriter(
        &call.state,
        request,
        prepared.translation().clone(),
        repair,
        None,
    );
    let (waiting, log) = (call.clone(), request.log.clone());
    let connecting = Box::pin(SyncFuture::new(async move {
        let sent = waiting.wait_and_send(prepared, until, fault).await;
        let sent = sent.map_err(|error| error.into_api())?;
        log.update(|record| sent.note(record));
        if !sent.answer.is_event_stream() {
            return Err(waiting.upstream().not(STREAM, &sent.answer).to_api());
        }
        Ok(Connected {
            repair: sent.target.needs_repair(),
            context: sent.target.context,
            translation: sent.translation,
            body: sent.answer.body,
        })
    }));
    Ok(events(
        request,
        &call.state,
        call.upstream().settings().idle_timeout,
        connecting,
        rewriter,
        None,
    ))
}

async fn answered(request: &RequestContext, call: &Call, sent: Sent) -> Result<Response, Failure> {
    request.log.update(|record| sent.note(record));
    let Sent {
        answer,
        translation,
        target,
        ..
    } = sent;
    if translation.stream {
        if !answer.is_event_stream() {
            return Err(Failure::from(&call.upstream().not(STREAM, &answer)));
        }
        let passed = passing::passed_down(&answer.headers);
        let rewriter = rewriter(
            &call.state,
            request,
            translation,
            target.needs_repair(),
            target.context,
        );
        let idle = call.upstream().settings().idle_timeout;
        let body = Some(answer.body);
        let mut response = events(request, &call.state, idle, never(), rewriter, body);
        response.headers_mut().extend(passed);
        return Ok(response);
    }
    let passed = passing::passed_down(&answer.headers);
    let object = if answer.is_event_stream() {
        let rewriter = rewriter(
            &call.state,
            request,
            translation,
            target.needs_repair(),
            target.context,
        );
        let (address, idle) = (
            call.upstream().address(),
            call.upstream().settings().idle_timeout,
        );
        let end =
            collect::collect(request, &call.state, &address, idle, answer.body, rewriter).await?;
        collect::finished(request, end)?
    } else {
        let mut object = call
            .upstream()
            .json(answer)
            .await
            .map_err(|error| Failure::from(&error))?;
        restore::response(&mut object, &translation);
        object
    };
    let mut response = finished_json(request, object);
    response.headers_mut().extend(passed);
    Ok(response)
}

/// The answer to a client that wanted one JSON object.
fn finished_json(request: &RequestContext, object: Object) -> Response {
    request.log.update(|record| {
        record.terminal_event = Some(format!("response.{}", str_or_empty(&object, "status")));
    });
    error::json(StatusCode::OK, &Value::Object(object))
}

/// An event stream around `rewriter`; `idle` is the longest silence of the upstream.
fn events(
    request: &RequestContext,
    state: &State,
    idle: Option<Duration>,
    connecting: Connecting,
    rewriter: Rewriter,
    body: Option<Body>,
) -> Response {
    let guard = Guard::new(state.config.limits.max_event_bytes);
    let mut stream = ResponseStream::new(
        connecting,
        guard,
        rewriter,
        state.config.policy.keep_alive,
        idle,
    );
    stream = stream.showing(state.metrics.held_bytes.clone());
    let draining = state.draining.clone();
    stream = stream.until(Box::pin(SyncFuture::new(
        async move { draining.ending().await },
    )));
    if let Some(body) = body {
        stream = stream.open(body);
    }
    let (log, first) = (request.log.clone(), request.log.clone());
    let metrics = state.metrics.clone();
    let stream = stream.observed(
        move || first.first_event(),
        Box::new(move |guard, rewriter| {
            count_events(&metrics, &log, guard, rewriter);
            log.update(|record| {
                let Some(end) = rewriter.end() else { return };
                record.terminal_event = Some(end.kind.as_str().to_owned());
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

fn count_events(metrics: &Metrics, log: &RequestLog, guard: &Guard, rewriter: &Rewriter) {
    let sent = rewriter.sent();
    let add = |action, count| {
        metrics
            .events
            .get_or_create(&EventLabels { action })
            .inc_by(count)
    };
    add(Action::Verbatim, sent.verbatim);
    add(Action::Rewritten, sent.rewritten);
    metrics.replaced_sequences.inc_by(guard.replaced());
    if guard.replaced() > 0 {
        tracing::warn!(
            count = guard.replaced(),
            "bad UTF-8 from the model server became U+FFFD"
        );
    }
    let (calls, patches) = rewriter.repairs();
    log.update(|record| {
        let changes = &mut record.changes;
        changes.dropped_calls = some(calls);
        changes.mended_patches = some(patches);
        changes.replaced_sequences = some(guard.replaced());
    });
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

fn rewriter(
    state: &State,
    request: &RequestContext,
    translation: Translation,
    repair: bool,
    context: Option<u64>,
) -> Rewriter {
    let settings = Settings {
        phase: state.config.policy.phase,
        repair,
        context,
        max_held_bytes: state.config.limits.max_held_bytes,
        request_id: request.id.clone(),
        now_unix: now_unix(),
        clock: now_unix,
        ids: Ids::random(),
    };
    Rewriter::new(settings, translation)
}

fn log_counts(request: &RequestContext, translation: &Translation) {
    let counts = &translation.counts;
    request.log.update(|record| {
        record.tools = Some(counts.tools_sent);
        let changes = &mut record.changes;
        changes.tools_excluded = some(counts.tools_excluded);
        changes.tools_withheld = some(counts.tools_withheld);
        changes.dropped_tools = translate::told(&counts.dropped_tools);
        changes.dropped_items = translate::told(&counts.dropped_items);
        changes.mended_items = translate::told(&counts.mended_items);
    });
    tracing::debug!(id = request.id, ?counts, "normalized");
}

/// A count that a line bears only when there was something to count.
fn some<N: Default + PartialEq>(count: N) -> Option<N> {
    (count != N::default()).then_some(count)
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

fn never() -> Connecting {
    Box::pin(futures_util::future::pending())
}

pub(super) fn now_unix() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
