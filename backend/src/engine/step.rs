//! One step of all running sequences:
//!
//! ```text
//! admit → ask grammars → plan → forward ‖ grammars answer → sample → check guesses, take up tokens → send
//! ```

use std::time::{Duration, Instant};

use super::{
    request::Finish,
    sequence::{Grammar, Sequence},
    worker::Worker,
};
use crate::{
    device::{DeviceError, SampleRow, Span},
    sample::Sampled,
};

/// How long a step waits for grammars before it starts: most answer in microseconds, and tokens they force ride along.
const GRACE: Duration = Duration::from_micros(200);

impl Worker {
    /// One step; false if there was nothing to do.
    pub(super) fn step(&mut self) -> Result<bool, DeviceError> {
        self.scheduler.admit();
        self.ask_grammars();
        self.take_early_answers();
        let has_moved = self.scheduler.pump(&mut *self.device)?;
        let start = self.clock.now();
        let work = self.scheduler.plan(&mut *self.device)?;
        let has_work = self.scheduler.running.iter().any(|s| s.share.take > 0);
        self.publish();
        if has_work {
            self.forward()?;
            self.fetch_masks();
            self.sample()?;
            self.take_tokens();
            self.scheduler.keep_prompts();
            let seconds = (self.clock.now() - start).as_secs_f64();
            self.scheduler.cost.observe(work, seconds);
            self.counters.steps += 1;
        }
        let has_news = self.has_ended();
        if has_work {
            self.publish();
        }
        self.send();
        Ok(has_work || has_news || has_moved)
    }

    /// Gives every running grammar that is to say what comes next to the mask threads, with a guess to look at.
    fn ask_grammars(&mut self) {
        for sequence in &mut self.scheduler.running {
            if self.drafts {
                sequence.guess();
            }
            if let Some(job) = sequence.take_job() {
                self.masks.give(job);
            }
        }
    }

    /// Takes up what grammars force before the step is planned, as far as they are quick.
    fn take_early_answers(&mut self) {
        let deadline = Instant::now() + GRACE;
        loop {
            let waits = |s: &Sequence| s.is_stream() && matches!(s.grammar, Grammar::Away);
            let patience = if self.scheduler.running.iter().any(waits) {
                deadline.saturating_duration_since(Instant::now())
            } else {
                Duration::ZERO
            };
            self.receive_answers(patience);
            // Before its first token a sequence still reports its progress, and its prompt needs the whole step anyway.
            let can_take = |s: &Sequence| s.usage.generated > 0 && s.has_room();
            let more = self.take_forced(can_take);
            self.ask_grammars();
            if !more && patience.is_zero() {
                return;
            }
        }
    }

    /// Takes up forced tokens and ends; true if there were any tokens.
    fn take_forced(&mut self, which: impl Fn(&Sequence) -> bool) -> bool {
        let mut any = false;
        let mut ends = Vec::new();
        for sequence in &mut self.scheduler.running {
            if !which(sequence) {
                continue;
            }
            let before = sequence.usage.generated;
            match sequence.take_forced() {
                Ok(forced) => any |= forced,
                Err(reason) => ends.push((sequence.id, reason)),
            }
            let forced = sequence.usage.generated - before;
            self.counters.forced += forced as u64;
            self.counters.generated += forced as u64;
        }
        for (id, reason) in ends {
            self.end_sequence(id, reason);
        }
        any
    }

    fn receive_answers(&mut self, patience: Duration) {
        for done in self.masks.fetch(patience) {
            // A sequence that was cancelled meanwhile is not there any more.
            let Some(sequence) = self.scheduler.find(done.id) else {
                continue;
            };
            match done.result {
                Ok((constraint, answer)) => sequence.grammar = Grammar::Ready(constraint, answer),
                Err(error) => self.end_sequence(done.id, Finish::Constraint(error)),
            }
        }
    }

    fn forward(&mut self) -> Result<(), DeviceError> {
        let running = &mut self.scheduler.running;
        let mut row = 0;
        for sequence in running.iter_mut() {
            sequence.append_draft();
            sequence.share.first_row = row;
            row += sequence.share.rows;
        }
        let busy = running.iter().filter(|s| s.share.take > 0);
        let spans: Vec<Span<'_>> = busy.map(Sequence::span).collect();
        self.device.forward(&spans)
    }

    /// Waits for the grammars whose sequence is to draw.
    fn fetch_masks(&mut self) {
        let due = |s: &Sequence| s.share.rows > 0 && matches!(s.grammar, Grammar::Away);
        while self.scheduler.running.iter().any(due) {
            self.receive_answers(Duration::MAX);
        }
    }

    /// Draws from all rows that anybody needs; `sampled` has them in the order of the sequences.
    fn sample(&mut self) -> Result<(), DeviceError> {
        let mut rows: Vec<SampleRow<'_>> = Vec::new();
        for sequence in &self.scheduler.running {
            rows.extend(sequence.sample_rows());
        }
        if rows.is_empty() {
            self.sampled.clear();
            return Ok(());
        }
        self.device.sample(&rows, &mut self.sampled)
    }

    /// Takes up what was run and drawn.
    fn take_tokens(&mut self) {
        let mut sampled = std::mem::take(&mut self.sampled).into_iter();
        let mut ends = Vec::new();
        for sequence in &mut self.scheduler.running {
            let share = sequence.share;
            if share.take == 0 {
                continue;
            }
            if sequence.usage.generated == 0 {
                self.counters.prompt += share.take as u64;
            }
            let before = sequence.usage;
            let drawn = sequence.rows_to_draw();
            let drawn: Vec<Sampled> = sampled.by_ref().take(drawn).collect();
            if let Err(reason) = sequence.take_up(drawn) {
                ends.push((sequence.id, reason));
            }
            let after = sequence.usage;
            self.counters.generated += (after.generated - before.generated) as u64;
            self.counters.drafted += share.draft as u64;
            if share.draft > 0 {
                self.counters.accepted += (after.drafted - before.drafted) as u64;
            }
        }
        for (id, reason) in ends {
            self.end_sequence(id, reason);
        }
        // Grammars that had left no choice by now.
        self.take_forced(|s| s.share.rows > 0);
    }
}
