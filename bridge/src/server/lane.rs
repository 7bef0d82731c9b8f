//! Lanes: threads with a runtime of their own, each of which serves its connections from beginning to end.
//!
//! An event crosses from the upstream's connection to the client's without waking another thread, which costs more than
//! all the work on it. So a connection never changes its lane, and its upstream connection is made, used and kept in the
//! same one (`upstream/direct.rs`). The first lane is the thread that accepts; the others begin when they are needed and end
//! when they are not: a Codex or two never need them, a crowd does.

mod load;
mod others;

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use http::Request;
use hyper::{
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use protocol::Ids;
use tokio::{net::TcpStream, task::JoinSet, time};
use warp::reply::Response;

pub(super) use self::others::Lanes;
use super::{
    error::Failure,
    front::{Counted, Front},
    linger,
};

/// After the grace: time for a stream to say that it failed, and for a client to read it.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What answers requests once the front has let them in.
pub(super) trait Routes:
    Service<Request<Counted>, Response = Response, Error = Infallible, Future: Send>
    + Send
    + Sync
    + 'static
{
}

impl<R> Routes for R where
    R: Service<Request<Counted>, Response = Response, Error = Infallible, Future: Send>
        + Send
        + Sync
        + 'static
{
}

/// The connections of one thread.
pub(super) struct Lane<R> {
    front: Arc<Front<R>>,
    http: http1::Builder,
    graceful: GracefulShutdown,
    connections: JoinSet<()>,
}

impl<R: Routes> Lane<R> {
    pub(super) fn new(front: Arc<Front<R>>) -> Self {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(front.state.config.limits.header_timeout);
        Self {
            front,
            http,
            graceful: GracefulShutdown::new(),
            connections: JoinSet::new(),
        }
    }

    /// How many connections are open.
    pub(super) fn load(&self) -> usize {
        self.connections.len()
    }

    /// Serves a connection beside this call; `held` is dropped when it has ended.
    pub(super) fn start(&mut self, stream: TcpStream, peer: SocketAddr, held: impl Send + 'static) {
        let front = Arc::clone(&self.front);
        let draining = front.state.draining.clone();
        // Shared by the connection's open requests, and by nobody else but this call's task.
        let alone = Arc::new(());
        let open = Arc::downgrade(&alone);
        let service = service_fn(move |request| {
            let (front, open) = (Arc::clone(&front), open.upgrade());
            async move { front.answer(peer, request, open).await }
        });
        let (socket, loan) = linger::lend(stream);
        let connection = self.http.serve_connection(TokioIo::new(socket), service);
        let connection = self.graceful.watch(connection);
        self.connections.spawn(async move {
            let _held = held;
            let mut connection = Box::pin(connection);
            let ended = tokio::select! {
                biased;
                ended = &mut connection => Some(ended),
                () = draining.ending() => None,
            };
            let has_half_a_head = Arc::strong_count(&alone) == 1 && loan.is_unanswered();
            let ended = match ended {
                // hyper would go on waiting for the rest of it, until it is cut.
                None if has_half_a_head => {
                    drop(connection);
                    if let Ok(stream) = loan.returned.await {
                        let id = Ids::random().make("req");
                        linger::say(stream, &Failure::stopping().to_bytes(&id)).await;
                    }
                    return;
                }
                None => connection.await,
                // What has ended still holds the socket and its request.
                Some(ended) => {
                    drop(connection);
                    ended
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%peer, %error, "connection ended");
            }
            if let Ok(stream) = loan.returned.await {
                linger::close(stream).await;
            }
        });
    }

    /// Gives back what the next connection to end held; waits for ever while there is none.
    pub(super) async fn reap(&mut self) {
        if self.connections.join_next().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// Lets open answers end within the grace, and cuts what is open then.
    pub(super) async fn drain(mut self) {
        let state = &self.front.state;
        let grace = state.config.shutdown_grace;
        if time::timeout(grace, self.graceful.shutdown())
            .await
            .is_err()
        {
            state.draining.end();
        }
        let ended = async { while self.connections.join_next().await.is_some() {} };
        if time::timeout(LAST_WORDS, ended).await.is_err() {
            tracing::info!("cut {} connections", self.connections.len());
        }
    }
}
