//! Attention over paged keys and values; those of 8 bits have a [kernel of their own](eight). The queries of all heads that share a key head, of one
//! token or of many, go through the same kernel: some at a time over a segment of keys, so each page is read once for all of them.
//!
//! Scores are in units of log 2: queries come scaled by log2 e. Keys are taken in segments of [`SEGMENT`] at fixed positions. Within one: all scores,
//! their maximum, the exponentials, the weighted sum of values; then the segment is merged into what came before (the online softmax of Milakov and Gimelshein 2018, as flash attention uses it). Invariant: a query goes
//! through the same operations in a prompt of any chunking, alone, in a batch or as a draft, and on one thread or many.

mod cache;
mod eight;

use cache::{Cache, Plain};

use super::{
    activation::BLOCK_WORDS,
    kv::PageLayout,
    matmul::{PlainBf16, PlainF16, PlainF32},
    simd::{Kernel, LANES, Simd},
};
use crate::{
    device::{PAGE_TOKENS, PageId},
    model::plan::KvFormat,
};

/// Keys of a segment.
pub(crate) const SEGMENT: usize = 256;
const SEGMENT_PAGES: usize = SEGMENT / PAGE_TOKENS;
/// Most queries in one kernel.
const QUERIES: usize = 8;

/// Words of an encoded query of `padded` numbers: f32, pairs of bf16 for bf16 keys, blocks of int8 for int8 keys.
pub(crate) fn query_words(format: KvFormat, padded: usize) -> usize {
    match format {
        KvFormat::F32 | KvFormat::F16 => padded,
        KvFormat::Bf16 => padded / 2,
        KvFormat::Q8_0 => padded / 32 * BLOCK_WORDS,
    }
}

/// Where the weighted sum of values begins in a query's state: whole vectors from there on.
const STATE_VALUES: usize = LANES;

/// Numbers of a query's state.
///
/// ```text
/// 0  maximum of the scores | 1  sum of the exponentials | up to STATE_VALUES unused | weighted sum of values [padded]
/// ```
pub(crate) fn state_len(padded: usize) -> usize {
    STATE_VALUES + padded
}

/// Working memory of a member of the team.
#[derive(Debug)]
pub(crate) struct Workspace {
    /// `[QUERIES][SEGMENT]`
    scores: Vec<f32>,
    /// `[QUERIES][SEGMENT]`, f32 or pairs of bf16.
    weights: Vec<u32>,
    /// `[QUERIES][state_len]`
    segment: Vec<f32>,
    /// For keys and values of 8 bits.
    eight: Option<eight::Scratch>,
    /// States of all queries of an item.
    pub(crate) states: Vec<f32>,
}

impl Workspace {
    pub(crate) fn new(layout: &PageLayout, most_queries: usize) -> Workspace {
        let padded = layout.padded;
        let is_eight = layout.format == KvFormat::Q8_0;
        Workspace {
            eight: is_eight.then(|| eight::Scratch::new(layout)),
            scores: vec![0.0; QUERIES * SEGMENT],
            weights: vec![0; QUERIES * SEGMENT],
            segment: vec![0.0; QUERIES * state_len(padded)],
            states: vec![0.0; most_queries * state_len(padded)],
        }
    }
}

/// Attention of the queries of an [`Item`]; leaves a state for each in the workspace, `[tokens][group]`.
pub(crate) struct Attend<'a> {
    pub(crate) item: Item<'a>,
    pub(crate) workspace: &'a mut Workspace,
}

/// The queries of some tokens of a sequence over one key head.
#[derive(Clone, Copy)]
pub(crate) struct Item<'a> {
    pub(crate) layout: PageLayout,
    /// All pages of the pool.
    pub(crate) pool: &'a [u8],
    /// Page table of the sequence.
    pub(crate) pages: &'a [PageId],
    pub(crate) layer: usize,
    pub(crate) kv_head: usize,
    /// Query heads that share this key head.
    pub(crate) group: usize,
    /// Encoded queries, `[tokens][all heads][query_words]`, from the first token of this item on.
    pub(crate) queries: &'a [u32],
    pub(crate) heads: usize,
    /// Position of the first token; one token a position.
    pub(crate) position: usize,
    pub(crate) tokens: usize,
    /// Which segments to go through, from the first up to the second; those behind a query's position are skipped.
    pub(crate) segments: (usize, usize),
}

impl Kernel for Attend<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Attend { item, workspace } = self;
        match item.layout.format {
            KvFormat::F32 => attend::<S, Plain<PlainF32>>(simd, item, workspace),
            KvFormat::F16 => attend::<S, Plain<PlainF16>>(simd, item, workspace),
            KvFormat::Bf16 => attend::<S, Plain<PlainBf16>>(simd, item, workspace),
            KvFormat::Q8_0 => {
                if let Some(scratch) = &mut workspace.eight {
                    eight::attend(simd, item, scratch, &mut workspace.states);
                }
            }
        }
    }
}

#[inline(always)]
fn attend<S: Simd, C: Cache>(simd: S, item: Item<'_>, workspace: &mut Workspace) {
    let queries = item.tokens * item.group;
    let state = state_len(item.layout.padded);
    clear(&mut workspace.states[..queries * state], state);
    for segment in item.segments.0..item.segments.1 {
        let mut first = 0;
        while first < queries {
            // Heads of one token see the same keys: the last query of a tile sees most.
            let left = queries - first;
            if S::TOKENS >= 8 && left >= 8 {
                tile::<S, C, 8, 2>(simd, item, workspace, segment, first);
                first += 8;
            } else if S::TOKENS >= 8 && left == 3 {
                tile::<S, C, 3, 4>(simd, item, workspace, segment, first);
                first += 3;
            } else if S::TOKENS >= 4 && left >= 4 {
                tile::<S, C, 4, 4>(simd, item, workspace, segment, first);
                first += 4;
            } else if left >= 2 {
                tile::<S, C, 2, 2>(simd, item, workspace, segment, first);
                first += 2;
            } else {
                tile::<S, C, 1, 4>(simd, item, workspace, segment, first);
                first += 1;
            }
        }
    }
}

/// `T` queries from `first` on over one segment; `D` vectors of values at a time.
#[inline(always)]
fn tile<S: Simd, C: Cache, const T: usize, const D: usize>(
    simd: S,
    item: Item<'_>,
    workspace: &mut Workspace,
    segment: usize,
    first: usize,
) {
    let layout = item.layout;
    let start = segment * SEGMENT;
    let words = query_words(layout.format, layout.padded);
    let last = item.position + (first + T - 1) / item.group;
    let keys = (last + 1).saturating_sub(start).min(SEGMENT);
    if keys == 0 {
        return;
    }
    let pages = keys.div_ceil(PAGE_TOKENS);
    let table = &item.pages[start / PAGE_TOKENS..start / PAGE_TOKENS + pages];
    let Workspace {
        scores,
        weights,
        segment: partial,
        eight: _,
        states,
    } = workspace;

    let queries: [&[u32]; T] = std::array::from_fn(|t| {
        let (token, head) = ((first + t) / item.group, (first + t) % item.group);
        &item.queries[(token * item.heads + item.kv_head * item.group + head) * words..][..words]
    });
    let rows = scores.as_chunks_mut::<LANES>().0;
    let head_bytes = layout.head_bytes();
    let few = item.tokens * item.group <= QUERIES;
    for (index, page) in table.iter().enumerate() {
        let at = page.0 as usize * layout.page_bytes() + layout.keys(item.layer, item.kv_head);
        if let (true, Some(next)) = (few, table.get(index + 1)) {
            // Few queries: reading the pages is all the work, and the next one lies somewhere else.
            let next =
                next.0 as usize * layout.page_bytes() + layout.keys(item.layer, item.kv_head);
            for line in 0..head_bytes / 64 {
                simd.prefetch(&item.pool[next..], 64 * line);
            }
        }
        let sums = C::scores::<S, T>(simd, &item.pool[at..at + head_bytes], &layout, &queries);
        for (t, sum) in sums.into_iter().enumerate() {
            simd.store(sum, &mut rows[t * SEGMENT_PAGES + index]);
        }
    }

    let state = state_len(layout.padded);
    // Words of the weights of a page, and of a segment.
    let page_words = if C::PAIRS {
        PAGE_TOKENS / 2
    } else {
        PAGE_TOKENS
    };
    let weight_words = SEGMENT_PAGES * page_words;
    for t in 0..T {
        let position = item.position + (first + t) / item.group;
        let visible = (position + 1).saturating_sub(start).min(keys);
        let scores = &mut scores[t * SEGMENT..][..pages * PAGE_TOKENS];
        scores[visible..].fill(f32::NEG_INFINITY);
        let (scores, _) = scores.as_chunks::<LANES>();
        let mut largest = simd.splat(f32::NEG_INFINITY);
        for scores in scores {
            largest = simd.max(largest, simd.load(scores));
        }
        let largest = simd.reduce_max(largest);
        // A query that sees no key of this segment has weights of zero.
        let shift = simd.splat(if largest == f32::NEG_INFINITY {
            0.0
        } else {
            largest
        });
        let mut sum = simd.splat(0.0);
        let out = &mut weights[t * weight_words..][..pages * page_words];
        if C::PAIRS {
            let out: &mut [u16] = bytemuck::cast_slice_mut(out);
            for (scores, out) in scores.iter().zip(out.as_chunks_mut::<LANES>().0) {
                let e = simd.pow2(simd.sub(simd.load(scores), shift));
                sum = simd.add(sum, e);
                simd.store_bf16(e, out);
            }
        } else {
            let out: &mut [f32] = bytemuck::cast_slice_mut(out);
            for (scores, out) in scores.iter().zip(out.as_chunks_mut::<LANES>().0) {
                let e = simd.pow2(simd.sub(simd.load(scores), shift));
                sum = simd.add(sum, e);
                simd.store(e, out);
            }
        }
        partial[t * state] = largest;
        partial[t * state + 1] = simd.reduce_add(sum);
    }

    let weights: [&[u32]; T] =
        std::array::from_fn(|t| &weights[t * weight_words..][..pages * page_words]);
    let groups = layout.padded / LANES;
    let mut group = 0;
    while group < groups {
        if groups - group >= D {
            values::<S, C, T, D>(simd, item, table, &weights, group, partial);
            group += D;
        } else {
            values::<S, C, T, 1>(simd, item, table, &weights, group, partial);
            group += 1;
        }
    }

    for t in 0..T {
        merge(
            simd,
            &mut states[(first + t) * state..][..state],
            &partial[t * state..][..state],
        );
    }
}

/// Weighted sums of the values of a segment: `D` vectors of dimensions from `group` on, for `T` queries.
#[inline(always)]
fn values<S: Simd, C: Cache, const T: usize, const D: usize>(
    simd: S,
    item: Item<'_>,
    table: &[PageId],
    weights: &[&[u32]; T],
    group: usize,
    out: &mut [f32],
) {
    let layout = item.layout;
    let page_words = weights[0].len() / table.len();
    let head_bytes = layout.head_bytes();
    let at = |page: &PageId| {
        page.0 as usize * layout.page_bytes() + layout.values(item.layer, item.kv_head)
    };
    let few = group == 0 && item.tokens * item.group <= QUERIES;
    let mut sums = [[simd.splat(0.0); T]; D];
    for (index, page) in table.iter().enumerate() {
        if let (true, Some(next)) = (few, table.get(index + 1)) {
            for line in 0..head_bytes / 64 {
                simd.prefetch(&item.pool[at(next)..], 64 * line);
            }
        }
        let weights: [&[u32]; T] =
            std::array::from_fn(|t| &weights[t][index * page_words..(index + 1) * page_words]);
        C::values::<S, T, D>(
            simd,
            &item.pool[at(page)..][..head_bytes],
            &layout,
            group,
            &weights,
            &mut sums,
        );
    }
    let state = state_len(layout.padded);
    for (d, sums) in sums.into_iter().enumerate() {
        for (t, sum) in sums.into_iter().enumerate() {
            let start = t * state + STATE_VALUES + (group + d) * LANES;
            if let Some(out) = out[start..].first_chunk_mut() {
                simd.store(sum, out);
            }
        }
    }
}

/// The state before any key: no maximum.
fn clear(states: &mut [f32], stride: usize) {
    for state in states.chunks_exact_mut(stride) {
        state[0] = f32::NEG_INFINITY;
    }
}

/// Takes a segment's result into a query's state.
#[inline(always)]
fn merge<S: Simd>(simd: S, state: &mut [f32], segment: &[f32]) {
    if segment[0] == f32::NEG_INFINITY {
        return;
    }
    if state[0] == f32::NEG_INFINITY {
        state.copy_from_slice(segment);
        return;
    }
    let largest = state[0].max(segment[0]);
    let mut factors = [0.0; LANES];
    (factors[0], factors[1]) = (state[0] - largest, segment[0] - largest);
    let powers = simd.pow2(simd.load(&factors));
    simd.store(powers, &mut factors);
    let (old, new) = (factors[0], factors[1]);
    state[0] = largest;
    state[1] = state[1] * old + segment[1] * new;
    let (old, new) = (simd.splat(old), simd.splat(new));
    let (state, segment) = (
        state[STATE_VALUES..].as_chunks_mut::<LANES>().0,
        segment[STATE_VALUES..].as_chunks::<LANES>().0,
    );
    for (state, segment) in state.iter_mut().zip(segment) {
        let sum = simd.fma(simd.load(segment), new, simd.mul(simd.load(state), old));
        simd.store(sum, state);
    }
}

/// Merges the states of the segments of one query, `[segments]` of them `stride` numbers apart, into the first.
pub(crate) struct MergeSegments<'a> {
    pub(crate) states: &'a mut [f32],
    pub(crate) stride: usize,
    pub(crate) segments: usize,
    pub(crate) len: usize,
}

impl Kernel for MergeSegments<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (first, rest) = self.states.split_at_mut(self.stride);
        for segment in 0..self.segments - 1 {
            merge(
                simd,
                &mut first[..self.len],
                &rest[segment * self.stride..][..self.len],
            );
        }
    }
}

/// The output of a query from its state: `[head_dim]`.
#[inline]
pub(crate) fn finish(state: &[f32], out: &mut [f32]) {
    let scale = 1.0 / state[1];
    for (out, x) in out.iter_mut().zip(&state[STATE_VALUES..]) {
        *out = x * scale;
    }
}
