//! A batch, checked and laid out: which token stands where, which pages are written, which pieces attention is cut into.

use std::ops::Range;

use super::{attention::SEGMENT, kv::Pool};
use crate::device::{Caps, DeviceError, PAGE_TOKENS, Span};

/// Most queries of one piece of attention: enough to read the keys of a segment from the second cache, few enough to share among threads.
pub(crate) const PIECE_QUERIES: usize = 192;

/// A token of the batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) id: u32,
    pub(crate) position: usize,
}

/// Tokens of the batch that are written to one page.
#[derive(Clone, Debug)]
pub(crate) struct PageWrite {
    pub(crate) page: usize,
    pub(crate) tokens: Range<usize>,
}

/// Some tokens of a span, over one key head and some segments of keys.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) kv_head: usize,
    pub(crate) span: usize,
    /// In the batch.
    pub(crate) tokens: Range<usize>,
    pub(crate) segments: Range<usize>,
}

#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) tokens: Vec<Token>,
    /// By ascending page, no page twice.
    pub(crate) writes: Vec<PageWrite>,
    /// By key head, then token.
    pub(crate) pieces: Vec<Piece>,
    /// Every piece is one segment and leaves its states; else every piece is complete.
    pub(crate) split: bool,
    /// Tokens whose logits are wanted.
    pub(crate) rows: Vec<usize>,
}

impl Step {
    pub(crate) fn new(
        caps: &Caps,
        pool: &Pool,
        group: usize,
        threads: usize,
        split_states: usize,
        spans: &[Span<'_>],
    ) -> Result<Step, DeviceError> {
        let fail = |message: String| DeviceError {
            device: caps.name.clone(),
            message,
        };
        let mut step = Step {
            tokens: Vec::new(),
            writes: Vec::new(),
            pieces: Vec::new(),
            split: false,
            rows: Vec::new(),
        };
        let mut starts = Vec::with_capacity(spans.len());
        for (index, span) in spans.iter().enumerate() {
            let (first, len) = (step.tokens.len(), span.tokens.len());
            starts.push(first);
            let end = span.past + len;
            if span.pages.len() * PAGE_TOKENS < end {
                return Err(fail(format!(
                    "span {index}: {end} tokens need {} pages; {} given",
                    end.div_ceil(PAGE_TOKENS),
                    span.pages.len()
                )));
            }
            // Those behind the last token too: they are asked from memory ahead of time.
            if let Some(page) = span.pages.iter().find(|page| page.0 as usize >= pool.pages) {
                return Err(fail(format!(
                    "span {index}: page {}; the pool has {}, from 0",
                    page.0, pool.pages
                )));
            }
            if let Some(token) = span
                .tokens
                .iter()
                .find(|&&token| token as usize >= caps.vocab)
            {
                return Err(fail(format!(
                    "span {index}: token {token} of a vocabulary of {}",
                    caps.vocab
                )));
            }
            if span.rows > len {
                return Err(fail(format!(
                    "span {index}: {} rows of {len} tokens",
                    span.rows
                )));
            }
            for (i, &id) in span.tokens.iter().enumerate() {
                let position = span.past + i;
                step.tokens.push(Token { id, position });
                if i == 0 || position % PAGE_TOKENS == 0 {
                    step.writes.push(PageWrite {
                        page: span.pages[position / PAGE_TOKENS].0 as usize,
                        tokens: first + i..first + i,
                    });
                }
                if let Some(write) = step.writes.last_mut() {
                    write.tokens.end += 1;
                }
            }
            step.rows.extend(first + len - span.rows..first + len);
        }
        if step.tokens.len() > caps.max_batch_tokens {
            return Err(fail(format!(
                "{} tokens in a batch of at most {}",
                step.tokens.len(),
                caps.max_batch_tokens
            )));
        }
        if step.rows.len() > caps.max_rows {
            return Err(fail(format!(
                "{} rows of logits, at most {}",
                step.rows.len(),
                caps.max_rows
            )));
        }
        step.writes.sort_by_key(|write| write.page);
        if let Some(pair) = step
            .writes
            .windows(2)
            .find(|pair| pair[0].page == pair[1].page)
        {
            return Err(fail(format!("two spans write page {}", pair[0].page)));
        }
        step.cut(
            spans,
            &starts,
            pool.layout.kv_heads,
            group,
            threads,
            split_states,
        );
        Ok(step)
    }

    fn cut(
        &mut self,
        spans: &[Span<'_>],
        starts: &[usize],
        kv_heads: usize,
        group: usize,
        threads: usize,
        split_states: usize,
    ) {
        let segments = |span: &Span<'_>| (span.past + span.tokens.len()).div_ceil(SEGMENT);
        // Few tokens over long contexts: whole heads are too few and too large pieces.
        let states: usize = spans
            .iter()
            .map(|span| span.tokens.len() * segments(span) * kv_heads * group)
            .sum();
        let longest = spans.iter().map(segments).max().unwrap_or(0);
        let most = spans
            .iter()
            .map(|span| span.tokens.len())
            .max()
            .unwrap_or(0);
        self.split = threads > 1
            && longest > 1
            && states <= split_states
            && most * group <= PIECE_QUERIES
            && spans.len() * kv_heads < 8 * threads;
        let per_piece = (PIECE_QUERIES / group).max(1);
        for kv_head in 0..kv_heads {
            for (index, span) in spans.iter().enumerate() {
                let start = starts[index];
                for first in (0..span.tokens.len()).step_by(per_piece) {
                    let last = span.tokens.len().min(first + per_piece);
                    let tokens = start + first..start + last;
                    let all = (span.past + last).div_ceil(SEGMENT);
                    let mut add = |segments| {
                        self.pieces.push(Piece {
                            kv_head,
                            span: index,
                            tokens: tokens.clone(),
                            segments,
                        });
                    };
                    if self.split {
                        (0..all).for_each(|segment| add(segment..segment + 1));
                    } else {
                        add(0..all);
                    }
                }
            }
        }
    }
}
