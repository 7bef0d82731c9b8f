//! What a matrix is multiplied with: a row a token, encoded for the formats that will read it. For quantised weights: int8 in blocks of 32 with a scale each
//! and the scaled sums that the weights' minima need; for BF16 weights pairs of bf16; for F16 and F32 weights the f32 values.
//!
//! ```text
//! row = [blocks of 12 words: 32 × i8, d, d Σq, d Σ(first 16), d Σ(last 16)] [pairs of bf16] [f32]      each part only when some weight needs it
//! ```
//!
//! Sixteen rows are a group, and their blocks lie side by side, `[block][16 rows][12 words]`: a matrix kernel takes a block of many tokens at a time.

use std::ops::Range;

use super::simd::{Kernel, LANES, Simd};
use crate::model::weights::Format;

/// Words of a block.
pub(crate) const BLOCK_WORDS: usize = 12;

/// Rows of a group.
pub(crate) const GROUP: usize = 16;

pub(crate) type Block = [u32; BLOCK_WORDS];

/// Where the parts of a row lie, in words. In a group each part is sixteen times as long.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Layout {
    /// Numbers in a row.
    pub(crate) cols: usize,
    pub(crate) blocks: Range<usize>,
    pub(crate) pairs: Range<usize>,
    pub(crate) plain: Range<usize>,
    /// Words of a row, whole cache lines.
    pub(crate) stride: usize,
}

impl Layout {
    /// For weights of these formats with `cols` columns.
    pub(crate) fn new(cols: usize, formats: impl Iterator<Item = Format>) -> Layout {
        let (mut blocks, mut pairs, mut plain) = (0, 0, 0);
        for format in formats {
            match format {
                Format::F32 | Format::F16 => plain = cols,
                Format::Bf16 => pairs = cols.div_ceil(2),
                _ => blocks = cols / 32 * BLOCK_WORDS,
            }
        }
        Layout {
            cols,
            blocks: 0..blocks,
            pairs: blocks..blocks + pairs,
            plain: blocks + pairs..blocks + pairs + plain,
            stride: (blocks + pairs + plain).next_multiple_of(16),
        }
    }

    /// Words of a group of rows.
    pub(crate) fn group(&self) -> usize {
        GROUP * self.stride
    }

    /// Copies the first rows of a group, and nothing of the others.
    pub(crate) fn copy_rows(&self, rows: usize, from: &[u32], to: &mut [u32]) {
        let rows = rows.min(GROUP);
        let words = rows * BLOCK_WORDS;
        let blocks = of_group(&self.blocks).step_by(GROUP * BLOCK_WORDS);
        for block in blocks {
            to[block..block + words].copy_from_slice(&from[block..block + words]);
        }
        for part in [&self.pairs, &self.plain] {
            let part = GROUP * part.start..GROUP * part.start + rows * part.len();
            to[part.clone()].copy_from_slice(&from[part]);
        }
    }

    /// Words of as many rows: whole groups.
    pub(crate) fn words(&self, rows: usize) -> usize {
        rows.div_ceil(GROUP) * self.group()
    }
}

/// Encoded rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Activations<'a> {
    pub(crate) layout: &'a Layout,
    /// Groups of `layout.group()` words.
    pub(crate) words: &'a [u32],
}

impl<'a> Activations<'a> {
    #[inline(always)]
    fn group(&self, row: usize) -> &'a [u32] {
        &self.words[row / GROUP * self.layout.group()..][..self.layout.group()]
    }

    /// Blocks of the group of `row`.
    #[inline(always)]
    pub(crate) fn blocks(&self, row: usize) -> &'a [[Block; GROUP]] {
        let blocks = &self.group(row)[of_group(&self.layout.blocks)];
        blocks.as_chunks().0.as_chunks().0
    }

    #[inline(always)]
    pub(crate) fn pairs(&self, row: usize) -> &'a [u32] {
        &self.group(row)[of_row(&self.layout.pairs, row % GROUP)]
    }

    #[inline(always)]
    pub(crate) fn plain(&self, row: usize) -> &'a [f32] {
        bytemuck::cast_slice(&self.group(row)[of_row(&self.layout.plain, row % GROUP)])
    }
}

#[inline(always)]
fn of_group(part: &Range<usize>) -> Range<usize> {
    GROUP * part.start..GROUP * part.end
}

#[inline(always)]
fn of_row(part: &Range<usize>, row: usize) -> Range<usize> {
    let start = GROUP * part.start + row * part.len();
    start..start + part.len()
}

/// Encodes `x` (`layout.cols` numbers) into a row of a group.
pub(crate) struct Encode<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) x: &'a [f32],
    pub(crate) group: &'a mut [u32],
    pub(crate) row: usize,
}

impl Kernel for Encode<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        encode(simd, self.layout, self.x, self.group, self.row);
    }
}

/// Root mean square norm of `x` (Zhang and Sennrich 2019), scaled by `weight`, then encoded.
pub(crate) struct NormEncode<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) x: &'a [f32],
    pub(crate) weight: &'a [f32],
    pub(crate) eps: f32,
    /// At least `layout.cols` numbers.
    pub(crate) scratch: &'a mut [f32],
    pub(crate) group: &'a mut [u32],
    pub(crate) row: usize,
}

impl Kernel for NormEncode<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (x, x_rest) = self.x.as_chunks::<LANES>();
        let (w, w_rest) = self.weight.as_chunks::<LANES>();
        let normed = &mut self.scratch[..self.layout.cols];
        let (out, out_rest) = normed.as_chunks_mut::<LANES>();
        let mut squares = simd.splat(0.0);
        for x in x {
            let x = simd.load(x);
            squares = simd.fma(x, x, squares);
        }
        let rest: f32 = x_rest.iter().map(|x| x * x).sum();
        let mean = (simd.reduce_add(squares) + rest) / self.x.len() as f32;
        let scale = 1.0 / (mean + self.eps).sqrt();
        let factor = simd.splat(scale);
        for ((x, w), out) in x.iter().zip(w).zip(out) {
            simd.store(simd.mul(simd.mul(simd.load(x), factor), simd.load(w)), out);
        }
        for ((x, w), out) in x_rest.iter().zip(w_rest).zip(out_rest) {
            *out = x * scale * w;
        }
        encode(simd, self.layout, normed, self.group, self.row);
    }
}

#[inline(always)]
fn encode<S: Simd>(simd: S, layout: &Layout, x: &[f32], group: &mut [u32], row: usize) {
    let x = &x[..layout.cols];
    let blocks = group[of_group(&layout.blocks)].as_chunks_mut().0;
    let blocks: &mut [[Block; GROUP]] = blocks.as_chunks_mut().0;
    for (blocks, x) in blocks.iter_mut().zip(x.as_chunks().0) {
        encode_block(simd, x, &mut blocks[row]);
    }
    if !layout.pairs.is_empty() {
        let pairs: &mut [u16] = bytemuck::cast_slice_mut(&mut group[of_row(&layout.pairs, row)]);
        let (whole, rest) = x.as_chunks::<LANES>();
        let (out, out_rest) = pairs.as_chunks_mut::<LANES>();
        for (x, out) in whole.iter().zip(out) {
            simd.store_bf16(simd.load(x), out);
        }
        // A last odd column has a zero beside it.
        out_rest.fill(0);
        for (x, out) in rest.iter().zip(out_rest) {
            *out = half::bf16::from_f32(*x).to_bits();
        }
    }
    if !layout.plain.is_empty() {
        let plain: &mut [f32] = bytemuck::cast_slice_mut(&mut group[of_row(&layout.plain, row)]);
        plain.copy_from_slice(x);
    }
}

/// Encodes as many blocks of 32 numbers as there is room for.
#[inline(always)]
pub(crate) fn encode_blocks<S: Simd>(simd: S, x: &[f32], words: &mut [u32]) {
    let blocks = words.as_chunks_mut().0;
    for (block, x) in blocks.iter_mut().zip(x.as_chunks().0) {
        encode_block(simd, x, block);
    }
}

#[inline(always)]
fn encode_block<S: Simd>(simd: S, x: &[f32; 32], block: &mut Block) {
    let halves: [&[f32; 16]; 2] = [&x.as_chunks().0[0], &x.as_chunks().0[1]];
    let v = [simd.load(halves[0]), simd.load(halves[1])];
    let largest = simd.reduce_max(simd.max(simd.abs(v[0]), simd.abs(v[1])));
    let d = largest / 127.0;
    let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
    let inverse = simd.splat(inverse);
    let q = [
        simd.round(simd.mul(v[0], inverse)),
        simd.round(simd.mul(v[1], inverse)),
    ];
    let bytes: &mut [i8; 48] = bytemuck::cast_mut(block);
    let bytes = bytes.as_chunks_mut::<16>().0;
    simd.store_i8(q[0], &mut bytes[0]);
    simd.store_i8(q[1], &mut bytes[1]);
    let sums = [
        d * simd.reduce_add(simd.float(q[0])),
        d * simd.reduce_add(simd.float(q[1])),
    ];
    block[8] = d.to_bits();
    block[9] = (sums[0] + sums[1]).to_bits();
    block[10] = sums[0].to_bits();
    block[11] = sums[1].to_bits();
}
