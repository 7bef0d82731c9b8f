//! A model server whose every answer, chunk and moment the test chooses.
//!
//! It listens on loopback, hands each `POST …/responses` to the script, keeps what it was asked, and notices when the
//! client leaves in the middle. Whatever else is asked (`/props`, `/v1/models`, `/health`) is answered as a plain native
//! Responses server would.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch, task::JoinSet, time};

mod body;
mod reply;

pub use body::{Chunk, Gate};
pub use reply::Reply;

/// How long a test waits for something that must happen.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What one request gets.
#[derive(Debug, Clone)]
pub enum Answer {
    Stream(Vec<Chunk>),
    Status {
        status: u16,
        headers: Vec<(&'static str, String)>,
        body: Value,
    },
    /// Takes the request and says nothing, not even a status.
    Hang,
}

impl Answer {
    pub fn status(status: u16, body: Value) -> Self {
        Self::Status {
            status,
            headers: Vec::new(),
            body,
        }
    }
}

/// One request the upstream got.
#[derive(Debug, Clone)]
pub struct Asked {
    pub headers: HeaderMap,
    pub body: Value,
    end: watch::Receiver<End>,
}

impl Asked {
    /// Waits until the answer has been sent whole, or the client has left.
    pub async fn end(&self) -> Result<End> {
        let mut end = self.end.clone();
        let seen = time::timeout(PATIENCE, end.wait_for(|end| *end != End::Open)).await;
        Ok(*seen.context("the answer is still open")??)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Open,
    Sent,
    ClientLeft,
}

type Router = dyn Fn(&Asked) -> Answer + Send + Sync;

#[derive(Debug)]
pub struct Upstream {
    address: SocketAddr,
    asked: watch::Receiver<Vec<Asked>>,
    other: Arc<Mutex<Vec<String>>>,
    /// Dropping it closes the listener and every connection.
    _tasks: JoinSet<()>,
}

impl Upstream {
    /// Gives these answers in this order; a request too many gets a 400, which Codex does not repeat.
    pub async fn in_order(answers: Vec<Answer>) -> Result<Self> {
        Self::routed(queue(answers)).await
    }

    /// Chooses the answer by looking at the request, for clients that ask several things at once.
    pub async fn routed(router: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .context("bind a loopback port")?;
        Self::serve(listener, Arc::new(router))
    }

    /// The same on an address that was free a moment ago ([`vacant`]).
    pub async fn in_order_on(address: SocketAddr, answers: Vec<Answer>) -> Result<Self> {
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("bind {address}"))?;
        Self::serve(listener, Arc::new(queue(answers)))
    }

    fn serve(listener: TcpListener, router: Arc<Router>) -> Result<Self> {
        let address = listener.local_addr()?;
        let (writer, asked) = watch::channel(Vec::new());
        let other = Arc::new(Mutex::new(Vec::new()));
        let server = Arc::new(Server {
            router,
            asked: writer,
            other: Arc::clone(&other),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, server));
        Ok(Self {
            address,
            asked,
            other,
            _tasks: tasks,
        })
    }

    /// `http://127.0.0.1:PORT/v1`
    pub fn base_url(&self) -> String {
        base_url(self.address)
    }

    /// What it was asked so far, in order of arrival.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.borrow().clone()
    }

    /// Method and path of every request that was not `POST …/responses`.
    pub fn other(&self) -> Vec<String> {
        lock(&self.other).clone()
    }

    /// Waits until it has been asked `count` times.
    pub async fn wait_for(&self, count: usize) -> Result<Vec<Asked>> {
        let mut asked = self.asked.clone();
        match time::timeout(PATIENCE, asked.wait_for(|asked| asked.len() >= count)).await {
            Ok(asked) => Ok(asked?.clone()),
            Err(_) => bail!(
                "the upstream was asked {} times, not {count}",
                self.asked().len()
            ),
        }
    }
}

/// A loopback address on which nothing listens (yet).
pub async fn vacant() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0").await?.local_addr()?)
}

pub fn base_url(address: SocketAddr) -> String {
    format!("http://{address}/v1")
}

fn queue(answers: Vec<Answer>) -> impl Fn(&Asked) -> Answer + Send + Sync + use<> {
    let answers = Mutex::new(VecDeque::from(answers));
    move |_: &Asked| lock(&answers).pop_front().unwrap_or_else(exhausted)
}

fn exhausted() -> Answer {
    let message = "the script holds no further answer";
    Answer::status(
        400,
        json!({"error": {"message": message, "type": "invalid_request_error", "param": null, "code": null}}),
    )
}

struct Server {
    router: Arc<Router>,
    asked: watch::Sender<Vec<Asked>>,
    other: Arc<Mutex<Vec<String>>>,
}

async fn accept(listener: TcpListener, server: Arc<Server>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let server = Arc::clone(&server);
        connections.spawn(async move {
            let service = service_fn(|request| answer(Arc::clone(&server), request));
            // An error here is a client that left or a cut that the script asked for.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

type Body = UnsyncBoxBody<Bytes, body::Cut>;

async fn answer(server: Arc<Server>, request: Request<Incoming>) -> Result<Response<Body>> {
    let (head, incoming) = request.into_parts();
    if head.method != Method::POST || !head.uri.path().ends_with("/responses") {
        lock(&server.other).push(format!("{} {}", head.method, head.uri.path()));
        return plain(head.uri.path());
    }
    let bytes = incoming.collect().await?.to_bytes();
    let body = serde_json::from_slice(&bytes).context("a request body that is not JSON")?;
    let (writer, end) = watch::channel(End::Open);
    let asked = Asked {
        headers: head.headers,
        body,
        end,
    };
    let answer = (server.router)(&asked);
    server.asked.send_modify(|all| all.push(asked));
    let ending = body::Ending::new(writer);
    match answer {
        Answer::Stream(chunks) => {
            let head = Response::builder().header(header::CONTENT_TYPE, "text/event-stream");
            Ok(head.body(body::stream(chunks, ending))?)
        }
        Answer::Status {
            status,
            headers,
            body,
        } => {
            let mut head = Response::builder()
                .status(status)
                .header(header::CONTENT_TYPE, "application/json");
            for (name, value) in headers {
                head = head.header(name, value);
            }
            Ok(head.body(body::stream(
                vec![Chunk::Bytes(body.to_string().into())],
                ending,
            ))?)
        }
        Answer::Hang => {
            let _open = ending;
            std::future::pending().await
        }
    }
}

fn plain(path: &str) -> Result<Response<Body>> {
    let (status, body) = match path {
        "/health" => (StatusCode::OK, json!({"status": "ok"})),
        "/v1/models" => (
            StatusCode::OK,
            json!({"object": "list", "data": [{"id": "local-model", "object": "model"}]}),
        ),
        _ => (
            StatusCode::NOT_FOUND,
            json!({"error": {"message": "no such route", "type": "not_found"}}),
        ),
    };
    let full = http_body_util::Full::new(Bytes::from(body.to_string()));
    let head = Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, "application/json");
    Ok(head.body(full.map_err(|never| match never {}).boxed_unsync())?)
}

/// A panicking test has its own report; the data is still good.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
