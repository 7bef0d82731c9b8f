//! The accept loop: a slot, a socket and a header timeout for each connection, and the way out for all of them.

use std::{future::Future, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time,
};

use super::{State, front::Front, guard::Guard, linger, routes};
use crate::metrics::Metrics;

/// After the grace: time for a stream to say that it failed, and for a client to read it.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// After a failed accept (out of file descriptors, most likely): trying again at once would only burn the processor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `shutdown`, then lets open answers end within the grace; what is still open then is cut.
pub(super) async fn serve(
    listener: TcpListener,
    state: Arc<State>,
    shutdown: impl Future<Output = ()>,
) {
    let limits = state.config.limits;
    let front = Arc::new(Front {
        guard: Guard::new(&state.config.listen),
        routes: routes::service(&state),
        state: Arc::clone(&state),
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout);
    let slots = Slots::new(limits.max_connections, state.metrics.clone());
    let graceful = GracefulShutdown::new();
    let mut tasks = JoinSet::new();
    let mut shutdown = pin!(shutdown);

    loop {
        let (stream, peer, slot) = tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = slots.accept(&listener) => accepted,
            // What an ended connection held is given back at once, not at the next one's coming.
            Some(_) = tasks.join_next() => continue,
        };
        let front = Arc::clone(&front);
        let service = service_fn(move |request| {
            let front = Arc::clone(&front);
            async move { front.answer(peer, request).await }
        });
        let (socket, returned) = linger::lend(stream);
        let connection = graceful.watch(http.serve_connection(TokioIo::new(socket), service));
        tasks.spawn(async move {
            let _slot = slot;
            if let Err(error) = connection.await {
                tracing::debug!(%peer, %error, "connection ended");
            }
            if let Ok(stream) = returned.await {
                linger::close(stream).await;
            }
        });
    }

    // A refused connection is what Codex waits out; an accepted and idle one it would not.
    drop(listener);
    state.draining.begin();
    let drained = time::timeout(state.config.shutdown_grace, graceful.shutdown()).await;
    if drained.is_err() {
        state.draining.end();
    }
    let ended = async { while tasks.join_next().await.is_some() {} };
    if time::timeout(LAST_WORDS, ended).await.is_err() {
        tracing::info!("cut {} connections", tasks.len());
    }
}

/// As many connections as may be open; the next one waits in the listener's queue.
struct Slots {
    free: Arc<Semaphore>,
    metrics: Metrics,
}

/// One open connection.
struct Slot {
    _permit: OwnedSemaphorePermit,
    metrics: Metrics,
}

impl Slots {
    fn new(most: usize, metrics: Metrics) -> Self {
        Self {
            free: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))),
            metrics,
        }
    }

    async fn accept(&self, listener: &TcpListener) -> (TcpStream, SocketAddr, Slot) {
        let Ok(permit) = Arc::clone(&self.free).acquire_owned().await else {
            // Nobody closes the semaphore.
            return std::future::pending().await;
        };
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    // An event of a few bytes must not wait for the next one.
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(%peer, %error, "TCP_NODELAY");
                    }
                    return (stream, peer, Slot::new(permit, self.metrics.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

impl Slot {
    fn new(permit: OwnedSemaphorePermit, metrics: Metrics) -> Self {
        metrics.connections.inc();
        Self {
            _permit: permit,
            metrics,
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.metrics.connections.dec();
    }
}
