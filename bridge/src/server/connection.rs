//! The accept loop: a slot and a lane for each connection, and the way out for all of them.

use std::{future::Future, net::SocketAddr, num::NonZero, pin::pin, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time,
};

use super::{
    State,
    front::Front,
    guard::Guard,
    lane::{Lane, Lanes},
    routes,
};
use crate::metrics::Metrics;

/// After a failed accept (out of file descriptors, most likely): trying again at once would only burn the processor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `shutdown`, then lets open answers end within the grace; what is still open then is cut.
///
/// `threads`: how many lanes there may be, this thread's among them.
pub(super) async fn serve(
    listener: TcpListener,
    state: Arc<State>,
    threads: NonZero<usize>,
    shutdown: impl Future<Output = ()>,
) {
    let slots = Slots::new(state.config.limits.max_connections, state.metrics.clone());
    let front = Arc::new(Front {
        guard: Guard::new(&state.config.listen),
        routes: routes::service(&state),
        state: Arc::clone(&state),
    });
    let mut lane = Lane::new(Arc::clone(&front));
    let mut others = Lanes::new(front, threads);
    let mut shutdown = pin!(shutdown);

    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = slots.accept(&listener) => accepted,
            // What an ended connection held is given back at once, not at the next one's coming.
            () = lane.reap() => continue,
        };
        if let Some(Accepted { stream, peer, slot }) = others.take(accepted, lane.load()) {
            lane.start(stream, peer, slot);
        }
    }

    // A refused connection is what Codex waits out; an accepted and idle one it would not.
    drop(listener);
    state.draining.begin();
    let others = others.end();
    lane.drain().await;
    others.await;
}

/// A connection that nobody serves yet.
pub(super) struct Accepted {
    pub(super) stream: TcpStream,
    pub(super) peer: SocketAddr,
    pub(super) slot: Slot,
}

/// As many connections as may be open; the next one waits in the listener's queue.
struct Slots {
    free: Arc<Semaphore>,
    metrics: Metrics,
}

/// One open connection.
pub(super) struct Slot {
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

    async fn accept(&self, listener: &TcpListener) -> Accepted {
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
                    return Accepted {
                        stream,
                        peer,
                        slot: Slot::new(permit, self.metrics.clone()),
                    };
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
