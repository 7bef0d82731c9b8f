//! The paths. warp decides which handler a path belongs to, and nothing else: methods are looked at by the handlers,
//! which alone know what to put in `allow`, and errors are ordinary answers, so nothing is ever rejected but a path.

use std::{convert::Infallible, future::Future, sync::Arc};

use bytes::Buf;
use futures_util::{Stream, TryStreamExt};
use http::{Method, Request, StatusCode, header};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use warp::{Filter, Rejection, Reply, filters::BoxedFilter, reply::Response};

use super::{
    State,
    body::{self, Chunks},
    context::{Line, RequestContext},
    error::Failure,
    front::Counted,
    health, mcp, models, responses,
};
use crate::metrics;

const READ: &str = "GET, HEAD";

/// All routes as one service.
pub(super) fn service(
    state: &Arc<State>,
) -> impl Service<Request<Counted>, Response = Response, Error = Infallible, Future: Send> + Clone + use<>
{
    let routes = responses_route(state)
        .or(models_route(state))
        .unify()
        .or(one_model_route(state))
        .unify()
        .or(health_route(state))
        .unify()
        .or(metrics_route(state))
        .unify()
        .or(mcp_route(state))
        .unify()
        .or(nothing_here())
        .unify()
        .boxed();
    TowerToHyperService::new(warp::service(routes))
}

/// `/v1/responses` and, as llama-server has it, `/responses`.
fn responses_route(state: &Arc<State>) -> BoxedFilter<(Response,)> {
    api_path("responses")
        .and(warp::path::end())
        .and(call("responses", state))
        .and(chunks())
        .then(
            |state: Arc<State>, request: RequestContext, line: Line, chunks| async move {
                match line.method {
                    Method::POST => create_response(state, request, chunks).await,
                    // `codex doctor` asks whether the endpoint is there, and takes any status for a yes.
                    Method::HEAD => StatusCode::OK.into_response(),
                    Method::GET if asks_for_websocket(&request) => {
                        Failure::websocket().respond(&request)
                    }
                    _ => Failure::wrong_method("POST, HEAD").respond(&request),
                }
            },
        )
        .boxed()
}

async fn create_response(state: Arc<State>, request: RequestContext, chunks: Chunks) -> Response {
    let limit = state.config.limits.max_request_body_bytes;
    match body::read_object(chunks, &request.headers, limit).await {
        Ok(body) => responses::create(state, request, body).await,
        Err(error) => Failure::from(&error).respond(&request),
    }
}

fn asks_for_websocket(request: &RequestContext) -> bool {
    request
        .headers
        .get_all(header::UPGRADE)
        .iter()
        .any(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

fn models_route(state: &Arc<State>) -> BoxedFilter<(Response,)> {
    api_path("models")
        .and(warp::path::end())
        .and(call("models", state))
        .then(|state, request, line| {
            read_only(line, request, move |request, line| {
                models::list(state, request, line)
            })
        })
        .boxed()
}

/// The id may hold slashes: `vendor/model`.
fn one_model_route(state: &Arc<State>) -> BoxedFilter<(Response,)> {
    api_path("models")
        .and(warp::path::tail())
        .and(call("models", state))
        .then(|id: warp::path::Tail, state, request, line| {
            read_only(line, request, move |request, _| {
                models::one(state, request, percent_decoded(id.as_str()))
            })
        })
        .boxed()
}

fn health_route(state: &Arc<State>) -> BoxedFilter<(Response,)> {
    warp::path("health")
        .and(warp::path::end())
        .and(call("health", state))
        .then(|state, request, line| {
            read_only(line, request, move |request, _| health::get(state, request))
        })
        .boxed()
}

fn metrics_route(state: &Arc<State>) -> BoxedFilter<(Response,)> {
    warp::path("metrics")
        .and(warp::path::end())
        .and(call("metrics", state))
        .then(|state: Arc<State>, request, line| {
            read_only(line, request, move |_, _| async move {
                // Formatting into a string cannot fail.
                let text = state.metrics.encode().unwrap_or_default();
                let mut response = Response::new(text.into());
                response.headers_mut().insert(
                    header::CONTENT_TYPE,
                    http::HeaderValue::from_static(metrics::CONTENT_TYPE),
                );
                response
            })
        })
        .boxed()
}

fn mcp_route(state: &Arc<State>) -> BoxedFilter<(Response,)> {
    warp::path("mcp")
        .and(warp::path::param())
        .and(warp::path::end())
        .and(call("mcp", state))
        .and(chunks())
        .then(|name, state, request, line, chunks| mcp::relay(state, request, line, name, chunks))
        .boxed()
}

fn nothing_here() -> BoxedFilter<(Response,)> {
    warp::ext::get()
        .map(|request: RequestContext| Failure::no_route().respond(&request))
        .boxed()
}

/// `/v1/<name>` or `/<name>`.
fn api_path(name: &'static str) -> BoxedFilter<()> {
    warp::path("v1")
        .and(warp::path(name))
        .or(warp::path(name))
        .unify()
        .boxed()
}

/// What every handler is given, and the name of its route in the log.
fn call(
    route: &'static str,
    state: &Arc<State>,
) -> impl Filter<Extract = (Arc<State>, RequestContext, Line), Error = Rejection> + Clone + use<> {
    let state = Arc::clone(state);
    let context = warp::ext::get().map(move |request: RequestContext| {
        request.log.update(|record| record.route = route);
        request
    });
    warp::any()
        .map(move || Arc::clone(&state))
        .and(context)
        .and(warp::ext::get::<Line>())
}

fn chunks() -> impl Filter<Extract = (Chunks,), Error = Rejection> + Copy {
    warp::body::stream().map(whole_chunks)
}

fn whole_chunks<S, B>(body: S) -> Chunks
where
    S: Stream<Item = Result<B, warp::Error>> + Send + Sync + 'static,
    B: Buf,
{
    Box::pin(body.map_ok(|mut chunk| chunk.copy_to_bytes(chunk.remaining())))
}

/// A handler for `GET`, and for `HEAD` too: hyper leaves the body out.
async fn read_only<H, F>(line: Line, request: RequestContext, handler: H) -> Response
where
    H: FnOnce(RequestContext, Line) -> F,
    F: Future<Output = Response>,
{
    if line.method == Method::GET || line.method == Method::HEAD {
        handler(request, line).await
    } else {
        Failure::wrong_method(READ).respond(&request)
    }
}

/// Clients percent-encode what they like in an id.
fn percent_decoded(text: &str) -> String {
    let mut rest = text.as_bytes();
    let mut decoded = Vec::with_capacity(rest.len());
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = (byte == b'%').then(|| hex_pair(after)).flatten();
        decoded.push(escaped.unwrap_or(byte));
        rest = if escaped.is_some() {
            &after[2..]
        } else {
            after
        };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

fn hex_pair(text: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let value = digit(*text.first()?)? * 16 + digit(*text.get(1)?)?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::percent_decoded;

    #[test]
    fn ids_are_decoded_and_odd_ones_kept() {
        for (sent, meant) in [
            ("vendor%2Fmodel", "vendor/model"),
            ("vendor/model:q4", "vendor/model:q4"),
            ("%e2%82%AC", "€"),
            ("100%", "100%"),
            ("%+1", "%+1"),
            ("%zz", "%zz"),
        ] {
            assert_eq!(percent_decoded(sent), meant);
        }
    }
}
