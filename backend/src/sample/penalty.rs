//! Penalties for tokens seen before, applied in place and taken back.

use crate::device::SampleRow;

#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// By token: 0 unseen, else twice the times it was generated, plus 1. All 0 between calls.
    marks: Vec<u32>,
    /// Distinct tokens of the history with the logits they had.
    seen: Vec<(u32, f32)>,
}

impl Scratch {
    /// Applies the row's penalties; false when there are none.
    pub(super) fn apply(&mut self, logits: &mut [f32], row: &SampleRow<'_>) -> bool {
        self.seen.clear();
        let params = row.params;
        let repetition = params.repetition_penalty;
        let (presence, frequency) = (params.presence_penalty, params.frequency_penalty);
        if repetition == 1.0 && presence == 0.0 && frequency == 0.0 {
            return false;
        }
        self.marks.resize(logits.len(), 0);
        for (index, &token) in row.history.iter().enumerate() {
            let Some(mark) = self.marks.get_mut(token as usize) else {
                continue;
            };
            if *mark == 0 {
                *mark = 1;
                self.seen.push((token, logits[token as usize]));
            }
            if index >= row.prompt {
                *mark += 2;
            }
        }
        for &(token, raw) in &self.seen {
            let times = std::mem::take(&mut self.marks[token as usize]) / 2;
            let mut logit = if raw > 0.0 {
                raw / repetition
            } else {
                raw * repetition
            };
            if times > 0 {
                logit -= presence + frequency * times as f32;
            }
            logits[token as usize] = logit;
        }
        true
    }

    /// Puts the raw logits back.
    pub(super) fn restore(&mut self, logits: &mut [f32]) {
        for (token, raw) in self.seen.drain(..) {
            logits[token as usize] = raw;
        }
    }
}
