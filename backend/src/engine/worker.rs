//! The thread that owns the device: takes requests, drops cancelled ones, steps while there is something to do, sleeps else. However it ends, it tells
//! every open generation.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use tokio::sync::{mpsc, watch};

use super::{
    EngineOptions,
    masks::MaskPool,
    request::Finish,
    scheduler::Scheduler,
    sequence::Sequence,
    shared::{Clock, Limits, Order, Shared, Submitted},
    warm::Warm,
};
use crate::{
    device::{Device, DeviceError},
    sample::Sampled,
};

/// What the thread needs from the one that starts it.
pub(super) struct Start {
    pub(super) device: Box<dyn Device>,
    pub(super) options: EngineOptions,
    pub(super) limits: Limits,
    pub(super) inbox: mpsc::Receiver<Submitted>,
    pub(super) shared: Arc<Shared>,
    /// Set when the thread ends.
    pub(super) stopped: watch::Sender<bool>,
    pub(super) clock: Clock,
}

pub(super) fn spawn(start: Start) {
    let shared = start.shared.clone();
    let thread = std::thread::Builder::new().name("engine".to_owned());
    if let Err(error) = thread.spawn(move || run(start)) {
        shared.fail(&format!("no thread for the engine: {error}"));
    }
}

fn run(start: Start) {
    let stopped = start.stopped.clone();
    let mut worker = Worker::new(start);
    let reason = match catch_unwind(AssertUnwindSafe(|| worker.run())) {
        Ok(Ok(())) => Finish::Stopped,
        Ok(Err(error)) => Finish::Device(error.to_string()),
        Err(panic) => Finish::Device(format!("the engine panicked: {}", panic_text(&*panic))),
    };
    worker.end(&reason);
    drop(worker);
    stopped.send_replace(true);
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a word")
}

#[derive(Debug)]
pub(super) struct Worker {
    pub(super) device: Box<dyn Device>,
    pub(super) scheduler: Scheduler,
    pub(super) masks: MaskPool,
    pub(super) drafts: bool,
    pub(super) clock: Clock,
    pub(super) counters: Counters,
    context: usize,
    inbox: mpsc::Receiver<Submitted>,
    shared: Arc<Shared>,
    next_id: u64,
    /// Sequences that ended in this step and have not been told.
    ended: Vec<(Sequence, Finish)>,
    pub(super) sampled: Vec<Sampled>,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) steps: u64,
    pub(super) prompt: u64,
    pub(super) generated: u64,
    pub(super) drafted: u64,
    pub(super) accepted: u64,
    pub(super) forced: u64,
    finished: u64,
    cancelled: u64,
}

impl Worker {
    fn new(start: Start) -> Worker {
        let Start {
            device,
            options,
            limits,
            inbox,
            shared,
            clock,
            ..
        } = start;
        let most_jobs = 2 * limits.max_running;
        let context = limits.context;
        let warm = options.warm_start.as_ref();
        let warm = warm.map(|warm| Warm::start(warm, device.caps(), &shared));
        let warm = warm.unwrap_or_default();
        Worker {
            scheduler: Scheduler::new(device.caps(), limits, options.drafts, warm),
            masks: MaskPool::new(options.mask_workers, most_jobs),
            drafts: options.drafts,
            device,
            clock,
            counters: Counters::default(),
            context,
            inbox,
            shared,
            next_id: 0,
            ended: Vec::new(),
            sampled: Vec::new(),
        }
    }

    fn run(&mut self) -> Result<(), DeviceError> {
        loop {
            let order = self.shared.order();
            if order == Order::Stop {
                // Nobody waits for the disk: streams hear of the stop first.
                let failure = self.shared.status().failure;
                self.end(&failure.map_or(Finish::Stopped, Finish::Device));
                return self.scheduler.warm.finish_saving(&mut *self.device);
            }
            self.take_requests();
            let paused = self.paused();
            if self.step()? {
                continue;
            }
            let is_done = self.scheduler.is_empty() && !self.scheduler.warm.is_saving();
            if order == Order::Finish && is_done {
                return Ok(());
            }
            // Nothing can be done until a request comes, a client leaves, or one of the paused ones reads.
            let scheduler = &mut self.scheduler;
            let still_paused = |&id: &u64| scheduler.find(id).is_none_or(|s| !s.has_room());
            self.shared.sleep(|| paused.iter().all(still_paused));
        }
    }

    fn paused(&self) -> Vec<u64> {
        let all = self.scheduler.all();
        all.filter(|s| !s.has_room()).map(|s| s.id).collect()
    }

    fn take_requests(&mut self) {
        self.empty_inbox();
        self.counters.cancelled += self.scheduler.drop_cancelled() as u64;
    }

    fn empty_inbox(&mut self) {
        while let Ok(submitted) = self.inbox.try_recv() {
            let now = self.clock.now();
            let sequence = Sequence::new(self.next_id, submitted, self.context, now);
            self.next_id += 1;
            self.scheduler.waiting.push_back(sequence);
        }
    }

    /// Takes a sequence out. Its client hears of it at the end of the step, when the status tells the same.
    pub(super) fn end_sequence(&mut self, id: u64, reason: Finish) {
        if let Some(mut sequence) = self.scheduler.remove(id, &reason) {
            sequence.give_up_slot();
            let took = self.clock.now().saturating_sub(sequence.arrived);
            self.shared.request_took(took);
            self.counters.finished += 1;
            self.ended.push((sequence, reason));
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Sends what the step yielded.
    pub(super) fn send(&mut self) {
        for sequence in &mut self.scheduler.running {
            if sequence.share.take > 0 {
                sequence.send_progress();
            }
            sequence.flush();
        }
        for (sequence, reason) in self.ended.drain(..) {
            sequence.finish(reason);
        }
    }

    pub(super) fn publish(&mut self) {
        let scheduler = &self.scheduler;
        let running = &scheduler.running;
        let pages = scheduler.cache.counts();
        let counters = &self.counters;
        self.shared.set_status(|status| {
            status.running = running.len();
            status.pages_used = pages.used;
            status.pages_cached = pages.cached;
            status.steps = counters.steps;
            status.prompt_tokens = counters.prompt;
            status.cached_tokens = scheduler.cached_tokens;
            status.generated_tokens = counters.generated;
            status.drafted_tokens = counters.drafted;
            status.accepted_tokens = counters.accepted;
            status.forced_tokens = counters.forced;
            status.finished = counters.finished;
            status.cancelled = counters.cancelled;
            status.evictions = scheduler.cache.evictions();
            status.preemptions = scheduler.preemptions;
            (status.prefixes_loaded, status.prefixes_stored) = scheduler.warm.counts();
        });
    }

    /// Ends all that is open, and what still comes in.
    fn end(&mut self, reason: &Finish) {
        match reason {
            Finish::Device(why) => self.shared.fail(why),
            _ => self.shared.shut_down(),
        }
        self.inbox.close();
        // What was submitted before the door closed.
        self.empty_inbox();
        for id in self.scheduler.all().map(|s| s.id).collect::<Vec<_>>() {
            self.end_sequence(id, reason.clone());
        }
        self.publish();
        self.send();
    }
}
