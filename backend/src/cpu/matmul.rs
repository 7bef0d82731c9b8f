//! A tile of sixteen rows times all tokens of a batch. One block of weights is unpacked into registers and used for as many tokens as fit in the
//! others ([`Simd::TOKENS`]); the tile stays in the first or second cache for the next ones.
//!
//! Invariant: an element of the result is the same sequence of operations whatever the number of tokens, so a token's result depends neither on the batch
//! nor on whether it was a draft.

use super::{
    activation::{Activations, Block, GROUP},
    blocks::{Blocks, Q4_0, Q4_1, Q4K, Q5K, Q6K, Q8_0, Scales},
    pack::{Matrix, quant_bytes, record_blocks, record_bytes, scales_start},
    simd::{Kernel, LANES, Simd},
};
use crate::model::weights::Format;

/// Bytes between what is read and what is fetched from memory.
const AHEAD: usize = 2048;

/// `out[token] = tile × x[token]`.
pub(crate) struct TileProduct<'a> {
    pub(crate) matrix: &'a Matrix,
    pub(crate) tile: usize,
    pub(crate) x: Activations<'a>,
    /// One entry a token.
    pub(crate) out: &'a mut [[f32; LANES]],
}

impl Kernel for TileProduct<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        match self.matrix.format {
            Format::F32 => groups::<S, Plain<PlainF32>>(simd, self),
            Format::F16 => groups::<S, Plain<PlainF16>>(simd, self),
            Format::Bf16 => groups::<S, Plain<PlainBf16>>(simd, self),
            Format::Q8_0 => groups::<S, Quantised<Q8_0>>(simd, self),
            Format::Q4_0 => groups::<S, Quantised<Q4_0>>(simd, self),
            Format::Q4_1 => groups::<S, Quantised<Q4_1>>(simd, self),
            Format::Q4K => groups::<S, Quantised<Q4K>>(simd, self),
            Format::Q5K => groups::<S, Quantised<Q5K>>(simd, self),
            Format::Q6K => groups::<S, Quantised<Q6K>>(simd, self),
        }
    }
}

/// How a tile of a format is multiplied with `T` tokens, `first..first + T`.
trait Product {
    fn group<S: Simd, const T: usize>(
        simd: S,
        matrix: &Matrix,
        tile: &[u8],
        x: Activations<'_>,
        first: usize,
    ) -> [S::F; T];
}

#[inline(always)]
fn groups<S: Simd, P: Product>(simd: S, product: TileProduct<'_>) {
    let TileProduct {
        matrix,
        tile,
        x,
        out,
    } = product;
    let tile = matrix.tile(tile);
    let tokens = out.len();
    let mut first = 0;
    while S::TOKENS >= 16 && tokens - first >= 16 {
        group::<S, P, 16>(simd, matrix, tile, x, first, out);
        first += 16;
    }
    while S::TOKENS >= 8 && tokens - first >= 8 {
        group::<S, P, 8>(simd, matrix, tile, x, first, out);
        first += 8;
    }
    while S::TOKENS >= 4 && tokens - first >= 4 {
        group::<S, P, 4>(simd, matrix, tile, x, first, out);
        first += 4;
    }
    while tokens - first >= 2 {
        group::<S, P, 2>(simd, matrix, tile, x, first, out);
        first += 2;
    }
    if first < tokens {
        group::<S, P, 1>(simd, matrix, tile, x, first, out);
    }
}

#[inline(always)]
fn group<S: Simd, P: Product, const T: usize>(
    simd: S,
    matrix: &Matrix,
    tile: &[u8],
    x: Activations<'_>,
    first: usize,
    out: &mut [[f32; LANES]],
) {
    let sums = P::group::<S, T>(simd, matrix, tile, x, first);
    for (sum, out) in sums.into_iter().zip(&mut out[first..]) {
        simd.store(sum, out);
    }
}

struct Quantised<B>(B);

impl<B: Blocks> Product for Quantised<B> {
    #[inline(always)]
    fn group<S: Simd, const T: usize>(
        simd: S,
        matrix: &Matrix,
        tile: &[u8],
        x: Activations<'_>,
        first: usize,
    ) -> [S::F; T] {
        // Tokens come in descending powers of two, so that those of a call are of one group.
        let blocks = &x.blocks(first)[..matrix.cols / 32];
        block_product::<S, B, T>(simd, tile, blocks, first % GROUP)
    }
}

/// A tile of a block format times `T` rows of a group, from row `first` on.
#[inline(always)]
fn block_product<S: Simd, B: Blocks, const T: usize>(
    simd: S,
    tile: &[u8],
    blocks: &[[Block; GROUP]],
    first: usize,
) -> [S::F; T] {
    let (size, in_record) = (quant_bytes(B::FORMAT), record_blocks(B::FORMAT));
    let mut sums = [simd.splat(0.0); T];
    for (block, rows) in blocks.iter().enumerate() {
        let record =
            &tile[block / in_record * record_bytes(B::FORMAT)..][..record_bytes(B::FORMAT)];
        let (quants, scales) = record.split_at(scales_start(B::FORMAT));
        let quants = &quants[block % in_record * size..][..size];
        if T <= 2 {
            // Few tokens: reading the weights is all the work, and the processor's own prefetching begins anew on every page.
            for line in 0..size.div_ceil(64) + 1 {
                simd.prefetch(quants, AHEAD + 64 * line);
            }
        }
        let q = B::quants(simd, quants);
        let scales = B::scales(simd, scales, block % in_record);
        let rows: &[Block; T] = &rows[first..first + T].as_chunks().0[0];
        // Four products at a time: the latency of one chain would be the limit. Spelled out, so that sums stay in registers.
        if T < 4 {
            add_block::<S, B, 1, T>(simd, &q, &scales, rows, 0, &mut sums);
            if T > 1 {
                add_block::<S, B, 1, T>(simd, &q, &scales, rows, 1, &mut sums);
            }
            continue;
        }
        add_block::<S, B, 4, T>(simd, &q, &scales, rows, 0, &mut sums);
        if T > 4 {
            add_block::<S, B, 4, T>(simd, &q, &scales, rows, 4, &mut sums);
        }
        if T > 8 {
            add_block::<S, B, 4, T>(simd, &q, &scales, rows, 8, &mut sums);
            add_block::<S, B, 4, T>(simd, &q, &scales, rows, 12, &mut sums);
        }
    }
    sums
}

/// A block of weights times that of `N` rows, from row `first` on.
#[inline(always)]
fn add_block<S: Simd, B: Blocks, const N: usize, const T: usize>(
    simd: S,
    q: &[S::B; 8],
    scales: &Scales<S::F>,
    rows: &[Block; T],
    first: usize,
    sums: &mut [S::F; T],
) {
    let Scales { d, m } = scales;
    for half in 0..2 {
        if half == 1 && !B::HALVES {
            break;
        }
        let groups = if B::HALVES { 4 } else { 8 };
        let mut dots = [simd.zero_i(); N];
        for g in 0..groups {
            for t in 0..N {
                let x = rows[first + t][groups * half + g] as i32;
                dots[t] = if B::EIGHT {
                    simd.dot_8(dots[t], q[groups * half + g], x)
                } else {
                    simd.dot_u7(dots[t], q[groups * half + g], x)
                };
            }
        }
        for t in 0..N {
            let x = &rows[first + t];
            let sum = &mut sums[first + t];
            if !B::EIGHT || S::OFFSET_8 != 0.0 {
                let words = if B::HALVES { 10 + half } else { 9 };
                *sum = simd.fma(m[half], simd.splat(f32::from_bits(x[words])), *sum);
            }
            let scale = simd.splat(f32::from_bits(x[8]));
            *sum = simd.fma(simd.float(dots[t]), simd.mul(d[half], scale), *sum);
        }
    }
}

/// How a step of a plain format (a column, or a pair of them) is added to the sums of `T` tokens.
pub(crate) trait Step {
    /// Bytes of a step in a tile.
    const BYTES: usize;
    /// Columns of a step.
    const COLUMNS: usize;

    fn words<'a>(x: Activations<'a>, row: usize) -> &'a [u32];

    fn add<S: Simd, const T: usize>(simd: S, weights: &[u8], x: [u32; T], sums: &mut [S::F; T]);
}

struct Plain<P>(P);

impl<P: Step> Product for Plain<P> {
    #[inline(always)]
    fn group<S: Simd, const T: usize>(
        simd: S,
        matrix: &Matrix,
        tile: &[u8],
        x: Activations<'_>,
        first: usize,
    ) -> [S::F; T] {
        let steps = matrix.cols.div_ceil(P::COLUMNS);
        let rows: [&[u32]; T] = std::array::from_fn(|t| P::words(x, first + t));
        plain_product::<S, P, T>(simd, tile, steps, &rows)
    }
}

/// `steps` steps of a tile times `T` tokens, `[steps]` words each.
#[inline(always)]
pub(crate) fn plain_product<S: Simd, P: Step, const T: usize>(
    simd: S,
    tile: &[u8],
    steps: usize,
    rows: &[&[u32]; T],
) -> [S::F; T] {
    let rows: [&[u32]; T] = std::array::from_fn(|t| &rows[t][..steps]);
    // Even and odd steps have a sum each: the latency of one chain would be the limit.
    let mut even = [simd.splat(0.0); T];
    let mut odd = [simd.splat(0.0); T];
    let pairs = tile[..steps * P::BYTES].chunks_exact(2 * P::BYTES);
    let last = pairs.remainder();
    for (k, weights) in pairs.enumerate() {
        let (first, second) = weights.split_at(P::BYTES);
        P::add(
            simd,
            first,
            std::array::from_fn(|t| rows[t][2 * k]),
            &mut even,
        );
        P::add(
            simd,
            second,
            std::array::from_fn(|t| rows[t][2 * k + 1]),
            &mut odd,
        );
    }
    if !last.is_empty() {
        P::add(
            simd,
            last,
            std::array::from_fn(|t| rows[t][steps - 1]),
            &mut even,
        );
    }
    for t in 0..T {
        even[t] = simd.add(even[t], odd[t]);
    }
    even
}

pub(crate) struct PlainF32;
pub(crate) struct PlainF16;
pub(crate) struct PlainBf16;

impl Step for PlainF32 {
    const BYTES: usize = 64;
    const COLUMNS: usize = 1;

    #[inline(always)]
    fn words<'a>(x: Activations<'a>, row: usize) -> &'a [u32] {
        bytemuck::cast_slice(x.plain(row))
    }

    #[inline(always)]
    fn add<S: Simd, const T: usize>(simd: S, weights: &[u8], x: [u32; T], sums: &mut [S::F; T]) {
        let (weights, _) = weights.as_chunks::<64>();
        let w = simd.load(bytemuck::cast_ref(&weights[0]));
        for t in 0..T {
            sums[t] = simd.fma(w, simd.splat(f32::from_bits(x[t])), sums[t]);
        }
    }
}

impl Step for PlainF16 {
    const BYTES: usize = 32;
    const COLUMNS: usize = 1;

    #[inline(always)]
    fn words<'a>(x: Activations<'a>, row: usize) -> &'a [u32] {
        bytemuck::cast_slice(x.plain(row))
    }

    #[inline(always)]
    fn add<S: Simd, const T: usize>(simd: S, weights: &[u8], x: [u32; T], sums: &mut [S::F; T]) {
        let (weights, _) = weights.as_chunks::<32>();
        let w = simd.load_f16(bytemuck::cast_ref(&weights[0]));
        for t in 0..T {
            sums[t] = simd.fma(w, simd.splat(f32::from_bits(x[t])), sums[t]);
        }
    }
}

impl Step for PlainBf16 {
    const BYTES: usize = 64;
    const COLUMNS: usize = 2;

    #[inline(always)]
    fn words<'a>(x: Activations<'a>, row: usize) -> &'a [u32] {
        x.pairs(row)
    }

    #[inline(always)]
    fn add<S: Simd, const T: usize>(simd: S, weights: &[u8], x: [u32; T], sums: &mut [S::F; T]) {
        let (weights, _) = weights.as_chunks::<64>();
        let w = simd.bytes(&weights[0]);
        for t in 0..T {
            sums[t] = simd.dot_bf16(sums[t], w, x[t]);
        }
    }
}

/// `gate[i] = silu(gate[i]) * up[i]`, with `silu(x) = x / (1 + e^-x)`.
pub(crate) struct SiluMul<'a> {
    pub(crate) gate: &'a mut [[f32; LANES]],
    pub(crate) up: &'a [[f32; LANES]],
}

impl Kernel for SiluMul<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let one = simd.splat(1.0);
        for (gate, up) in self.gate.iter_mut().zip(self.up) {
            let x = simd.load(gate);
            let e = simd.exp(simd.sub(simd.splat(0.0), x));
            simd.store(simd.mul(simd.div(x, simd.add(one, e)), simd.load(up)), gate);
        }
    }
}

/// A row of a matrix as f32, for the embedding of a token.
pub(crate) struct Row<'a> {
    pub(crate) matrix: &'a Matrix,
    pub(crate) row: usize,
    pub(crate) out: &'a mut [f32],
}

impl Kernel for Row<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Row { matrix, row, out } = self;
        let (tile, lane) = (matrix.tile(row / LANES), row % LANES);
        match matrix.format {
            Format::F32 => {
                let tile: &[[f32; LANES]] = bytemuck::cast_slice(&tile[..matrix.cols * 64]);
                out.iter_mut().zip(tile).for_each(|(out, x)| *out = x[lane]);
            }
            Format::F16 => {
                let tile: &[[u16; LANES]] = bytemuck::cast_slice(&tile[..matrix.cols * 32]);
                for (out, x) in out.iter_mut().zip(tile) {
                    *out = half::f16::from_bits(x[lane]).to_f32();
                }
            }
            Format::Bf16 => {
                let tile: &[[[u16; 2]; LANES]] =
                    bytemuck::cast_slice(&tile[..matrix.cols.div_ceil(2) * 64]);
                for (i, out) in out.iter_mut().enumerate() {
                    *out = f32::from_bits(u32::from(tile[i / 2][lane][i % 2]) << 16);
                }
            }
            Format::Q8_0 => block_row::<S, Q8_0>(simd, tile, lane, out),
            Format::Q4_0 => block_row::<S, Q4_0>(simd, tile, lane, out),
            Format::Q4_1 => block_row::<S, Q4_1>(simd, tile, lane, out),
            Format::Q4K => block_row::<S, Q4K>(simd, tile, lane, out),
            Format::Q5K => block_row::<S, Q5K>(simd, tile, lane, out),
            Format::Q6K => block_row::<S, Q6K>(simd, tile, lane, out),
        }
    }
}

#[inline(always)]
fn block_row<S: Simd, B: Blocks>(simd: S, tile: &[u8], lane: usize, out: &mut [f32]) {
    let (size, in_record) = (quant_bytes(B::FORMAT), record_blocks(B::FORMAT));
    let signed = B::EIGHT && S::OFFSET_8 == 0.0;
    for (block, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let record =
            &tile[block / in_record * record_bytes(B::FORMAT)..][..record_bytes(B::FORMAT)];
        let (quants, scales) = record.split_at(scales_start(B::FORMAT));
        let q = B::quants(simd, &quants[block % in_record * size..][..size]);
        let scales = B::scales(simd, scales, block % in_record);
        let mut d = [[0.0; LANES]; 2];
        let mut m = [[0.0; LANES]; 2];
        for half in 0..2 {
            simd.store(scales.d[half], &mut d[half]);
            simd.store(scales.m[half], &mut m[half]);
        }
        for (group, q) in q.into_iter().enumerate() {
            let mut bytes = [0; 64];
            simd.store_bytes(q, &mut bytes);
            let half = group / 4;
            for i in 0..4 {
                let byte = bytes[4 * lane + i];
                let q = if signed {
                    f32::from(byte as i8)
                } else {
                    f32::from(byte)
                };
                out[4 * group + i] = if signed {
                    q * d[half][lane]
                } else {
                    q * d[half][lane] + m[half][lane]
                };
            }
        }
    }
}
