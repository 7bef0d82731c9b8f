//! The first and last thing a request meets: its id, the guard, the routes, its line in the log.
//!
//! ```text
//! hyper → [id, log] → guard → preflight? → key? → routes → [id and CORS fields, counted body] → hyper
//! ```

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, header::CONTENT_LENGTH, request::Parts};
use http_body_util::{BodyExt, combinators::BoxBody};
use hyper::{
    body::{Body, Frame, Incoming, SizeHint},
    service::Service,
};
use tracing::Instrument;
use warp::reply::Response;

use super::{
    State,
    context::{Line, RequestContext, request_id},
    cors,
    error::Failure,
    guard::Guard,
    log::{Entry, RequestLog},
};
use crate::headers::X_REQUEST_ID;

/// What stands before the routes `R`, one for all connections.
pub(super) struct Front<R> {
    pub(super) state: Arc<State>,
    pub(super) guard: Guard,
    pub(super) routes: R,
}

impl<R> Front<R>
where
    R: Service<Request<Counted>, Response = Response, Error = Infallible>,
{
    /// `open` is kept until the last byte of the answer is gone.
    pub(super) async fn answer(
        &self,
        peer: SocketAddr,
        request: Request<Incoming>,
        open: Option<Arc<()>>,
    ) -> Result<http::Response<Logged>, Infallible> {
        let (parts, body) = request.into_parts();
        let log = RequestLog::begin();
        let mut entry = Entry {
            log: log.clone(),
            id: request_id(&parts.headers),
            method: parts.method.clone(),
            metrics: self.state.metrics.clone(),
            status: None,
            bytes_out: 0,
            first_byte: None,
            complete: false,
        };
        // hyper sends no body after a HEAD, however long ours is.
        let is_head = parts.method == Method::HEAD;
        let span = tracing::debug_span!("request", id = entry.id, %peer, path = parts.uri.path());
        let body = Counted {
            body,
            log: log.clone(),
        };
        let (mut response, origin) = self
            .pass(parts, body, &entry.id, log)
            .instrument(span)
            .await;
        finish(response.headers_mut(), &entry.id, origin);
        entry.status = Some(response.status());
        entry.complete = is_head;
        let length = response.headers().get(CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        Ok(response.map(|body| Logged {
            body: body.boxed(),
            length,
            entry,
            _open: open,
        }))
    }

    /// Through the guard and the routes; also gives the origin that may read the answer.
    async fn pass(
        &self,
        mut parts: Parts,
        body: Counted,
        id: &str,
        log: RequestLog,
    ) -> (Response, Option<HeaderValue>) {
        let key = self.guard.check_key(&parts.headers);
        let context = RequestContext::new(id.to_owned(), &parts.headers, log, key.is_ok());
        let admitted = self.guard.admit(parts.version, &parts.uri, &parts.headers);
        let origin = match admitted {
            Ok(origin) => origin,
            Err(refusal) => return (Failure::from(&refusal).respond(&context), None),
        };
        if origin.is_some() && cors::is_preflight(&parts.method, &parts.headers) {
            context.log.update(|record| record.route = "preflight");
            return (cors::preflight(&parts.headers), origin);
        }
        // A health check has no key; what it is told depends on whether it brought one (`RequestContext::trusted`).
        if let Err(refusal) = key
            && parts.uri.path() != "/health"
        {
            return (Failure::from(&refusal).respond(&context), origin);
        }
        parts.extensions.insert(Line {
            method: parts.method.clone(),
            query: parts.uri.query().map(str::to_owned),
        });
        let log = context.clone();
        parts.extensions.insert(context);
        let routed = self.routes.call(Request::from_parts(parts, body));
        let response = tokio::select! {
            biased;
            response = routed => {
                let Ok(response) = response;
                response
            }
            // The body of an answer that has begun ends itself.
            () = self.state.draining.ending() => Failure::stopping().respond(&log),
        };
        (response, origin)
    }
}

fn finish(headers: &mut HeaderMap, id: &str, origin: Option<HeaderValue>) {
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert(X_REQUEST_ID, id);
    }
    if let Some(origin) = origin {
        cors::allow(origin, headers);
    }
}

/// A request body whose bytes are counted.
pub(super) struct Counted {
    body: Incoming,
    log: RequestLog,
}

impl Body for Counted {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(chunk) = frame.as_ref().and_then(|it| it.as_ref().ok()?.data_ref()) {
            self.log.add_bytes_in(chunk.len());
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A response body that takes the request's log entry along and, by being dropped, has it written.
pub(super) struct Logged {
    body: BoxBody<Bytes, warp::Error>,
    /// As the head says. hyper does not ask for the end of a body whose length it knows.
    length: Option<u64>,
    entry: Entry,
    _open: Option<Arc<()>>,
}

impl Body for Logged {
    type Data = Bytes;
    type Error = warp::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, warp::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                let length = frame.data_ref().map_or(0, Bytes::len);
                self.entry.bytes_out += length as u64;
                self.entry.complete |= self.length == Some(self.entry.bytes_out);
                let elapsed = self.entry.log.elapsed();
                self.entry.first_byte.get_or_insert(elapsed);
            }
            Some(Err(error)) => {
                let message = error.to_string();
                self.entry
                    .log
                    .update(|record| record.failure = Some(message));
            }
            None => self.entry.complete = true,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Logged {
    /// hyper does not ask for the end of a body whose length it knows.
    fn drop(&mut self) {
        self.entry.complete |= self.body.is_end_stream();
    }
}
