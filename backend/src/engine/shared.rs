//! What the handle and the engine's thread both see: the wake-up call, the look at the engine, the count of open requests.

use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence},
    },
    time::{Duration, Instant},
};

use tokio::sync::mpsc;

use super::{
    EngineOptions, EngineStatus,
    handle::Slot,
    request::{GenerateRequest, Output},
};
use crate::device::{Caps, PAGE_TOKENS};

/// Room in a generation's channel below which its sequence pauses: the tokens of a step, and the end, must always find a place.
pub(super) const ROOM_FOR_STEP: usize = 2;

/// A request on its way to the engine's thread.
#[derive(Debug)]
pub(super) struct Submitted {
    pub(super) request: GenerateRequest,
    pub(super) outputs: mpsc::Sender<Output>,
    pub(super) slot: Slot,
}

/// The options, fitted to the device.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    pub(super) context: usize,
    pub(super) max_running: usize,
    pub(super) max_queued: usize,
    pub(super) output_buffer: usize,
    pub(super) step_target: Duration,
}

impl Limits {
    pub(super) fn new(caps: &Caps, options: &EngineOptions) -> Limits {
        let most = caps.max_rows.min(caps.max_batch_tokens).max(1);
        Limits {
            context: options.context.min(caps.pages * PAGE_TOKENS),
            max_running: options.max_running.clamp(1, most),
            max_queued: options.max_queued,
            output_buffer: options.output_buffer.max(2 * ROOM_FOR_STEP),
            step_target: options.step_target,
        }
    }

    pub(super) fn max_open(&self) -> usize {
        self.max_running + self.max_queued
    }
}

#[derive(Debug)]
pub(super) struct Shared {
    /// Requests taken and not yet ended.
    pub(super) open: AtomicUsize,
    signals: Mutex<Signals>,
    bell: Condvar,
    /// The thread sleeps, or is about to: a reader must ring.
    asleep: AtomicBool,
    status: Mutex<EngineStatus>,
    /// Mean time from submission to end of the latest requests, in milliseconds.
    request_ms: AtomicU64,
    max_running: usize,
    output_buffer: usize,
}

#[derive(Debug, Default)]
struct Signals {
    rung: bool,
    /// Open generations end now.
    shut_down: bool,
    /// No more requests will come.
    closed: bool,
    /// Why requests are refused.
    down: Option<String>,
}

/// What the thread finds when it looks for signals.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Order {
    Work,
    /// Finish what is open, then end.
    Finish,
    /// End what is open, then end.
    Stop,
}

impl Shared {
    pub(super) fn new(caps: &Caps, limits: &Limits) -> Shared {
        let status = EngineStatus {
            healthy: true,
            device: caps.name.clone(),
            context: limits.context,
            pages_total: caps.pages,
            ..EngineStatus::default()
        };
        Shared {
            open: AtomicUsize::new(0),
            signals: Mutex::default(),
            bell: Condvar::new(),
            asleep: AtomicBool::new(false),
            status: Mutex::new(status),
            request_ms: AtomicU64::new(0),
            max_running: limits.max_running,
            output_buffer: limits.output_buffer,
        }
    }

    pub(super) fn output_buffer(&self) -> usize {
        self.output_buffer
    }

    /// The thread has something new to look at.
    pub(super) fn wake(&self) {
        lock(&self.signals).rung = true;
        self.bell.notify_one();
    }

    /// A client read an output: only a sleeping thread must hear of it.
    pub(super) fn read(&self) {
        // Pairs with the fence in `sleep`: either this side sees the sleeper, or the sleeper sees the room that was made.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Sleeps until woken. `idle` is asked once more after readers know that they must ring; if it says no, there is no sleep.
    pub(super) fn sleep(&self, idle: impl FnOnce() -> bool) {
        self.asleep.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if idle() {
            let signals = lock(&self.signals);
            let woken = self.bell.wait_while(signals, |s| !s.rung);
            woken.unwrap_or_else(PoisonError::into_inner).rung = false;
        }
        self.asleep.store(false, Ordering::SeqCst);
    }

    pub(super) fn order(&self) -> Order {
        let signals = lock(&self.signals);
        match *signals {
            Signals {
                shut_down: true, ..
            } => Order::Stop,
            Signals { closed: true, .. } => Order::Finish,
            _ => Order::Work,
        }
    }

    pub(super) fn shut_down(&self) {
        let mut signals = lock(&self.signals);
        signals.shut_down = true;
        signals.rung = true;
        signals
            .down
            .get_or_insert_with(|| "it is shutting down".to_owned());
        drop(signals);
        self.bell.notify_one();
    }

    pub(super) fn close(&self) {
        lock(&self.signals).closed = true;
        self.wake();
    }

    /// The device, the thread or a template failed: requests are refused from now on. The first failure is the one that is told.
    pub(super) fn fail(&self, why: &str) {
        lock(&self.signals).down = Some(why.to_owned());
        let mut status = lock(&self.status);
        if status.failure.is_some() {
            return;
        }
        tracing::error!(why, "the engine failed");
        status.healthy = false;
        status.failure = Some(why.to_owned());
    }

    pub(super) fn down(&self) -> Option<String> {
        lock(&self.signals).down.clone()
    }

    pub(super) fn status(&self) -> EngineStatus {
        let mut status = lock(&self.status).clone();
        status.queued = self
            .open
            .load(Ordering::Acquire)
            .saturating_sub(status.running);
        status
    }

    pub(super) fn set_status(&self, change: impl FnOnce(&mut EngineStatus)) {
        change(&mut lock(&self.status));
    }

    pub(super) fn request_took(&self, time: Duration) {
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let mean = self.request_ms.load(Ordering::Relaxed);
        let mean = if mean == 0 {
            ms
        } else {
            mean - mean / 4 + ms / 4
        };
        self.request_ms.store(mean, Ordering::Relaxed);
    }

    /// Seconds until a place frees, if requests go on taking as long as the latest ones: `max_running` end in that time, evenly.
    pub(super) fn retry_after(&self) -> u64 {
        let each = self.request_ms.load(Ordering::Relaxed) / self.max_running as u64;
        each.div_ceil(1000).clamp(1, 600)
    }
}

/// Nothing that holds these locks can panic halfway through a change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Time since the engine started. Tests set it by hand.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    Monotonic(Instant),
    #[cfg_attr(not(test), expect(dead_code, reason = "tests"))]
    Manual(Arc<AtomicU64>),
}

impl Clock {
    pub(crate) fn monotonic() -> Clock {
        Clock::Monotonic(Instant::now())
    }

    pub(super) fn now(&self) -> Duration {
        match self {
            Clock::Monotonic(start) => start.elapsed(),
            Clock::Manual(nanos) => Duration::from_nanos(nanos.load(Ordering::SeqCst)),
        }
    }
}
