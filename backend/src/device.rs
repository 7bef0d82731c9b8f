//! What the engine asks of a processor. One coarse call a step: [`Device::forward`] runs the model over every token of a batch, [`Device::sample`]
//! picks from the rows of logits that stayed on the device. Between the two the host finishes its token masks, so a mask never delays the forward pass.
//!
//! The device owns the weights and the pool of KV pages; which page belongs to whom is the engine's business alone.

use std::{fmt::Debug, sync::Arc};

use crate::sample::{Sampled, SamplingParams};

/// Tokens held by one page of the KV cache.
pub const PAGE_TOKENS: usize = 16;

/// Index of a page in the device's pool, `0..caps.pages`. One page holds the keys and values of [`PAGE_TOKENS`] tokens for every layer.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PageId(pub u32);

/// What a device can do and has been given, fixed when it is made.
#[derive(Clone, Debug)]
pub struct Caps {
    /// For people: `cpu (avx512-vnni, 2 threads)`.
    pub name: String,
    /// Pages in the pool.
    pub pages: usize,
    /// Bytes of one page, as [`Device::read_page`] gives them.
    pub page_bytes: usize,
    /// Names the layout of a page's bytes: a stored page of another layout must not be read.
    pub page_layout: String,
    /// Most tokens [`Device::forward`] takes at once, over all sequences.
    pub max_batch_tokens: usize,
    /// Most rows of logits one forward can leave behind.
    pub max_rows: usize,
    /// Length of a row of logits.
    pub vocab: usize,
}

/// The tokens of one sequence in a step: a chunk of its prompt, its newest token, or that token and a draft.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// Tokens to run, at positions `past..past + tokens.len()`.
    pub tokens: &'a [u32],
    /// Tokens of this sequence whose keys and values are already in `pages`.
    pub past: usize,
    /// Page table: page `i` holds positions `16 i..16 (i + 1)`. Long enough for `past + tokens.len()`.
    pub pages: &'a [PageId],
    /// How many of the last tokens leave a row of logits: 0 inside a prompt, 1 to decode, draft length + 1 to verify.
    pub rows: usize,
}

/// What is wanted from one row of logits.
#[derive(Clone, Copy, Debug)]
pub struct SampleRow<'a> {
    /// Rows are numbered over the spans of the last forward, in order.
    pub row: usize,
    pub params: &'a SamplingParams,
    /// Tokens that penalties count, oldest first: the prompt, what was generated, and the part of a draft before this row.
    pub history: &'a [u32],
    /// Tokens of the prompt at the start of `history`. The repetition penalty counts them, presence and frequency don't.
    pub prompt: usize,
    /// Bit `t` of word `t / 32` set: token `t` may come. `None`: all may.
    pub mask: Option<&'a TokenMask>,
    /// Position of the token that is drawn: with the seed it is all the randomness there is, so that neither the batch nor a draft changes the draw.
    pub position: u64,
    /// How many of the most likely tokens to report beside the drawn one.
    pub top_logprobs: usize,
}

/// Which tokens a grammar allows next, a bit a token, lowest first.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TokenMask(pub Arc<[u32]>);

impl TokenMask {
    /// Is `token` allowed? Tokens beyond the mask are not.
    pub fn allows(&self, token: u32) -> bool {
        self.0
            .get(token as usize / 32)
            .is_some_and(|word| word >> (token % 32) & 1 == 1)
    }
}

/// The device cannot go on. Every open generation ends with this message and the engine reports itself unhealthy.
#[derive(Debug, thiserror::Error)]
#[error("{device}: {message}")]
pub struct DeviceError {
    pub device: String,
    pub message: String,
}

/// A processor with the weights loaded and a pool of KV pages. Owned by the engine's thread.
///
/// **Numbers must not depend on company.** For given weights, the bits of a row of logits, and of the keys and values of a token, are a function of the
/// sequence's tokens up to there and nothing else: not of the other spans of the batch, their number or order, not of where a prompt was cut into chunks,
/// not of whether a token ran alone, at the end of a chunk or as part of a draft, not of which pages hold its past, nor of threads. The engine leans on
/// it: text is the same alone and in a crowd, with and without drafts, after a preemption, from cached pages and from computed ones. So a kernel must sum
/// in an order that only the model's shape fixes; splitting the work over rows, heads or output columns is free, over the summed dimension is not, unless
/// the split is by fixed blocks.
pub trait Device: Debug + Send {
    fn caps(&self) -> &Caps;

    /// Runs the model over all spans, writes their keys and values into their pages, and keeps `Σ rows` rows of logits until the next forward.
    ///
    /// Spans are of different sequences, or of the same prefix read-only: no two write the same page.
    fn forward(&mut self, spans: &[Span<'_>]) -> Result<(), DeviceError>;

    /// Draws a token from each of the given rows of the last forward; rows may be left out. `out` is cleared first and has an entry for each row, in order.
    fn sample(&mut self, rows: &[SampleRow<'_>], out: &mut Vec<Sampled>)
    -> Result<(), DeviceError>;

    /// Copies a row of logits to the host: `[vocab]`, f32. For evaluation and tests; not on the token path.
    fn logits(&mut self, row: usize, out: &mut [f32]) -> Result<(), DeviceError>;

    /// Copies the first `tokens` tokens of page `from` to page `to`, for a prefix that ends inside a page.
    fn copy_page(&mut self, from: PageId, to: PageId, tokens: usize) -> Result<(), DeviceError>;

    /// Bytes of a page, `[caps.page_bytes]`, to keep them on disk.
    fn read_page(&mut self, page: PageId, out: &mut [u8]) -> Result<(), DeviceError>;

    /// The inverse of [`Device::read_page`].
    fn write_page(&mut self, page: PageId, bytes: &[u8]) -> Result<(), DeviceError>;
}
