//! [`ResponseStream`]: pulls the upstream's bytes through the rewriter whenever the client's connection asks for more.
//!
//! Dropping it drops the upstream's connection and so cancels the generation. It holds two timers and reads them
//! lazily: the life sign for the client, and the longest silence allowed to the upstream.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use prometheus_client::metrics::gauge::Gauge;
use protocol::ApiError;
use tokio::time::{Instant, Sleep, sleep_until};

use super::{
    guard::Guard,
    rewriter::{Rewriter, upstream_error},
};
use crate::translate::Translation;

/// An upstream's body. A fault is told in words.
pub type Body = Pin<Box<dyn Stream<Item = Result<Bytes, String>> + Send + Sync>>;

/// An upstream that has answered, and what was learnt of it on the way.
pub struct Connected {
    pub body: Body,
    /// The translation of the request that was really sent.
    pub translation: Translation,
    /// See [`super::Settings::repair`].
    pub repair: bool,
    pub context: Option<u64>,
}

/// The wait for an upstream that is not ready yet.
pub type Connecting = Pin<Box<dyn Future<Output = Result<Connected, ApiError>> + Send + Sync>>;

impl std::fmt::Debug for Connected {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Connected")
            .field("repair", &self.repair)
            .finish_non_exhaustive()
    }
}

enum Source {
    Connecting(Connecting),
    Open(Body),
    Closed,
}

/// Ready when the program must end before this stream does.
pub type Stopping = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

/// Called once, when the stream has ended or was dropped.
pub type OnEnd = Box<dyn FnOnce(&Guard, &Rewriter) + Send + Sync>;

/// What the client is sent, a few whole frames at a time.
pub struct ResponseStream {
    source: Source,
    guard: Guard,
    rewriter: Rewriter,
    keep_alive: Option<Lazy>,
    idle: Option<Lazy>,
    stopping: Option<Stopping>,
    shown: Option<Shown>,
    on_first: Option<Box<dyn FnOnce() + Send + Sync>>,
    on_end: Option<OnEnd>,
    first: First,
}

/// How far the first bytes have come: they are not kept back for what came with them, since hyper writes only when there
/// is no more to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First {
    Awaited,
    /// hyper has them, and must write them before it is given more.
    Given,
    Written,
}

/// One stream's part of a gauge that all share.
struct Shown {
    gauge: Gauge,
    bytes: i64,
}

impl Shown {
    fn show(&mut self, held: usize) {
        let held = i64::try_from(held).unwrap_or(i64::MAX);
        if held != self.bytes {
            self.gauge.inc_by(held - self.bytes);
            self.bytes = held;
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.show(0);
    }
}

/// Enough for one write; more waits for the client.
const BATCH: usize = 64 << 10;

impl ResponseStream {
    /// `keep_alive`: silence after which the client gets a life sign. `idle`: silence after which the upstream is given
    /// up. `None` switches either off.
    pub fn new(
        source: Connecting,
        guard: Guard,
        rewriter: Rewriter,
        keep_alive: Option<Duration>,
        idle: Option<Duration>,
    ) -> Self {
        Self {
            source: Source::Connecting(source),
            guard,
            rewriter,
            keep_alive: keep_alive.map(Lazy::new),
            idle: idle.map(Lazy::new),
            stopping: None,
            shown: None,
            on_first: None,
            on_end: None,
            first: First::Awaited,
        }
    }

    /// The same for an upstream that has answered already.
    pub fn open(mut self, body: Body) -> Self {
        self.source = Source::Open(body);
        self
    }

    /// Ends the response as failed when `stopping` is ready, so that the client is told.
    pub fn until(mut self, stopping: Stopping) -> Self {
        self.stopping = Some(stopping);
        self
    }

    /// Keeps what this stream holds counted in `gauge`, until it is dropped.
    pub fn showing(mut self, gauge: Gauge) -> Self {
        self.shown = Some(Shown { gauge, bytes: 0 });
        self
    }

    /// Calls `first` when the first bytes leave, and `end` when the stream has ended or its client has gone.
    pub fn observed(mut self, first: impl FnOnce() + Send + Sync + 'static, end: OnEnd) -> Self {
        self.on_first = Some(Box::new(first));
        self.on_end = Some(end);
        self
    }

    /// Takes what the upstream has; true when something happened.
    fn pull(&mut self, context: &mut Context<'_>) -> bool {
        match &mut self.source {
            Source::Closed => false,
            Source::Connecting(connecting) => match connecting.as_mut().poll(context) {
                Poll::Pending => false,
                Poll::Ready(Ok(connected)) => {
                    self.rewriter.retarget(
                        connected.translation,
                        connected.repair,
                        connected.context,
                    );
                    self.source = Source::Open(connected.body);
                    touch(&mut self.idle);
                    true
                }
                Poll::Ready(Err(error)) => {
                    self.source = Source::Closed;
                    self.rewriter.fail(error);
                    true
                }
            },
            Source::Open(body) => {
                let chunk = match body.as_mut().poll_next(context) {
                    Poll::Pending => return false,
                    Poll::Ready(chunk) => chunk,
                };
                touch(&mut self.idle);
                match chunk {
                    Some(Ok(chunk)) => {
                        let rewriter = &mut self.rewriter;
                        let pushed = self.guard.push(chunk, |frame| rewriter.handle(&frame));
                        if let Err(error) = pushed {
                            self.rewriter
                                .fail(upstream_error(format!("{error} (limits.maxEventBytes)")));
                        }
                    }
                    Some(Err(fault)) => {
                        self.rewriter.fail(upstream_error(format!(
                            "the connection to the model server broke: {fault}"
                        )));
                    }
                    None => {
                        self.source = Source::Closed;
                        self.last_frame();
                        self.rewriter.finish();
                    }
                }
                if self.rewriter.end().is_some() {
                    release(std::mem::replace(&mut self.source, Source::Closed));
                }
                true
            }
        }
    }

    fn last_frame(&mut self) {
        if let Some(frame) = self.guard.finish() {
            self.rewriter.handle(&frame);
        }
    }

    /// Looks at the clocks; true when the rewriter has something to say because of them.
    fn timers(&mut self, context: &mut Context<'_>) -> bool {
        if let Some(stopping) = &mut self.stopping
            && stopping.as_mut().poll(context).is_ready()
        {
            self.stopping = None;
            self.source = Source::Closed;
            self.rewriter.fail(upstream_error("the bridge is stopping"));
            return true;
        }
        let is_open = matches!(self.source, Source::Open(_));
        if let Some(idle) = self.idle.as_mut().filter(|_| is_open)
            && idle.has_elapsed(context)
        {
            let silence = idle.after;
            self.source = Source::Closed;
            self.rewriter.fail(upstream_error(format!(
                "the model server was silent for {silence:?} (upstream.idleTimeout)"
            )));
            return true;
        }
        if let Some(keep_alive) = &mut self.keep_alive
            && keep_alive.has_elapsed(context)
        {
            self.rewriter.heartbeat();
            return true;
        }
        false
    }

    fn finished(&mut self) {
        if let Some(on_end) = self.on_end.take() {
            on_end(&self.guard, &self.rewriter);
        }
    }
}

impl Stream for ResponseStream {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let polled = this.advance(context);
        if let Some(shown) = &mut this.shown {
            shown.show(this.rewriter.held_bytes() + this.guard.held_bytes());
        }
        polled
    }
}

impl ResponseStream {
    fn advance(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        let this = self;
        if this.first == First::Given {
            this.first = First::Written;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        loop {
            let enough = match this.first {
                First::Awaited => 1,
                First::Given | First::Written => BATCH,
            };
            let full = this.rewriter.pending().len() >= enough;
            if !full
                && (this.pull(context)
                    || (this.rewriter.pending().is_empty() && this.timers(context)))
            {
                continue;
            }
            if !this.rewriter.pending().is_empty() {
                touch(&mut this.keep_alive);
                if this.first == First::Awaited {
                    this.first = First::Given;
                }
                if let Some(first) = this.on_first.take() {
                    first();
                }
                return Poll::Ready(Some(Ok(this.rewriter.take())));
            }
            if this.rewriter.end().is_some() {
                this.finished();
                return Poll::Ready(None);
            }
            return Poll::Pending;
        }
    }
}

impl Drop for ResponseStream {
    fn drop(&mut self) {
        self.finished();
    }
}

impl std::fmt::Debug for ResponseStream {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ResponseStream")
            .field("rewriter", &self.rewriter)
            .finish_non_exhaustive()
    }
}

/// How long, and how much of it, an upstream is listened to after its terminal event. A body that is read to its end
/// leaves a connection that can be used again; one that goes on is cut.
const LINGER: Duration = Duration::from_millis(50);
const LINGER_BYTES: usize = 64 << 10;

/// Lets go of an upstream whose response has ended.
pub(crate) fn release_body(mut body: Body) {
    let rest = async move {
        let mut left = LINGER_BYTES;
        while let Some(Ok(chunk)) = body.next().await {
            match left.checked_sub(chunk.len()) {
                Some(rest) => left = rest,
                None => break,
            }
        }
    };
    tokio::spawn(tokio::time::timeout(LINGER, rest));
}

fn release(source: Source) {
    if let Source::Open(body) = source {
        release_body(body);
    }
}

fn touch(timer: &mut Option<Lazy>) {
    if let Some(timer) = timer {
        timer.last = Instant::now();
    }
}

/// A deadline that moves with every event, without a timer operation for each.
struct Lazy {
    after: Duration,
    last: Instant,
    sleep: Pin<Box<Sleep>>,
}

impl Lazy {
    fn new(after: Duration) -> Self {
        let last = Instant::now();
        Self {
            after,
            last,
            sleep: Box::pin(sleep_until(last + after)),
        }
    }

    fn has_elapsed(&mut self, context: &mut Context<'_>) -> bool {
        while self.sleep.as_mut().poll(context).is_ready() {
            let due = self.last + self.after;
            let now = Instant::now();
            self.sleep
                .as_mut()
                .reset(due.max(now + Duration::from_millis(1)));
            if due <= now {
                self.last = now;
                self.sleep.as_mut().reset(now + self.after);
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests;
