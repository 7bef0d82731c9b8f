//! The lanes beside the accepting thread's: begun when there are too many connections for one, ended when unused.

use std::{
    future::Future,
    io,
    net::{self, SocketAddr},
    num::NonZero,
    sync::Arc,
    thread,
    time::Duration,
};

use tokio::{
    net::TcpStream,
    runtime,
    sync::{
        // Bounded by `limits.maxConnections`: what is sent holds its slot.
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
        oneshot,
    },
    time,
};

use super::{
    Lane, Routes,
    load::{Counting, Load},
};
use crate::server::{
    connection::{Accepted, Slot},
    front::Front,
};

/// Connections that a lane has before another one is begun.
const FEW: usize = 8;
/// A lane without connections ends after this, and gives back what it held.
const UNUSED: Duration = Duration::from_secs(1);

/// The lanes beside the one of the thread that accepts.
pub(in crate::server) struct Lanes<R> {
    front: Arc<Front<R>>,
    /// How many there may be.
    most: usize,
    open: Vec<Remote>,
}

impl<R: Routes> Lanes<R> {
    /// `threads`: how many lanes there may be, the accepting thread's among them.
    pub(in crate::server) fn new(front: Arc<Front<R>>, threads: NonZero<usize>) -> Self {
        Self {
            front,
            most: threads.get() - 1,
            open: Vec::new(),
        }
    }

    /// Hands a connection to the lane that has the fewest. It comes back when that is the caller's own, which has `own`.
    pub(in crate::server) fn take(&mut self, accepted: Accepted, own: usize) -> Option<Accepted> {
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
    pub(in crate::server) fn end(self) -> impl Future<Output = ()> {
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
