//! Lanes: threads with a runtime of their own, each of which serves its connections from beginning to end.
//!
//! An event crosses from the upstream's connection to the client's without waking another thread, which costs more than
//! all the work on it. So a connection never changes its lane, and its upstream connection is made, used and kept in the
//! same one (`upstream/direct.rs`). The first lane is the thread that accepts; the others begin when they are needed and end
//! when they are not: a Codex or two never need them, a crowd does.

use std::{
    convert::Infallible,
    future::Future,
    io,
    net::{self, SocketAddr},
    num::NonZero,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use http::Request;
use hyper::{
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use tokio::{
    net::TcpStream,
    runtime,
    sync::{
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
        oneshot,
    },
    task::JoinSet,
    time,
};
use warp::reply::Response;

use super::{
    connection::{Accepted, Slot},
    front::{Counted, Front},
    linger,
};

/// After the grace: time for a stream to say that it failed, and for a client to read it.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Connections that a lane has before another one is begun.
const FEW: usize = 8;
/// A lane without connections ends after this, and gives back what it held.
const UNUSED: Duration = Duration::from_secs(1);

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
        let service = service_fn(move |request| {
            let front = Arc::clone(&front);
            async move { front.answer(peer, request).await }
        });
        let (socket, returned) = linger::lend(stream);
        let connection = self.http.serve_connection(TokioIo::new(socket), service);
        let connection = self.graceful.watch(connection);
        self.connections.spawn(async move {
            let _held = held;
            if let Err(error) = connection.await {
                tracing::debug!(%peer, %error, "connection ended");
            }
            if let Ok(stream) = returned.await {
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

/// The lanes beside the one of the thread that accepts.
pub(super) struct Lanes<R> {
    front: Arc<Front<R>>,
    /// How many there may be.
    most: usize,
    open: Vec<Remote>,
}

impl<R: Routes> Lanes<R> {
    /// `threads`: how many lanes there may be, the accepting thread's among them.
    pub(super) fn new(front: Arc<Front<R>>, threads: NonZero<usize>) -> Self {
        Self {
            front,
            most: threads.get() - 1,
            open: Vec::new(),
        }
    }

    /// Hands a connection to the lane that has the fewest. It comes back when that is the caller's own, which has `own`.
    pub(super) fn take(&mut self, accepted: Accepted, own: usize) -> Option<Accepted> {
        self.open.retain(|lane| lane.load.get().is_some());
        let least = |lanes: &Self| {
            let loads = lanes.open.iter().map(|lane| lane.load.get());
            let loads = loads.enumerate();
            loads
                .filter_map(|(index, load)| Some((index, load?)))
                .min_by_key(|(_, load)| *load)
        };
        let fewest = least(self).map_or(own, |(_, load)| load.min(own));
        if fewest >= FEW && self.open.len() < self.most {
            match Remote::begin(Arc::clone(&self.front)) {
                Ok(lane) => self.open.push(lane),
                Err(error) => {
                    tracing::warn!(%error, "no further thread for connections");
                    self.most = self.open.len();
                }
            }
        }
        match least(self) {
            Some((index, load)) if load < own => self.open[index].take(accepted),
            _ => Some(accepted),
        }
    }

    /// Lets every lane drain; ready when all have.
    pub(super) fn end(self) -> impl Future<Output = ()> {
        let ended: Vec<_> = self.open.into_iter().map(|lane| lane.ended).collect();
        async move {
            for lane in ended {
                // An error is a lane that ended in a panic.
                let _ = lane.await;
            }
        }
    }
}

/// A lane on a thread of its own. It drains when this is dropped.
struct Remote {
    connections: UnboundedSender<Handed>,
    load: Load,
    ended: oneshot::Receiver<()>,
}

/// A connection on its way to another thread, detached from the runtime that accepted it.
struct Handed {
    stream: net::TcpStream,
    peer: SocketAddr,
    slot: Slot,
    counted: Counting,
}

impl Remote {
    fn begin<R: Routes>(front: Arc<Front<R>>) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (connections, handed) = unbounded_channel();
        let (end, ended) = oneshot::channel();
        let load = Load::default();
        let shared = load.clone();
        thread::Builder::new()
            .name("lane".to_owned())
            .spawn(move || {
                runtime.block_on(run(Lane::new(front), handed, shared));
                // Nobody waits when the program ends at once.
                let _ = end.send(());
            })?;
        Ok(Self {
            connections,
            load,
            ended,
        })
    }

    /// The connection comes back when the lane has ended.
    fn take(&self, accepted: Accepted) -> Option<Accepted> {
        let Some(counted) = self.load.one_more() else {
            return Some(accepted);
        };
        let Accepted { stream, peer, slot } = accepted;
        let stream = match stream.into_std() {
            Ok(stream) => stream,
            Err(error) => {
                tracing::debug!(%peer, %error, "connection lost");
                return None;
            }
        };
        let handed = Handed {
            stream,
            peer,
            slot,
            counted,
        };
        // It cannot be sent to a lane that ended in a panic.
        let Handed {
            stream, peer, slot, ..
        } = self.connections.send(handed).err()?.0;
        let stream = TcpStream::from_std(stream).ok()?;
        Some(Accepted { stream, peer, slot })
    }
}

async fn run<R: Routes>(mut lane: Lane<R>, mut connections: UnboundedReceiver<Handed>, load: Load) {
    loop {
        let handed = tokio::select! {
            handed = connections.recv() => handed,
            () = lane.reap() => continue,
            () = time::sleep(UNUSED), if lane.load() == 0 => {
                if load.close() {
                    return;
                }
                continue;
            }
        };
        let Some(Handed {
            stream,
            peer,
            slot,
            counted,
        }) = handed
        else {
            break;
        };
        match TcpStream::from_std(stream) {
            Ok(stream) => lane.start(stream, peer, (slot, counted)),
            Err(error) => tracing::debug!(%peer, %error, "connection lost"),
        }
    }
    lane.drain().await;
}

/// How many connections a lane has, those on their way to it among them.
#[derive(Debug, Clone, Default)]
struct Load(Arc<AtomicUsize>);

/// The load of a lane that takes no more.
const CLOSED: usize = usize::MAX;

impl Load {
    /// `None`: the lane takes no more.
    fn get(&self) -> Option<usize> {
        Some(self.0.load(Relaxed)).filter(|load| *load != CLOSED)
    }

    /// Counts a connection until what comes back is dropped; `None` when the lane takes no more.
    fn one_more(&self) -> Option<Counting> {
        let more = |load| (load != CLOSED).then(|| load + 1);
        self.0.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(Counting(self.clone()))
    }

    /// The lane takes no more, unless something is on its way to it.
    fn close(&self) -> bool {
        let closed = self.0.compare_exchange(0, CLOSED, Relaxed, Relaxed);
        closed.is_ok()
    }
}

/// One connection in a lane's load.
#[derive(Debug)]
struct Counting(Load);

impl Drop for Counting {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_closes_only_when_nothing_is_on_its_way() {
        let load = Load::default();
        let counted = load.one_more().unwrap();
        assert!(!load.close());
        assert_eq!(load.get(), Some(1));
        drop(counted);
        assert!(load.close());
        assert_eq!(load.get(), None);
        assert!(load.one_more().is_none());
    }
}
