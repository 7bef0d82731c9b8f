//! A response body made of chunks that may wait for a gate or cut the connection, and that reports how it ended.

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use tokio::sync::watch;

use super::End;

/// One step of a streamed answer.
#[derive(Debug, Clone)]
pub enum Chunk {
    Bytes(Bytes),
    /// Nothing further leaves until the gate is open.
    Wait(Gate),
    /// The connection breaks here, in the middle of the body.
    Cut,
}

/// Closed until opened, then open for ever. Clones are the same gate.
#[derive(Debug, Clone)]
pub struct Gate(watch::Sender<bool>);

impl Gate {
    pub fn closed() -> Self {
        Self(watch::Sender::new(false))
    }

    pub fn open(&self) {
        self.0.send_replace(true);
    }

    async fn passed(&self) {
        // Cannot fail: `self` keeps the sender alive.
        let _ = self.0.subscribe().wait_for(|open| *open).await;
    }
}

/// Why hyper sees an error: the script wants the connection broken.
#[derive(Debug)]
pub(super) struct Cut;

impl std::fmt::Display for Cut {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("cut by the script")
    }
}

impl std::error::Error for Cut {}

/// Reports the end of an answer; dropped while still open, it says that the client left.
#[derive(Debug)]
pub(super) struct Ending(watch::Sender<End>);

impl Ending {
    pub(super) fn new(end: watch::Sender<End>) -> Self {
        Self(end)
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.send_if_modified(|end| {
            let open = *end == End::Open;
            if open {
                *end = End::ClientLeft;
            }
            open
        });
    }
}

pub(super) fn stream(chunks: Vec<Chunk>, ending: Ending) -> UnsyncBoxBody<Bytes, Cut> {
    let frames = stream::unfold(
        (chunks.into_iter(), ending),
        |(mut chunks, ending)| async move {
            loop {
                let next = match chunks.next() {
                    Some(Chunk::Bytes(bytes)) => Ok(Frame::data(bytes)),
                    Some(Chunk::Wait(gate)) => {
                        gate.passed().await;
                        continue;
                    }
                    Some(Chunk::Cut) => {
                        // hyper sends what came before when the body has nothing ready, and throws it away on an error.
                        tokio::task::yield_now().await;
                        Err(Cut)
                    }
                    None => {
                        ending.0.send_replace(End::Sent);
                        return None;
                    }
                };
                return Some((next, (chunks, ending)));
            }
        },
    );
    StreamBody::new(frames).boxed_unsync()
}
