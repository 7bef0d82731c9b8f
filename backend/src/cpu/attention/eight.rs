//! Attention over keys and values of 8 bits, in whole numbers: scores are int8 products, and the weights of values are 16-bit integers, so that sums over a
//! segment are exact in 32 bits and only scales are floating-point.
//!
//! ```text
//! score   = Σ over blocks of 32 dimensions: (q · k) d_q d_k
//! weight  = round(2^(score - maximum) · r),  r = d_v · 32767 / (largest d_v among the visible keys of the segment), one for each block of 32 dimensions
//! sum     = Σ weight · v        at most 256 · 32767 · 127 < 2^31
//! ```
//!
//! What is lost: a key whose weight is below half of one is left out of the sum of values, though not of the sum that it is divided by. Keys behind the last
//! visible one keep a weight of 2^-126, which is nothing beside the 1 of the maximum.
//!
//! A segment that many queries go over is unpacked once: keys as the instruction wants them, values as 16 bits, scales as f32. Few queries read the pages as
//! they lie. Both give the same integers, so the same bits.

use super::{Item, QUERIES, SEGMENT, SEGMENT_PAGES, STATE_VALUES, clear, query_words, state_len};
use crate::{
    cpu::{
        activation::BLOCK_WORDS,
        kv::PageLayout,
        pack::{quant_bytes, record_bytes, scales_start},
        simd::{LANES, Simd},
    },
    device::{PAGE_TOKENS, PageId},
    model::weights::Format,
};

/// The largest weight.
const ONE: f32 = 32767.0;
const _: () = assert!(SEGMENT as u64 * 32767 * 127 <= i32::MAX as u64);
/// As many queries pay for unpacking a segment.
const MANY: usize = 16;
/// Pages that a query asks the memory for before it comes to them.
const AHEAD: usize = 3;

/// Numbers of a block, which have a scale in common.
const BLOCK: usize = 32;
/// Bytes of the keys of a block in a page.
const KEY_BYTES: usize = quant_bytes(Format::Q8_0);
/// Bytes of the values of a block in a page: two groups of sixteen dimensions.
const VALUE_BYTES: usize = BLOCK * PAGE_TOKENS;

type QueryBlock = [u32; BLOCK_WORDS];

/// A segment, unpacked, and what a tile of queries makes of it.
#[derive(Debug)]
pub(super) struct Scratch {
    /// `[page][block][8 groups of 4 dimensions][16 keys][4]`
    keys: Vec<[[u8; 64]; 8]>,
    /// `[block][page][2 groups of 16 dimensions][8 pairs of keys][16 dimensions][2]` i16
    values: Vec<[[[u8; 64]; 8]; 2]>,
    /// `[block][SEGMENT]`
    key_scales: Vec<f32>,
    value_scales: Vec<f32>,
    /// Largest scale of a value up to the end of each page, still in sixteen lanes, `[block][SEGMENT_PAGES]`.
    largest: Vec<[f32; LANES]>,
    /// r of the module's formula for `ratios_of` visible keys, `[page][pair of blocks][2][16]`.
    ratios: Vec<[[f32; LANES]; 2]>,
    ratios_of: usize,
    /// What weighted sums are to be multiplied with to go with `ratios`, `[block]`.
    unit: Vec<f32>,
    /// The same for each query of a tile, `[QUERIES][block]`.
    units: Vec<f32>,
    /// `[QUERIES][SEGMENT]`
    scores: Vec<f32>,
    /// `[QUERIES][page][pair of blocks][16]`, as [`Simd::store_pairs`] leaves them.
    weights: Vec<[u32; 16]>,
}

impl Scratch {
    pub(super) fn new(layout: &PageLayout) -> Scratch {
        let blocks = layout.padded / BLOCK;
        Scratch {
            keys: vec![[[0; 64]; 8]; SEGMENT_PAGES * blocks],
            values: vec![[[[0; 64]; 8]; 2]; SEGMENT_PAGES * blocks],
            key_scales: vec![0.0; blocks * SEGMENT],
            value_scales: vec![0.0; blocks * SEGMENT],
            largest: vec![[0.0; LANES]; blocks * SEGMENT_PAGES],
            ratios: vec![[[0.0; LANES]; 2]; SEGMENT_PAGES * blocks.div_ceil(2)],
            ratios_of: 0,
            unit: vec![0.0; blocks],
            units: vec![0.0; QUERIES * blocks],
            scores: vec![0.0; QUERIES * SEGMENT],
            weights: vec![[0; 16]; QUERIES * SEGMENT_PAGES * blocks.div_ceil(2)],
        }
    }
}

/// The states of all queries of `item`, in `states`.
#[inline(always)]
pub(super) fn attend<S: Simd>(simd: S, item: Item<'_>, scratch: &mut Scratch, states: &mut [f32]) {
    let layout = item.layout;
    let queries = item.tokens * item.group;
    let state = state_len(layout.padded);
    let states = &mut states[..queries * state];
    states.fill(0.0);
    clear(states, state);
    for segment in item.segments.0..item.segments.1 {
        let start = segment * SEGMENT;
        let seen = (item.position + item.tokens).saturating_sub(start);
        if seen == 0 {
            continue;
        }
        let first = start / PAGE_TOKENS;
        let pages = seen.min(SEGMENT).div_ceil(PAGE_TOKENS);
        let paged = Paged {
            item,
            first,
            blocks: layout.padded / BLOCK,
        };
        unpack_scales(simd, paged, pages, scratch);
        if queries >= MANY {
            let (mut keys, mut values) = (
                std::mem::take(&mut scratch.keys),
                std::mem::take(&mut scratch.values),
            );
            unpack(simd, paged, pages, &mut keys, &mut values);
            let unpacked = Unpacked {
                keys: &keys,
                values: &values,
                blocks: paged.blocks,
            };
            tiles(simd, item, unpacked, start, scratch, states);
            (scratch.keys, scratch.values) = (keys, values);
        } else {
            tiles(simd, item, paged, start, scratch, states);
        }
    }
}

/// Where keys and values of a segment are read from.
trait Source<'a>: Copy {
    /// Sixteen dimensions of a pair of keys.
    type Pair: 'a;

    /// Keys of a block: eight groups of four dimensions.
    fn keys(self, page: usize, block: usize) -> &'a [[u8; 64]; 8];

    /// As the product wants them.
    fn key<S: Simd>(simd: S, group: &[u8; 64]) -> S::B;

    /// Values of a block: pairs of keys for the first sixteen dimensions, then for the others.
    fn values(self, page: usize, block: usize) -> &'a [[Self::Pair; 8]; 2];

    /// As the product wants it.
    fn value<S: Simd>(simd: S, pair: &Self::Pair) -> S::B;
}

#[derive(Clone, Copy)]
struct Paged<'a> {
    item: Item<'a>,
    /// Page of the sequence that is page 0 here.
    first: usize,
    blocks: usize,
}

impl<'a> Paged<'a> {
    #[inline(always)]
    fn head(&self, page: PageId, values: bool) -> &'a [u8] {
        let (layout, item) = (self.item.layout, self.item);
        let head = if values {
            layout.values(item.layer, item.kv_head)
        } else {
            layout.keys(item.layer, item.kv_head)
        };
        &item.pool[page.0 as usize * layout.page_bytes() + head..][..layout.head_bytes()]
    }

    #[inline(always)]
    fn page(&self, page: usize) -> PageId {
        self.item.pages[self.first + page]
    }

    /// Asks for what is read some pages on.
    #[inline(always)]
    fn prefetch<S: Simd>(self, simd: S, page: usize) {
        let Some(&page) = self.item.pages.get(self.first + page + AHEAD) else {
            return;
        };
        for bytes in [self.head(page, false), self.head(page, true)] {
            for line in 0..bytes.len().div_ceil(64) {
                simd.prefetch(bytes, 64 * line);
            }
        }
    }
}

impl<'a> Source<'a> for Paged<'a> {
    type Pair = [u8; 32];

    #[inline(always)]
    fn keys(self, page: usize, block: usize) -> &'a [[u8; 64]; 8] {
        let at = block / 2 * record_bytes(Format::Q8_0) + block % 2 * KEY_BYTES;
        let keys = &self.head(self.page(page), false)[at..at + KEY_BYTES];
        &keys.as_chunks().0.as_chunks().0[0]
    }

    #[inline(always)]
    fn key<S: Simd>(simd: S, group: &[u8; 64]) -> S::B {
        simd.prepare_8(simd.bytes(group))
    }

    #[inline(always)]
    fn values(self, page: usize, block: usize) -> &'a [[[u8; 32]; 8]; 2] {
        let at = block * VALUE_BYTES;
        let values = &self.head(self.page(page), true)[at..at + VALUE_BYTES];
        &values.as_chunks().0.as_chunks().0.as_chunks().0[0]
    }

    #[inline(always)]
    fn value<S: Simd>(simd: S, pair: &[u8; 32]) -> S::B {
        simd.widen_8(pair)
    }
}

#[derive(Clone, Copy)]
struct Unpacked<'a> {
    keys: &'a [[[u8; 64]; 8]],
    values: &'a [[[[u8; 64]; 8]; 2]],
    blocks: usize,
}

impl<'a> Source<'a> for Unpacked<'a> {
    type Pair = [u8; 64];

    #[inline(always)]
    fn keys(self, page: usize, block: usize) -> &'a [[u8; 64]; 8] {
        &self.keys[page * self.blocks + block]
    }

    #[inline(always)]
    fn key<S: Simd>(simd: S, group: &[u8; 64]) -> S::B {
        simd.bytes(group)
    }

    #[inline(always)]
    fn values(self, page: usize, block: usize) -> &'a [[[u8; 64]; 8]; 2] {
        &self.values[block * SEGMENT_PAGES + page]
    }

    #[inline(always)]
    fn value<S: Simd>(simd: S, pair: &[u8; 64]) -> S::B {
        simd.bytes(pair)
    }
}

#[inline(always)]
fn unpack_scales<S: Simd>(simd: S, paged: Paged<'_>, pages: usize, scratch: &mut Scratch) {
    let value_scales = paged.item.layout.value_scales();
    for page in 0..pages {
        paged.prefetch(simd, page);
        for block in 0..paged.blocks {
            let (key_bytes, value_bytes) = (
                paged.head(paged.page(page), false),
                paged.head(paged.page(page), true),
            );
            let record = block / 2 * record_bytes(Format::Q8_0);
            let keys = record + scales_start(Format::Q8_0) + block % 2 * 32;
            let values = value_scales + block * 32;
            let at = block * SEGMENT + page * PAGE_TOKENS;
            read_scales(simd, key_bytes, keys, &mut scratch.key_scales[at..]);
            let mut largest =
                read_scales(simd, value_bytes, values, &mut scratch.value_scales[at..]);
            let all = &mut scratch.largest[block * SEGMENT_PAGES..][..SEGMENT_PAGES];
            if page > 0 {
                largest = simd.max(largest, simd.load(&all[page - 1]));
            }
            simd.store(largest, &mut all[page]);
        }
    }
    scratch.ratios_of = 0;
}

/// Sixteen scales to f32.
#[inline(always)]
fn read_scales<S: Simd>(simd: S, bytes: &[u8], at: usize, out: &mut [f32]) -> S::F {
    let halves: &[u16] = bytemuck::cast_slice(&bytes[at..at + 32]);
    let scales = simd.load_f16(&halves.as_chunks().0[0]);
    simd.store(scales, &mut out.as_chunks_mut().0[0]);
    scales
}

#[inline(always)]
fn unpack<S: Simd>(
    simd: S,
    paged: Paged<'_>,
    pages: usize,
    keys: &mut [[[u8; 64]; 8]],
    values: &mut [[[[u8; 64]; 8]; 2]],
) {
    for page in 0..pages {
        for block in 0..paged.blocks {
            let out = &mut keys[page * paged.blocks + block];
            for (group, out) in paged.keys(page, block).iter().zip(out) {
                simd.store_bytes(Paged::key(simd, group), out);
            }
            let out = &mut values[block * SEGMENT_PAGES + page];
            for (pairs, out) in paged.values(page, block).iter().zip(out) {
                for (pair, out) in pairs.iter().zip(out) {
                    simd.store_bytes(Paged::value(simd, pair), out);
                }
            }
        }
    }
}

/// All queries over the segment that begins with position `start`.
#[inline(always)]
fn tiles<'a, S: Simd, K: Source<'a>>(
    simd: S,
    item: Item<'_>,
    source: K,
    start: usize,
    scratch: &mut Scratch,
    states: &mut [f32],
) {
    let queries = item.tokens * item.group;
    let mut first = 0;
    while first < queries {
        let left = queries - first;
        // Registers for six queries times two pages of keys, or times two groups of dimensions.
        if S::TOKENS >= 8 && left >= 6 {
            tile::<S, K, 6, 2>(simd, item, source, start, first, scratch, states);
            first += 6;
        } else if S::TOKENS >= 8 && left >= 3 {
            tile::<S, K, 3, 4>(simd, item, source, start, first, scratch, states);
            first += 3;
        } else if S::TOKENS >= 8 {
            tile::<S, K, 1, 4>(simd, item, source, start, first, scratch, states);
            first += 1;
        } else if left >= 3 {
            tile::<S, K, 3, 1>(simd, item, source, start, first, scratch, states);
            first += 3;
        } else {
            tile::<S, K, 1, 1>(simd, item, source, start, first, scratch, states);
            first += 1;
        }
    }
}

/// `T` queries from `first` on, `P` pages of keys at a time.
#[inline(always)]
fn tile<'a, S: Simd, K: Source<'a>, const T: usize, const P: usize>(
    simd: S,
    item: Item<'_>,
    source: K,
    start: usize,
    first: usize,
    scratch: &mut Scratch,
    states: &mut [f32],
) {
    let layout = item.layout;
    let blocks = layout.padded / BLOCK;
    let words = query_words(layout.format, layout.padded);
    let mut queries: [&[QueryBlock]; T] = [&[]; T];
    let mut visible = [0; T];
    for t in 0..T {
        let (token, head) = ((first + t) / item.group, (first + t) % item.group);
        let query = (token * item.heads + item.kv_head * item.group + head) * words;
        queries[t] = &item.queries[query..query + words].as_chunks().0[..blocks];
        let seen = (item.position + token + 1).saturating_sub(start);
        visible[t] = seen.min(SEGMENT);
    }
    // Heads of one token see the same keys: the last query of a tile sees most.
    let pages = visible[T - 1].div_ceil(PAGE_TOKENS);
    if pages == 0 {
        return;
    }

    let mut page = 0;
    while page + P <= pages {
        scores::<S, K, T, P>(simd, source, page, &queries, scratch);
        page += P;
    }
    while page < pages {
        scores::<S, K, T, 1>(simd, source, page, &queries, scratch);
        page += 1;
    }

    let state = state_len(layout.padded);
    let mut old = [0.0; LANES];
    let mut new = [0.0; LANES];
    let mut sums = [0.0; T];
    for t in 0..T {
        let Some((largest, sum)) = weigh(simd, t, visible[t], pages, blocks, scratch) else {
            // It sees no key of this segment.
            new[t] = f32::NEG_INFINITY;
            continue;
        };
        let before = &mut states[(first + t) * state];
        let most = largest.max(*before);
        (old[t], new[t]) = (*before - most, largest - most);
        *before = most;
        sums[t] = sum;
    }
    for factors in [&mut old, &mut new] {
        let powers = simd.pow2(simd.load(factors));
        simd.store(powers, factors);
    }
    for t in 0..T {
        let sum = &mut states[(first + t) * state + 1];
        *sum = *sum * old[t] + sums[t] * new[t];
    }

    let row = SEGMENT_PAGES * blocks.div_ceil(2);
    let mut weights: [&[[u32; 16]]; T] = [&[]; T];
    for (t, weights) in weights.iter_mut().enumerate() {
        *weights = &scratch.weights[t * row..][..pages * blocks.div_ceil(2)];
    }
    for block in 0..blocks {
        let dots = values::<S, K, T>(simd, source, pages, block, blocks, &weights);
        for t in 0..T {
            let unit = simd.splat(scratch.units[t * blocks + block]);
            let (old, new) = (simd.splat(old[t]), simd.splat(new[t]));
            let at = (first + t) * state + STATE_VALUES + block * BLOCK;
            let groups = states[at..at + BLOCK].as_chunks_mut::<LANES>().0;
            for (dot, group) in dots[t].into_iter().zip(groups) {
                let sum = simd.mul(simd.float(dot), unit);
                let sum = simd.fma(sum, new, simd.mul(simd.load(group), old));
                simd.store(sum, group);
            }
        }
    }
}

/// Scores of `P` pages of keys for `T` queries.
#[inline(always)]
fn scores<'a, S: Simd, K: Source<'a>, const T: usize, const P: usize>(
    simd: S,
    source: K,
    page: usize,
    queries: &[&[QueryBlock]; T],
    scratch: &mut Scratch,
) {
    let mut sums = [[simd.splat(0.0); P]; T];
    for (block, query) in queries[0].iter().enumerate() {
        let mut query = [query; T];
        let mut dots = [[simd.zero_i(); P]; T];
        for t in 0..T {
            query[t] = &queries[t][block];
            dots[t] = [simd.splat_i(query[t][9] as i32); P];
        }
        let mut tile = [source.keys(page, block); P];
        for (p, tile) in tile.iter_mut().enumerate() {
            *tile = source.keys(page + p, block);
        }
        for group in 0..8 {
            let mut keys = [K::key(simd, &tile[0][group]); P];
            for p in 1..P {
                keys[p] = K::key(simd, &tile[p][group]);
            }
            for t in 0..T {
                for p in 0..P {
                    dots[t][p] = simd.dot_8(dots[t][p], keys[p], query[t][group] as i32);
                }
            }
        }
        let scales = &scratch.key_scales[block * SEGMENT + page * PAGE_TOKENS..];
        let scales = &scales.as_chunks::<LANES>().0[..P];
        for t in 0..T {
            let scale = simd.splat(f32::from_bits(query[t][8]));
            for p in 0..P {
                let dot = simd.mul(simd.float(dots[t][p]), scale);
                sums[t][p] = simd.fma(dot, simd.load(&scales[p]), sums[t][p]);
            }
        }
    }
    for (t, sums) in sums.into_iter().enumerate() {
        let out = &mut scratch.scores[t * SEGMENT + page * PAGE_TOKENS..];
        let out = &mut out.as_chunks_mut::<LANES>().0[..P];
        for (sum, out) in sums.into_iter().zip(out) {
            simd.store(sum, out);
        }
    }
}

/// The weights of query `t` of a tile, from its scores. Their maximum and the sum of the exponentials; `None` if it sees no key.
#[inline(always)]
fn weigh<S: Simd>(
    simd: S,
    t: usize,
    visible: usize,
    pages: usize,
    blocks: usize,
    scratch: &mut Scratch,
) -> Option<(f32, f32)> {
    let pairs = blocks.div_ceil(2);
    if visible > 0 && scratch.ratios_of != visible {
        find_ratios(simd, visible, pages, blocks, scratch);
    }
    let weights = &mut scratch.weights[t * SEGMENT_PAGES * pairs..][..pages * pairs];
    if visible == 0 {
        weights.fill([0; 16]);
        return None;
    }
    scratch.units[t * blocks..][..blocks].copy_from_slice(&scratch.unit);
    let scores = &mut scratch.scores[t * SEGMENT..][..pages * PAGE_TOKENS];
    scores[visible..].fill(f32::NEG_INFINITY);
    let scores = scores.as_chunks::<LANES>().0;
    let mut largest = simd.splat(f32::NEG_INFINITY);
    for scores in scores {
        largest = simd.max(largest, simd.load(scores));
    }
    let largest = simd.reduce_max(largest);
    let shift = simd.splat(largest);
    let mut sum = simd.splat(0.0);
    let ratios = &scratch.ratios[..pages * pairs];
    if pairs == 1 {
        for ((scores, ratios), out) in scores.iter().zip(ratios).zip(weights) {
            let power = simd.pow2_weight(simd.sub(simd.load(scores), shift));
            sum = simd.add(sum, power);
            store_weights(simd, power, ratios, out);
        }
    } else {
        let pages = ratios
            .chunks_exact(pairs)
            .zip(weights.chunks_exact_mut(pairs));
        for (scores, (ratios, out)) in scores.iter().zip(pages) {
            let power = simd.pow2_weight(simd.sub(simd.load(scores), shift));
            sum = simd.add(sum, power);
            for (ratios, out) in ratios.iter().zip(out) {
                store_weights(simd, power, ratios, out);
            }
        }
    }
    Some((largest, simd.reduce_add(sum)))
}

#[inline(always)]
fn store_weights<S: Simd>(simd: S, power: S::F, ratios: &[[f32; LANES]; 2], out: &mut [u32; 16]) {
    simd.store_pairs(
        simd.round(simd.mul(power, simd.load(&ratios[0]))),
        simd.round(simd.mul(power, simd.load(&ratios[1]))),
        out,
    );
}

/// `ratios` and `unit` for queries that see as many keys.
#[inline(always)]
fn find_ratios<S: Simd>(
    simd: S,
    visible: usize,
    pages: usize,
    blocks: usize,
    scratch: &mut Scratch,
) {
    scratch.ratios_of = visible;
    let (whole, rest) = (visible / PAGE_TOKENS, visible % PAGE_TOKENS);
    let pairs = blocks.div_ceil(2);
    for block in 0..blocks {
        let scales = &scratch.value_scales[block * SEGMENT..][..SEGMENT];
        let mut largest = 0.0;
        if whole > 0 {
            let lanes = &scratch.largest[block * SEGMENT_PAGES + whole - 1];
            largest = simd.reduce_max(simd.load(lanes));
        }
        for scale in &scales[whole * PAGE_TOKENS..][..rest] {
            largest = scale.max(largest);
        }
        // Zero when all values are.
        let factor = simd.splat(if largest > 0.0 { ONE / largest } else { 0.0 });
        let scales = scales.as_chunks::<LANES>().0;
        for (scales, ratios) in scales[..pages]
            .iter()
            .zip(scratch.ratios.chunks_exact_mut(pairs))
        {
            simd.store(
                simd.mul(simd.load(scales), factor),
                &mut ratios[block / 2][block % 2],
            );
        }
        scratch.unit[block] = largest / ONE;
    }
}

/// Weighted sums of the values of a block, for `T` queries.
#[inline(always)]
fn values<'a, S: Simd, K: Source<'a>, const T: usize>(
    simd: S,
    source: K,
    pages: usize,
    block: usize,
    blocks: usize,
    weights: &[&[[u32; 16]]; T],
) -> [[S::I; 2]; T] {
    let mut dots = [[simd.zero_i(); 2]; T];
    for page in 0..pages {
        let index = page * blocks.div_ceil(2) + block / 2;
        let mut rows = [&weights[0][index]; T];
        for t in 1..T {
            rows[t] = &weights[t][index];
        }
        let [low, high] = source.values(page, block);
        // The words of this block among those of two.
        let word = |pair: usize| pair / 2 * 4 + block % 2 * 2 + pair % 2;
        for (pair, (low, high)) in low.iter().zip(high).enumerate() {
            let value = [K::value(simd, low), K::value(simd, high)];
            for t in 0..T {
                let weight = rows[t][word(pair)] as i32;
                for g in 0..2 {
                    dots[t][g] = simd.dot_16(dots[t][g], value[g], weight);
                }
            }
        }
    }
    dots
}
