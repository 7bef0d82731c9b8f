//! `sample.cu`

use bytemuck::{Pod, Zeroable};

use super::word;
use crate::{
    launch::{Launch, Memory, ShapeError},
    source::Kernel,
};

/// Most alternatives reported beside a token.
pub const MOST_LOGPROBS: usize = 20;

/// A token of a row's history, once, with the times it was generated (not those in the prompt).
#[derive(Clone, Copy, Debug, Eq, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct SeenToken {
    pub token: u32,
    pub times: u32,
}

/// What is wanted from a row of logits. Neutral values switch a step off.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct SampleRow {
    pub seed: u64,
    /// Of the token that is drawn: with the seed all the randomness there is.
    pub position: u64,
    pub row: u32,
    /// Word of the masks where the row's begins, or [`SampleRow::NO_MASK`].
    pub mask: u32,
    /// Where its tokens begin in `seen`, and how many: tokens below the vocabulary, each once. None unless there are penalties.
    pub seen: u32,
    pub seen_count: u32,
    /// 0: off.
    pub top_k: u32,
    /// At most [`MOST_LOGPROBS`].
    pub top_logprobs: u32,
    /// 0: the likeliest, ties to the lowest token.
    pub temperature: f32,
    /// 1: off.
    pub top_p: f32,
    /// 0: off.
    pub min_p: f32,
    /// 1: off.
    pub repetition: f32,
    pub presence: f32,
    pub frequency: f32,
}

impl SampleRow {
    pub const NO_MASK: u32 = u32::MAX;

    /// The likeliest token of a row.
    pub fn greedy(row: u32) -> SampleRow {
        SampleRow {
            row,
            mask: SampleRow::NO_MASK,
            top_p: 1.0,
            repetition: 1.0,
            ..SampleRow::zeroed()
        }
    }
}

/// What became of a row.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct SampleResult {
    pub token: u32,
    /// Natural log of its probability under the model, before penalties, mask and temperature.
    pub logprob: f32,
    /// One of the constants.
    pub status: u32,
    /// Alternatives that follow, likeliest first.
    pub count: u32,
    pub top_tokens: [u32; MOST_LOGPROBS],
    pub top_logprobs: [f32; MOST_LOGPROBS],
}

impl SampleResult {
    pub const OK: u32 = 0;
    /// A logit is no number.
    pub const NAN: u32 = 1;
    /// A logit is +∞.
    pub const INFINITE: u32 = 2;
    /// All are −∞.
    pub const NOTHING_FINITE: u32 = 3;
    /// The mask leaves none that is finite.
    pub const NOTHING_ALLOWED: u32 = 4;
}

/// Draws tokens, see the `.cu` file. Rows are each named once.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// `[logit_rows][vocab]` f32
    pub logits: Memory,
    pub logit_rows: usize,
    pub vocab: usize,
    /// `[count]` [`SampleRow`]
    pub rows: Memory,
    pub count: usize,
    /// `[masks][vocab / 32, rounded up]` u32
    pub masks: Memory,
    /// `[..]` [`SeenToken`], and as many f32
    pub seen: Memory,
    pub saved: Memory,
    pub seen_count: usize,
    /// `[count]` [`SampleResult`]
    pub results: Memory,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Params {
    logits: u64,
    rows: u64,
    masks: u64,
    seen: u64,
    saved: u64,
    results: u64,
    vocab: u32,
    unused: u32,
}

impl Sample {
    pub fn launch(&self) -> Result<Launch, ShapeError> {
        ShapeError::unless(self.count > 0 && self.vocab > 0, || {
            format!("{} rows of {} logits", self.count, self.vocab)
        })?;
        let results = self.count * size_of::<SampleResult>();
        let params = Params {
            logits: self
                .logits
                .hold("logits", self.logit_rows * self.vocab * 4)?,
            rows: self
                .rows
                .hold("rows", self.count * size_of::<SampleRow>())?,
            masks: self.masks.address(),
            seen: self.seen.hold("seen", self.seen_count * 8)?,
            saved: self.saved.hold("saved", self.seen_count * 4)?,
            results: self.results.hold("results", results)?,
            vocab: word("vocab", self.vocab)?,
            unused: 0,
        };
        let grid = [word("rows", self.count)?, 1, 1];
        Ok(Launch::new(Kernel::Sample, grid, 0, params))
    }
}
