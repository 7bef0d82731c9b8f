//! Both ends of the engine's channels that callers hold: [`Engine`] to submit, [`Generation`] to read.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use tokio::sync::{mpsc, watch};

use super::{
    EngineOptions, EngineStatus,
    request::{Finish, GenerateRequest, MAX_TOP_LOGPROBS, Output, SubmitError, Usage},
    shared::{Clock, Limits, Shared, Submitted},
    worker,
};
use crate::device::Device;

/// A handle on a running engine. Clones are the same engine; when the last is dropped, what runs is finished and the thread ends.
#[derive(Clone, Debug)]
pub struct Engine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    inbox: mpsc::Sender<Submitted>,
    shared: Arc<Shared>,
    stopped: watch::Receiver<bool>,
    context: usize,
    vocab: usize,
    max_open: usize,
}

impl Engine {
    /// Starts the thread that owns `device` from now on. If the system gives no thread, the engine is born unhealthy and takes no request.
    pub fn start(device: Box<dyn Device>, options: EngineOptions) -> Engine {
        Engine::start_with_clock(device, options, Clock::monotonic())
    }

    pub(crate) fn start_with_clock(
        device: Box<dyn Device>,
        options: EngineOptions,
        clock: Clock,
    ) -> Engine {
        let limits = Limits::new(device.caps(), &options);
        let max_open = limits.max_open();
        let (context, vocab) = (limits.context, device.caps().vocab);
        let (inbox, requests) = mpsc::channel(max_open);
        let (stop, stopped) = watch::channel(false);
        let shared = Arc::new(Shared::new(device.caps(), &limits));
        worker::spawn(worker::Start {
            device,
            options,
            limits,
            inbox: requests,
            shared: shared.clone(),
            stopped: stop,
            clock,
        });
        Engine {
            inner: Arc::new(Inner {
                inbox,
                shared,
                stopped,
                context,
                vocab,
                max_open,
            }),
        }
    }

    /// Queues a request, or says why not. Never waits.
    pub fn submit(&self, request: GenerateRequest) -> Result<Generation, SubmitError> {
        let inner = &*self.inner;
        if let Some(why) = inner.shared.down() {
            return Err(SubmitError::Down(why));
        }
        inner.check(&request)?;
        let Some(slot) = Slot::take(&inner.shared, inner.max_open) else {
            let queued = inner.shared.status().queued;
            return Err(SubmitError::QueueFull {
                queued,
                retry_after: inner.shared.retry_after(),
            });
        };
        let (outputs, receiver) = mpsc::channel(inner.shared.output_buffer());
        let submitted = Submitted {
            request,
            outputs,
            slot,
        };
        // The slot stands for a place in the inbox, so the inbox can only be closed, not full.
        if inner.inbox.try_send(submitted).is_err() {
            let why = inner.shared.down();
            return Err(SubmitError::Down(
                why.unwrap_or_else(|| "it has been stopped".to_owned()),
            ));
        }
        inner.shared.wake();
        Ok(Generation {
            outputs: receiver,
            shared: inner.shared.clone(),
            ended: false,
        })
    }

    pub fn status(&self) -> EngineStatus {
        self.inner.shared.status()
    }

    /// Most tokens of a sequence, prompt and output together.
    pub fn context(&self) -> usize {
        self.inner.context
    }

    /// Ends every open generation with [`Finish::Stopped`](super::request::Finish::Stopped) at the next step and takes no more. Returns at once.
    pub fn shutdown(&self) {
        self.inner.shared.shut_down();
    }

    /// Ends every open generation with [`Finish::Device`](super::request::Finish::Device) at the next step, for a reason outside of the device; the engine is
    /// unhealthy from now on. Returns at once.
    pub fn fail(&self, why: &str) {
        self.inner.shared.fail(why);
        self.inner.shared.shut_down();
    }

    /// Waits until the thread has ended and the device is freed: after [`Engine::shutdown`], or after a failure.
    pub async fn stopped(&self) {
        let mut stopped = self.inner.stopped.clone();
        // An error means that the thread is gone, which is what is waited for.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    }
}

impl Inner {
    fn check(&self, request: &GenerateRequest) -> Result<(), SubmitError> {
        let invalid = |message: String| Err(SubmitError::Invalid(message));
        if request.prompt.is_empty() {
            return invalid("the prompt is empty".to_owned());
        }
        if request.prompt.len() + 1 > self.context {
            return Err(SubmitError::ContextExceeded {
                prompt: request.prompt.len(),
                context: self.context,
            });
        }
        if request.max_tokens == 0 {
            return invalid("max_tokens is 0; at least 1 is allowed".to_owned());
        }
        request.sampling.check().map_err(SubmitError::Invalid)?;
        if request.top_logprobs > MAX_TOP_LOGPROBS {
            let asked = request.top_logprobs;
            return invalid(format!(
                "top_logprobs is {asked}; at most {MAX_TOP_LOGPROBS} is allowed"
            ));
        }
        let vocab = self.vocab;
        match request.prompt.iter().position(|&t| t as usize >= vocab) {
            Some(at) => invalid(format!(
                "token {} at {at} of the prompt is outside of the vocabulary of {vocab}",
                request.prompt[at]
            )),
            None => Ok(()),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// One of the `max_running + max_queued` places of open requests; given back when dropped.
#[derive(Debug)]
pub(super) struct Slot(Arc<Shared>);

impl Slot {
    fn take(shared: &Arc<Shared>, max: usize) -> Option<Slot> {
        let more = |open: usize| (open < max).then_some(open + 1);
        let open: &AtomicUsize = &shared.open;
        open.fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
            .ok()
            .map(|_| Slot(shared.clone()))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What one request generates. Dropping it cancels the request at the next step.
#[derive(Debug)]
pub struct Generation {
    outputs: mpsc::Receiver<Output>,
    shared: Arc<Shared>,
    ended: bool,
}

impl Generation {
    /// The next output; `None` after [`Output::Finished`].
    pub async fn next(&mut self) -> Option<Output> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// As [`Generation::next`], for hand-written streams.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Output>> {
        let output = self.outputs.poll_recv(context);
        output.map(|output| self.heard(output))
    }

    /// As [`Generation::next`], for threads outside of an async runtime.
    pub fn blocking_next(&mut self) -> Option<Output> {
        let output = self.outputs.blocking_recv();
        self.heard(output)
    }

    fn heard(&mut self, output: Option<Output>) -> Option<Output> {
        if self.ended {
            return None;
        }
        // The thread can only go without a word if it panicked with the sequence in its hands.
        let output = output.unwrap_or_else(|| Output::Finished {
            reason: Finish::Device("the engine's thread ended".to_owned()),
            usage: Usage::default(),
        });
        self.ended = matches!(output, Output::Finished { .. });
        self.shared.read();
        Some(output)
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.outputs.close();
        self.shared.wake();
    }
}
