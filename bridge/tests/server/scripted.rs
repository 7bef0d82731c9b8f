//! A server behind the bridge that does as it is told, one gate at a time.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{net::TcpListener, sync::mpsc};

use crate::support::soon;

pub(crate) type Answer = Response<BoxBody<Bytes, Infallible>>;

/// Listens for as long as it lives.
pub(crate) struct Scripted {
    pub(crate) address: SocketAddr,
    requests: mpsc::UnboundedReceiver<Head>,
    seen: Arc<AtomicUsize>,
}

/// What arrived, but for the body.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
}

impl Scripted {
    pub(crate) async fn start<F, A>(script: F) -> Self
    where
        F: Fn(Request<Incoming>) -> A + Send + Sync + 'static,
        A: Future<Output = Answer> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, requests) = mpsc::unbounded_channel();
        let seen = Arc::new(AtomicUsize::new(0));
        let (script, counter) = (Arc::new(script), Arc::clone(&seen));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (script, sender) = (Arc::clone(&script), sender.clone());
                let counter = Arc::clone(&counter);
                let service = service_fn(move |request: Request<Incoming>| {
                    counter.fetch_add(1, Ordering::SeqCst);
                    let _ = sender.send(Head {
                        method: request.method().clone(),
                        uri: request.uri().clone(),
                        headers: request.headers().clone(),
                    });
                    let answer = script(request);
                    async move { Ok::<_, Infallible>(answer.await) }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self {
            address,
            requests,
            seen,
        }
    }

    /// Answers every request in the same way.
    pub(crate) async fn always(status: u16, body: Value) -> Self {
        Self::start(move |_| {
            let answer = json(status, &body);
            async move { answer }
        })
        .await
    }

    /// A llama-server in small.
    pub(crate) async fn llama() -> Self {
        Self::start(|request| async move {
            match request.uri().path() {
                "/props" => json(200, &props()),
                "/v1/models" => json(200, &list()),
                _ => json(404, &Value::Null),
            }
        })
        .await
    }

    pub(crate) async fn request(&mut self) -> Head {
        soon(self.requests.recv()).await.unwrap()
    }

    /// How many requests came so far.
    pub(crate) fn seen(&self) -> usize {
        self.seen.load(Ordering::SeqCst)
    }
}

pub(crate) fn props() -> Value {
    serde_json::json!({
        "default_generation_settings": {"params": {}, "n_ctx": 8192},
        "model_alias": "tiny",
        "modalities": {"vision": false},
        "chat_template_caps": {"supports_parallel_tool_calls": true},
    })
}

pub(crate) fn list() -> Value {
    serde_json::json!({
        "models": [{"name": "tiny", "model": "tiny"}],
        "object": "list",
        "data": [{"id": "tiny", "object": "model", "owned_by": "llamacpp", "meta": {"n_ctx": 8192}}],
    })
}

pub(crate) fn json(status: u16, body: &Value) -> Answer {
    Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .body(text(&body.to_string()))
        .unwrap()
}

pub(crate) fn text(body: &str) -> BoxBody<Bytes, Infallible> {
    Full::new(Bytes::copy_from_slice(body.as_bytes())).boxed()
}

/// A body whose chunks come out of a channel; the sender sees when the reader is gone.
pub(crate) fn gated() -> (mpsc::Sender<&'static str>, BoxBody<Bytes, Infallible>) {
    let (sender, receiver) = mpsc::channel(1);
    let frames = stream::unfold(receiver, |mut receiver: mpsc::Receiver<&str>| async move {
        let chunk = receiver.recv().await?;
        Some((
            Ok(Frame::data(Bytes::from_static(chunk.as_bytes()))),
            receiver,
        ))
    });
    (sender, BodyExt::boxed(StreamBody::new(frames)))
}
