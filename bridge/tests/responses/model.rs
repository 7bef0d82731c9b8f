//! The model server behind the bridge. Each request becomes a [`Turn`] in the test's hands, which answers it when and as
//! it likes; what is sent comes out of a channel, so a chunk that was not sent is a gate that is closed.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderName, Request, Response, Uri};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{
    net::{TcpListener, TcpSocket},
    sync::{mpsc, oneshot},
};

use crate::{event, scripted, support::soon};

/// Where requests for a response go.
const TURNS: &str = "/v1/responses";

type Answer = Response<BoxBody<Bytes, io::Error>>;

/// What the server says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Answers `/props`.
    Llama,
    /// A native Responses server: it does not know `/props`.
    Native,
}

/// An address that refuses connections until it is opened.
pub(crate) struct Shut {
    pub(crate) address: SocketAddr,
    socket: TcpSocket,
}

impl Shut {
    pub(crate) fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = socket.local_addr().unwrap();
        Self { address, socket }
    }

    pub(crate) fn open(self, kind: Kind) -> Model {
        Model::serve(self.socket.listen(64).unwrap(), kind)
    }
}

pub(crate) struct Model {
    pub(crate) address: SocketAddr,
    turns: mpsc::UnboundedReceiver<Turn>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    connections: AtomicUsize,
    probes: AtomicUsize,
    turns: AtomicUsize,
}

impl Model {
    pub(crate) fn start(kind: Kind) -> Self {
        Shut::new().open(kind)
    }

    fn serve(listener: TcpListener, kind: Kind) -> Self {
        let address = listener.local_addr().unwrap();
        let (sender, turns) = mpsc::unbounded_channel();
        let counts = Arc::new(Counts::default());
        let counter = Arc::clone(&counts);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                let (sender, counter) = (sender.clone(), Arc::clone(&counter));
                let is_new = AtomicBool::new(true);
                let service = service_fn(move |request: Request<Incoming>| {
                    if request.uri().path() == TURNS && is_new.swap(false, Ordering::SeqCst) {
                        counter.connections.fetch_add(1, Ordering::SeqCst);
                    }
                    let (sender, counter) = (sender.clone(), Arc::clone(&counter));
                    async move { Ok::<_, Infallible>(answer(request, kind, &sender, &counter).await) }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self {
            address,
            turns,
            counts,
        }
    }

    /// The next request for a response.
    pub(crate) async fn turn(&mut self) -> Turn {
        soon(self.turns.recv()).await.unwrap()
    }

    /// Requests for a response so far.
    pub(crate) fn asked(&self) -> usize {
        self.counts.turns.load(Ordering::SeqCst)
    }

    /// Requests of any kind so far.
    pub(crate) fn seen(&self) -> usize {
        self.asked() + self.counts.probes.load(Ordering::SeqCst)
    }

    /// Connections that carried a request for a response.
    pub(crate) fn connections(&self) -> usize {
        self.counts.connections.load(Ordering::SeqCst)
    }
}

async fn answer(
    request: Request<Incoming>,
    kind: Kind,
    sender: &mpsc::UnboundedSender<Turn>,
    counts: &Counts,
) -> Answer {
    let (head, body) = request.into_parts();
    if head.uri.path() != TURNS {
        counts.probes.fetch_add(1, Ordering::SeqCst);
        return match (head.uri.path(), kind) {
            ("/props", Kind::Llama) => json(200, &scripted::props()),
            ("/v1/models", _) => json(200, &scripted::list()),
            _ => json(404, &Value::Null),
        };
    }
    counts.turns.fetch_add(1, Ordering::SeqCst);
    let body = body.collect().await.unwrap().to_bytes();
    let (answer, answered) = oneshot::channel();
    let turn = Turn {
        uri: head.uri,
        headers: head.headers,
        body: String::from_utf8(body.to_vec()).unwrap(),
        answer,
    };
    sender.send(turn).unwrap();
    match answered.await {
        Ok(answer) => answer,
        // The test has let go of it.
        Err(_) => std::future::pending().await,
    }
}

/// One request for a response, not yet answered.
pub(crate) struct Turn {
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    /// The text as it arrived.
    pub(crate) body: String,
    answer: oneshot::Sender<Answer>,
}

impl Turn {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    pub(crate) fn refuse(self, status: u16, body: &Value) {
        self.answer(json(status, body));
    }

    pub(crate) fn answer(self, answer: Answer) {
        let _ = self.answer.send(answer);
    }

    /// Answers with an event stream that the test feeds.
    pub(crate) fn stream(self) -> Feed {
        self.stream_with(&[])
    }

    pub(crate) fn stream_with(self, headers: &[(&str, &str)]) -> Feed {
        let (feed, mut answer) = endless("text/event-stream");
        for (name, value) in headers {
            let name: HeaderName = name.parse().unwrap();
            answer.headers_mut().append(name, value.parse().unwrap());
        }
        self.answer(answer);
        feed
    }

    /// Answers with a whole turn.
    pub(crate) async fn say(self, text: &str) {
        self.stream().events(&event::turn(text)).await;
    }

    /// The bridge has gone away.
    pub(crate) async fn abandoned(mut self) {
        soon(self.answer.closed()).await;
    }
}

/// The body of an answer; dropped, it ends.
pub(crate) struct Feed(mpsc::Sender<io::Result<Bytes>>);

impl Feed {
    pub(crate) async fn events(&self, events: &[Value]) {
        for event in events {
            self.bytes(event::frame(event)).await;
        }
    }

    pub(crate) async fn bytes(&self, bytes: impl Into<Bytes>) {
        soon(self.0.send(Ok(bytes.into()))).await.unwrap();
    }

    /// The same for a bridge that may go away meanwhile; false once it has.
    pub(crate) async fn try_events(&self, events: &[Value]) -> bool {
        for event in events {
            let chunk = Ok(event::frame(event).into());
            if soon(self.0.send(chunk)).await.is_err() {
                return false;
            }
        }
        true
    }

    /// What was sent so far has been taken.
    pub(crate) fn is_taking(&self) -> bool {
        self.0.capacity() > 0
    }

    /// Breaks the connection in the middle of the body.
    pub(crate) async fn cut(self) {
        let fault = io::Error::other("cut");
        soon(self.0.send(Err(fault))).await.unwrap();
    }

    /// The bridge has gone away.
    pub(crate) async fn closed(&self) {
        soon(self.0.closed()).await;
    }
}

/// An answer whose body the test feeds.
pub(crate) fn endless(content_type: &str) -> (Feed, Answer) {
    let (sender, receiver) = mpsc::channel::<io::Result<Bytes>>(1);
    let frames = stream::unfold(receiver, |mut receiver| async move {
        let chunk = receiver.recv().await?;
        Some((chunk.map(Frame::data), receiver))
    });
    let answer = Response::builder().header("content-type", content_type);
    let body = BodyExt::boxed(StreamBody::new(frames));
    (Feed(sender), answer.body(body).unwrap())
}

pub(crate) fn json(status: u16, body: &Value) -> Answer {
    plain(status, "application/json", &body.to_string())
}

pub(crate) fn plain(status: u16, content_type: &str, body: &str) -> Answer {
    let body = Full::new(Bytes::copy_from_slice(body.as_bytes()));
    Response::builder()
        .status(status)
        .header("content-type", content_type)
        .body(body.map_err(|never| match never {}).boxed())
        .unwrap()
}
