//! The fixture over Streamable HTTP, in the test's own process.
//!
//! It insists on its session id after `initialize`, answers `tools/call` as an event stream and all else as JSON, and
//! refuses `GET`: the three things that a relay in between can get wrong.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{net::TcpListener, task::JoinSet};

/// The one session the fixture gives out.
pub const SESSION: &str = "fixture-session";

/// One HTTP request the fixture got.
#[derive(Debug, Clone)]
pub struct Exchange {
    pub method: Method,
    pub path: String,
    pub headers: HeaderMap,
    /// Null for a request without body.
    pub message: Value,
}

#[derive(Debug)]
pub struct Fixture {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Exchange>>>,
    _tasks: JoinSet<()>,
}

impl Fixture {
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .context("bind a loopback port")?;
        let address = listener.local_addr()?;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&seen)));
        Ok(Self {
            address,
            seen,
            _tasks: tasks,
        })
    }

    /// `http://127.0.0.1:PORT`; any path below it is the same server.
    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn seen(&self) -> Vec<Exchange> {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The `tools/call` parameters, in order.
    pub fn calls(&self) -> Vec<Value> {
        let seen = self.seen();
        let calls = seen
            .iter()
            .filter(|exchange| exchange.message["method"] == "tools/call");
        calls
            .map(|exchange| exchange.message["params"].clone())
            .collect()
    }
}

async fn accept(listener: TcpListener, seen: Arc<Mutex<Vec<Exchange>>>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let seen = Arc::clone(&seen);
        connections.spawn(async move {
            let service = service_fn(|request| answer(Arc::clone(&seen), request));
            // An error here is a client that left.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn answer(
    seen: Arc<Mutex<Vec<Exchange>>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let bytes = body.collect().await?.to_bytes();
    let message: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let session = head
        .headers
        .get("mcp-session-id")
        .is_some_and(|session| session == SESSION);
    let method = head.method.clone();
    let exchange = Exchange {
        method: head.method,
        path: head.uri.path().to_owned(),
        headers: head.headers,
        message: message.clone(),
    };
    seen.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(exchange);

    let opening = message["method"] == "initialize";
    let reply = Response::builder();
    let reply = match (method, super::answer(&message)) {
        (Method::POST | Method::DELETE, _) if !session && !opening => {
            reply.status(StatusCode::NOT_FOUND).body(Full::default())
        }
        (Method::POST, None) => reply.status(StatusCode::ACCEPTED).body(Full::default()),
        (Method::POST, Some(answer)) if message["method"] == "tools/call" => {
            let frame = format!("event: message\ndata: {answer}\n\n");
            reply
                .header(header::CONTENT_TYPE, "text/event-stream")
                .body(frame.into())
        }
        (Method::POST, Some(answer)) => {
            let reply = reply
                .header(header::CONTENT_TYPE, "application/json")
                .header("mcp-session-id", SESSION);
            reply.body(answer.to_string().into())
        }
        (Method::DELETE, _) => reply.body(Full::default()),
        _ => reply
            .status(StatusCode::METHOD_NOT_ALLOWED)
            .body(Full::default()),
    };
    Ok(reply?)
}
