//! Requests for responses over plain http, on connections that have no task of their own.
//!
//! reqwest runs every connection in a task and hands a body over chunk by chunk: an event costs two task switches, and
//! no two events that came together leave together. Here whoever reads an answer's body drives its connection too. TLS
//! and proxies stay with reqwest; so does everything that is not a request for a response.
//!
//! Invariants: a connection carries one request at a time; an answer that is dropped before its end closes its
//! connection, which is how a generation is cancelled; a request is sent again only when none of it was written.

mod idle;

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bytes::Bytes;
use futures_util::Stream;
use http::{HeaderMap, HeaderValue, Method, Request, Uri, header};
use http_body_util::Full;
use hyper::{
    body::{Body, Incoming},
    client::conn::{
        TrySendError,
        http1::{self, Connection, SendRequest},
    },
    service::Service,
};
use hyper_util::{
    client::{legacy::connect::HttpConnector, proxy::matcher::Matcher},
    rt::TokioIo,
    service::TowerToHyperService,
};
use tokio::{net::TcpStream, time::timeout};
use url::Url;

use self::idle::Idle;
use super::{Answer, client, probe::root_cause};

/// What reqwest sets: a server that vanished is noticed though it is silent, as in a long prefill.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const KEEP_ALIVE_TRIES: u32 = 3;
/// Bytes read at once. An event is some hundred; more streams at a time than events in one read is the usual case.
const READ: usize = 16 << 10;
/// Fields of a head that hyper reads by default.
const MOST_FIELDS: usize = 100;

/// The server behind one endpoint.
#[derive(Debug)]
pub(super) struct Direct {
    connector: TowerToHyperService<HttpConnector>,
    endpoint: Uri,
    host: HeaderValue,
    connect_timeout: Duration,
    idle: Arc<Idle>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Fault {
    Unreachable(String),
    TimedOut,
    Broken(String),
}

impl Direct {
    /// `None` for an endpoint that needs TLS, or is reached through a proxy.
    pub(super) fn new(endpoint: &Url, connect_timeout: Duration) -> Option<Self> {
        let uri: Uri = endpoint.as_str().parse().ok()?;
        if !is_reachable(endpoint, &uri, &Matcher::from_system()) {
            return None;
        }
        let host = match endpoint.port() {
            Some(port) => format!("{}:{port}", endpoint.host_str()?),
            None => endpoint.host_str()?.to_owned(),
        };
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(connect_timeout));
        connector.set_keepalive(Some(KEEP_ALIVE));
        connector.set_keepalive_interval(Some(KEEP_ALIVE));
        connector.set_keepalive_retries(Some(KEEP_ALIVE_TRIES));
        #[cfg(target_os = "linux")]
        connector.set_tcp_user_timeout(Some(2 * KEEP_ALIVE));
        Some(Self {
            connector: TowerToHyperService::new(connector),
            host: host.parse().ok()?,
            endpoint: uri,
            connect_timeout,
            idle: Arc::default(),
        })
    }

    /// Posts `body` and waits for the head of the answer, whatever its status.
    pub(super) async fn post(&self, headers: HeaderMap, body: Bytes) -> Result<Answer, Fault> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        // The form without scheme and host, as servers are asked.
        let path = self.endpoint.path_and_query().cloned();
        *request.uri_mut() = path.map_or_else(Uri::default, Uri::from);
        *request.headers_mut() = headers;
        request
            .headers_mut()
            .insert(header::HOST, self.host.clone());
        loop {
            let (mut link, is_new) = match self.idle.take() {
                Some(link) => (link, false),
                None => (self.connect().await?, true),
            };
            match link.send(request).await {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    return Ok(Answer {
                        status: head.status,
                        headers: head.headers,
                        body: Box::pin(Streamed {
                            body,
                            link: Some(link),
                            idle: Arc::clone(&self.idle),
                        }),
                    });
                }
                Err(mut unsent) => match unsent.take_message() {
                    // The server closed the connection while nobody used it.
                    Some(message) if !is_new => request = message,
                    _ => return Err(Fault::Broken(cause(unsent.error()))),
                },
            }
        }
    }

    async fn connect(&self) -> Result<Link, Fault> {
        let connected = timeout(
            self.connect_timeout,
            self.connector.call(self.endpoint.clone()),
        );
        let socket = match connected.await {
            Err(_) => return Err(Fault::TimedOut),
            Ok(Err(error)) => {
                let is_late = is_timeout(&error);
                return Err(if is_late {
                    Fault::TimedOut
                } else {
                    Fault::Unreachable(root_cause(&error))
                });
            }
            Ok(Ok(socket)) => socket,
        };
        let (sender, connection) = http1::Builder::new()
            .read_buf_exact_size(Some(READ))
            .handshake(socket)
            .await
            .map_err(|error| Fault::Broken(root_cause(&error)))?;
        Ok(Link {
            sender,
            connection: Some(connection),
        })
    }
}

/// As [`root_cause`]; a head that is too large is told with what is allowed, which hyper keeps to itself.
fn cause(error: &hyper::Error) -> String {
    match error.is_parse_too_large() {
        true => format!(
            "the head of its answer has more than {} KiB or {MOST_FIELDS} fields, the most that is read",
            READ >> 10
        ),
        false => root_cause(error),
    }
}

/// Without TLS and without a proxy, as reqwest would decide it.
fn is_reachable(endpoint: &Url, uri: &Uri, proxies: &Matcher) -> bool {
    endpoint.scheme() == "http"
        && (client::is_loopback(endpoint) || proxies.intercept(uri).is_none())
}

/// The connector counts its own time too, one part of it for each address of a name.
fn is_timeout(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let io = error.downcast_ref::<std::io::Error>();
        if io.is_some_and(|error| error.kind() == std::io::ErrorKind::TimedOut) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// One connection, and the way to put a request on it.
struct Link {
    sender: SendRequest<Full<Bytes>>,
    /// `None` once it has ended.
    connection: Option<Connection<TokioIo<TcpStream>, Full<Bytes>>>,
}

impl Link {
    async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<http::Response<Incoming>, TrySendError<Request<Full<Bytes>>>> {
        let mut answer = pin!(self.sender.try_send_request(request));
        poll_fn(|context| {
            self.connection = drive(self.connection.take(), context);
            answer.as_mut().poll(context)
        })
        .await
    }

    /// Ready for another request.
    fn is_free(&mut self) -> bool {
        let mut nobody = Context::from_waker(Waker::noop());
        self.connection = drive(self.connection.take(), &mut nobody);
        self.connection.is_some() && self.sender.is_ready()
    }
}

/// Reads and writes what it can; nothing is left of a connection that has ended. What it died of is told by the answer
/// or the body that it owed.
fn drive<C: Future + Unpin>(connection: Option<C>, context: &mut Context<'_>) -> Option<C> {
    let mut connection = connection?;
    match Pin::new(&mut connection).poll(context) {
        Poll::Pending => Some(connection),
        Poll::Ready(_) => None,
    }
}

/// An answer's body, and the connection it comes from.
struct Streamed {
    body: Incoming,
    link: Option<Link>,
    idle: Arc<Idle>,
}

impl Stream for Streamed {
    type Item = Result<Bytes, String>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        // The body says nothing new but what the connection puts into it, and that is driven right here.
        let mut nobody = Context::from_waker(Waker::noop());
        loop {
            let mut frame = Pin::new(&mut this.body).poll_frame(&mut nobody);
            if frame.is_pending()
                && let Some(link) = &mut this.link
            {
                link.connection = drive(link.connection.take(), context);
                frame = Pin::new(&mut this.body).poll_frame(&mut nobody);
            }
            match ready!(frame) {
                Some(Ok(frame)) => {
                    // A trailer says nothing to us.
                    if let Ok(chunk) = frame.into_data() {
                        return Poll::Ready(Some(Ok(chunk)));
                    }
                }
                Some(Err(error)) => {
                    this.link = None;
                    return Poll::Ready(Some(Err(root_cause(&error))));
                }
                None => {
                    if let Some(link) = this.link.take() {
                        this.idle.put(link);
                    }
                    return Poll::Ready(None);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_and_proxies_are_left_to_reqwest() {
        let proxies = Matcher::builder()
            .http("http://proxy:3128")
            .no("near.example")
            .build();
        for (endpoint, direct) in [
            ("http://127.0.0.1:8080/v1/responses", true),
            ("http://localhost/v1/responses", true),
            ("http://near.example/v1/responses", true),
            ("http://far.example/v1/responses", false),
            ("https://near.example/v1/responses", false),
        ] {
            let uri = endpoint.parse().unwrap();
            let url = endpoint.parse().unwrap();
            assert_eq!(is_reachable(&url, &uri, &proxies), direct, "{endpoint}");
        }
        let far = "http://far.example/v1/responses";
        let none = Matcher::builder().build();
        assert!(is_reachable(
            &far.parse().unwrap(),
            &far.parse().unwrap(),
            &none
        ));
    }
}
