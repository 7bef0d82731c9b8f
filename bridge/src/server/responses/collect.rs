//! One JSON answer out of an event stream. llama-server is always asked to stream: it would not notice that the client
//! of a JSON answer has left.

use std::time::Duration;

use futures_util::StreamExt;
use protocol::{ApiError, ErrorKind, EventKind, Object};
use tokio::time::timeout;

use super::{super::error::Failure, count_events};
use crate::{
    server::{RequestContext, State},
    stream::{Body, End, Rewriter, guard::Guard, release_body},
    translate::restore,
    upstream::SendError,
};

/// Reads an event stream to its end, for a client that wants one JSON answer. `idle` is the longest silence.
pub(super) async fn collect(
    request: &RequestContext,
    state: &State,
    address: &str,
    idle: Option<Duration>,
    mut body: Body,
    mut rewriter: Rewriter,
) -> Result<End, Failure> {
    let mut guard = Guard::new(state.config.limits.max_event_bytes);
    while rewriter.end().is_none() {
        let next = match idle {
            Some(idle) => timeout(idle, body.next()).await.map_err(|_| {
                Failure::from(&SendError::TimedOut {
                    address: address.to_owned(),
                })
            })?,
            None => body.next().await,
        };
        let broken = |problem: String| {
            Failure::from(&SendError::Broken {
                address: address.to_owned(),
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
    count_events(&state.metrics, &request.log, &guard, &rewriter);
    // The loop ends only when there is one.
    rewriter.into_end().ok_or_else(|| {
        Failure::from(&SendError::TimedOut {
            address: address.to_owned(),
        })
    })
}

/// The response object of an answer that succeeded.
pub(super) fn finished(request: &RequestContext, end: End) -> Result<Object, Failure> {
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
    Err(Failure::of_response(error))
}
