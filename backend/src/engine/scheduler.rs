//! Who runs what in the next step. Streams come first and never wait; what time they leave is shared evenly among the prompts; guesses take what is over.
//!
//! When pages run out, first the cache gives way, then what is lent to the disk, then the sequence of a client that doesn't read, then the youngest: it goes
//! back to the queue with its text and is computed again. The oldest always gets on, so all do in the end.

use std::collections::VecDeque;

use super::{
    cost::{Cost, Work},
    request::Finish,
    sequence::{Sequence, StepShare},
    shared::Limits,
    warm::Warm,
};
use crate::{
    device::{Caps, Device, DeviceError, PAGE_TOKENS},
    kv::{Cache, common_start},
};

/// Where nobody waits for a next token, a step may take this many times its target.
const UNWATCHED: u32 = 4;
/// Share of the target that is planned for: the rest is for what the estimate misses.
const CAREFUL: f64 = 0.8;

#[derive(Debug)]
pub(super) struct Scheduler {
    pub(super) cache: Cache,
    /// Oldest first; preempted ones among them.
    pub(super) waiting: VecDeque<Sequence>,
    /// Oldest first.
    pub(super) running: Vec<Sequence>,
    pub(super) cost: Cost,
    /// Pages on their way to or from the disk.
    pub(super) warm: Warm,
    pub(super) preemptions: u64,
    /// Prompt tokens found in the cache.
    pub(super) cached_tokens: u64,
    limits: Limits,
    drafts: bool,
    max_tokens: usize,
    max_rows: usize,
}

/// What is left of a step's limits while it is planned.
#[derive(Debug)]
struct Room {
    tokens: usize,
    rows: usize,
    work: Work,
}

impl Room {
    fn give(&mut self, sequence: &mut Sequence, take: usize, rows: usize) {
        sequence.share = StepShare {
            take,
            rows,
            ..StepShare::default()
        };
        self.tokens -= take;
        self.rows -= rows;
        self.work.add(sequence.done, take);
    }
}

impl Scheduler {
    pub(super) fn new(caps: &Caps, limits: Limits, drafts: bool, warm: Warm) -> Scheduler {
        Scheduler {
            cache: Cache::new(caps.pages),
            waiting: VecDeque::new(),
            running: Vec::new(),
            cost: Cost::default(),
            warm,
            preemptions: 0,
            cached_tokens: 0,
            limits,
            drafts,
            max_tokens: caps.max_batch_tokens,
            max_rows: caps.max_rows,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Sequence> {
        self.running.iter().chain(&self.waiting)
    }

    pub(super) fn find(&mut self, id: u64) -> Option<&mut Sequence> {
        let mut all = self.running.iter_mut().chain(&mut self.waiting);
        all.find(|sequence| sequence.id == id)
    }

    /// Drops sequences whose client is gone, and with them their pages. Gives their number.
    pub(super) fn drop_cancelled(&mut self) -> usize {
        let before = self.running.len() + self.waiting.len();
        self.running.retain(|sequence| !sequence.is_cancelled());
        self.waiting.retain(|sequence| !sequence.is_cancelled());
        before - self.running.len() - self.waiting.len()
    }

    /// Takes a sequence out that ends; what it computed is kept for later prompts.
    pub(super) fn remove(&mut self, id: u64, reason: &Finish) -> Option<Sequence> {
        let mut sequence = match self.index(id) {
            Some(index) => self.running.remove(index),
            None => {
                let index = self.waiting.iter().position(|s| s.id == id)?;
                self.waiting.remove(index)?
            }
        };
        if !reason.is_failure() {
            let known = &sequence.tokens[..sequence.done];
            self.cache.keep(known, &mut sequence.pages);
        }
        sequence.pages.clear();
        Some(sequence)
    }

    /// Moves pages to and from the disk; true if there was anything to do.
    pub(super) fn pump(&mut self, device: &mut dyn Device) -> Result<bool, DeviceError> {
        let streams = self.running.iter().any(Sequence::is_stream);
        for sequence in &mut self.running {
            self.warm.offer(sequence);
        }
        self.warm.pump(device, &mut self.cache, streams)
    }

    /// Keeps the whole pages of prompts as far as they are computed, for requests that begin alike.
    pub(super) fn keep_prompts(&mut self) {
        for sequence in &mut self.running {
            let whole = sequence.done / PAGE_TOKENS * PAGE_TOKENS;
            let is_new = sequence.share.take > 0
                && (sequence.done - sequence.share.take) / PAGE_TOKENS
                    < sequence.done / PAGE_TOKENS;
            if is_new && whole <= sequence.prompt {
                self.cache
                    .keep(&sequence.tokens[..whole], &mut sequence.pages);
            }
        }
    }

    /// Takes sequences from the queue while there are places and pages.
    pub(super) fn admit(&mut self) {
        loop {
            let Some(next) = self.waiting.iter().position(Sequence::has_room) else {
                return;
            };
            if self.running.len() >= self.limits.max_running {
                // Whoever doesn't read must not keep a place from those who do.
                let Some(parked) = self.running.iter().rposition(|s| !s.has_room()) else {
                    return;
                };
                self.preempt(parked);
                continue;
            }
            if !self.running.is_empty() && !self.fits(&self.waiting[next]) {
                // The same goes for pages.
                let paused = |s: &Sequence| !s.has_room() && s.pages.len() > 0;
                let Some(paused) = self.running.iter().rposition(paused) else {
                    return;
                };
                self.preempt(paused);
                continue;
            }
            let Some(sequence) = self.waiting.remove(next) else {
                return;
            };
            let at = self.running.partition_point(|s| s.id < sequence.id);
            self.running.insert(at, sequence);
        }
    }

    /// Are there pages for it beside those the running ones will soon want, and one more for each of them?
    fn fits(&self, sequence: &Sequence) -> bool {
        let promised: usize = self
            .running
            .iter()
            .map(|s| s.pages_wanted().saturating_sub(s.pages.len()) + 1)
            .sum();
        let (_, held) = self.cache.known(&sequence.tokens);
        let wanted = sequence.pages_wanted() - held;
        wanted + promised <= self.cache.counts().available()
    }

    /// Gives every running sequence its [`StepShare`]; how much work that is.
    pub(super) fn plan(&mut self, device: &mut dyn Device) -> Result<Work, DeviceError> {
        for sequence in &mut self.running {
            sequence.share = StepShare::default();
        }
        let mut room = Room {
            tokens: self.max_tokens,
            rows: self.max_rows,
            work: Work::default(),
        };
        self.plan_streams(&mut room);
        self.plan_prompts(&mut room, device)?;
        if self.drafts {
            self.plan_drafts(&mut room);
        }
        // Added up anew: who lost its pages on the way does nothing after all.
        let mut work = Work::default();
        for sequence in &self.running {
            let share = sequence.share;
            work.add(sequence.done, share.take + share.draft);
        }
        Ok(work)
    }

    fn plan_streams(&mut self, room: &mut Room) {
        let ids = self.ids(|s| s.is_stream() && s.has_room());
        for (index, &id) in ids.iter().enumerate() {
            let Some(sequence) = self.at(id) else {
                continue;
            };
            // Each of those that follow can run at least one token.
            let most = room.tokens - (ids.len() - index - 1);
            let take = sequence.pending().min(most);
            let upto = sequence.done + take;
            if !self.make_room(id, upto) {
                continue;
            }
            if let Some(sequence) = self.at(id) {
                let rows = usize::from(take == sequence.pending());
                room.give(sequence, take, rows);
            }
        }
    }

    fn plan_prompts(
        &mut self,
        room: &mut Room,
        device: &mut dyn Device,
    ) -> Result<(), DeviceError> {
        let streams = self.running.iter().any(|s| s.share.take > 0);
        let target = if streams {
            self.limits.step_target
        } else {
            self.limits.step_target * UNWATCHED
        };
        let mut seconds = target.as_secs_f64() * CAREFUL - self.cost.seconds(room.work);
        let mut trusted = self.cost.trusted();
        let mut ids = self.ids(|s| !s.is_stream() && s.has_room());
        ids.retain(|&id| !self.waits_for_another(id));
        for &id in &ids {
            self.look_up(id, device)?;
        }
        // If not all can have a page's worth, the oldest have.
        let mut pages = 0.0;
        let afforded = ids.iter().position(|&id| {
            let (done, pending) = self.at(id).map_or((0, 0), |s| (s.done, s.pending()));
            pages += self.cost.more(done, pending.min(PAGE_TOKENS));
            pages > seconds
        });
        let afforded = afforded.unwrap_or(ids.len()).max(1);
        ids.truncate(afforded.min(trusted / PAGE_TOKENS));
        // The shortest first: what they leave of their share goes to the longer ones.
        ids.sort_by_key(|&id| self.at(id).map_or(0, |s| s.pending()));
        for (index, &id) in ids.iter().enumerate() {
            let sharing = ids.len() - index;
            let share = seconds / sharing as f64;
            let Some((done, pending)) = self.at(id).map(|s| (s.done, s.pending())) else {
                continue;
            };
            let most = self
                .cost
                .tokens_within(done, share)
                .min(trusted / sharing)
                .max(PAGE_TOKENS)
                .min(room.tokens);
            let mut take = pending.min(most);
            if take < pending {
                // Chunks end with their page where they can.
                let end = (done + take) / PAGE_TOKENS * PAGE_TOKENS;
                take = if end > done { end - done } else { take };
            }
            if take == 0 || !self.make_room(id, done + take) {
                continue;
            }
            seconds -= self.cost.more(done, take);
            trusted = trusted.saturating_sub(take);
            if let Some(sequence) = self.at(id) {
                room.give(sequence, take, usize::from(take == pending));
            }
        }
        Ok(())
    }

    /// Is the disk reading, or an older sequence computing, or about to, what this one begins with? Then it is computed once.
    fn waits_for_another(&mut self, id: u64) -> bool {
        let Some(index) = self.index(id) else {
            return false;
        };
        let sequence = &mut self.running[index];
        if sequence.looked_up {
            return false;
        }
        if self.warm.is_awaited(sequence, &mut self.cache) {
            return true;
        }
        let sequence = &self.running[index];
        let wanted = &sequence.tokens[..sequence.tokens.len() - 1];
        let known = self.cache.known(wanted).0 * PAGE_TOKENS;
        self.running[..index]
            .iter()
            .filter(|older| !older.is_stream() && older.has_room())
            .any(|older| {
                let common = common_start(&older.tokens, wanted) / PAGE_TOKENS * PAGE_TOKENS;
                common > known.max(older.done)
            })
    }

    /// Takes what the cache knows of the sequence, once.
    fn look_up(&mut self, id: u64, device: &mut dyn Device) -> Result<(), DeviceError> {
        let Some(index) = self.index(id) else {
            return Ok(());
        };
        let sequence = &mut self.running[index];
        if sequence.looked_up {
            return Ok(());
        }
        // The last token is always run: the next one is drawn from its row.
        let wanted = &sequence.tokens[..sequence.tokens.len() - 1];
        let (pages, known) = self.cache.adopt(device, wanted)?;
        sequence.pages = pages;
        sequence.done = known;
        sequence.looked_up = true;
        if !sequence.was_looked_up {
            sequence.was_looked_up = true;
            sequence.usage.cached = known;
            self.cached_tokens += known as u64;
        }
        Ok(())
    }

    fn plan_drafts(&mut self, room: &mut Room) {
        let mut yielding: usize = self.running.iter().map(|s| s.share.rows).sum();
        let mut step = self.cost.seconds(room.work);
        for sequence in &mut self.running {
            if sequence.share.rows == 0 || sequence.draft.is_empty() {
                continue;
            }
            let end = sequence.done + sequence.share.take;
            let mut most = sequence
                .draft
                .len()
                .min(sequence.left() - 1)
                .min(room.tokens)
                .min(room.rows);
            let Some(drafter) = &mut sequence.drafter else {
                continue;
            };
            let each = self.cost.more(end, 1);
            most = drafter.worthwhile(most, step, each, yielding - 1);
            // A guess is not worth anybody's pages but the cache's.
            self.cache.extend(&mut sequence.pages, end + most);
            most = most.min((sequence.pages.len() * PAGE_TOKENS).saturating_sub(end));
            if most == 0 {
                continue;
            }
            sequence.share.draft = most;
            sequence.share.rows += most;
            room.tokens -= most;
            room.rows -= most;
            room.work.add(end, most);
            step += each * most as f64;
            yielding += 1;
        }
    }

    /// Finds pages for the first `tokens` tokens of a sequence, if need be from others; false if it lost its own place over it.
    fn make_room(&mut self, id: u64, tokens: usize) -> bool {
        loop {
            let Some(index) = self.index(id) else {
                return false;
            };
            if self.cache.extend(&mut self.running[index].pages, tokens) {
                return true;
            }
            if self.warm.take_back() {
                continue;
            }
            let paused = |s: &Sequence| !s.has_room() && s.pages.len() > 0;
            let victim = self
                .running
                .iter()
                .rposition(paused)
                .unwrap_or(self.running.len() - 1);
            self.preempt(victim);
        }
    }

    fn preempt(&mut self, index: usize) {
        let mut sequence = self.running.remove(index);
        let whole = sequence.done / PAGE_TOKENS * PAGE_TOKENS;
        self.cache
            .keep(&sequence.tokens[..whole], &mut sequence.pages);
        sequence.forget_pages();
        sequence.flush();
        let at = self.waiting.partition_point(|s| s.id < sequence.id);
        self.waiting.insert(at, sequence);
        self.preemptions += 1;
    }

    fn ids(&self, which: impl Fn(&Sequence) -> bool) -> Vec<u64> {
        let chosen = self.running.iter().filter(|s| which(s));
        chosen.map(|s| s.id).collect()
    }

    fn index(&self, id: u64) -> Option<usize> {
        self.running.binary_search_by_key(&id, |s| s.id).ok()
    }

    fn at(&mut self, id: u64) -> Option<&mut Sequence> {
        self.index(id).map(|index| &mut self.running[index])
    }
}
