//! Products with a page of keys or values, one type a way of keeping them.

use super::super::{
    activation::BLOCK_WORDS,
    blocks::Q8_0,
    kv::PageLayout,
    matmul::{Step, block_product, plain_product},
    simd::{LANES, Simd},
};
use crate::device::PAGE_TOKENS;

/// How keys and values of a format are multiplied.
pub(crate) trait Cache {
    /// Weights of values are pairs of bf16, else f32.
    const PAIRS: bool;

    /// Scores of the sixteen keys of a page for `T` encoded queries.
    fn scores<S: Simd, const T: usize>(
        simd: S,
        keys: &[u8],
        layout: &PageLayout,
        queries: &[&[u32]; T],
    ) -> [S::F; T];

    /// Adds the values of a page, `D` vectors of dimensions from `group` on, times their weights.
    fn values<S: Simd, const T: usize, const D: usize>(
        simd: S,
        values: &[u8],
        layout: &PageLayout,
        group: usize,
        weights: &[&[u32]; T],
        sums: &mut [[S::F; T]; D],
    );
}

/// F32, F16 and BF16: each step adds a column, or a pair of them.
pub(crate) struct Plain<P>(P);

impl<P: Step> Cache for Plain<P> {
    const PAIRS: bool = P::COLUMNS == 2;

    #[inline(always)]
    fn scores<S: Simd, const T: usize>(
        simd: S,
        keys: &[u8],
        layout: &PageLayout,
        queries: &[&[u32]; T],
    ) -> [S::F; T] {
        plain_product::<S, P, T>(simd, keys, layout.padded / P::COLUMNS, queries)
    }

    #[inline(always)]
    fn values<S: Simd, const T: usize, const D: usize>(
        simd: S,
        values: &[u8],
        _: &PageLayout,
        group: usize,
        weights: &[&[u32]; T],
        sums: &mut [[S::F; T]; D],
    ) {
        let steps = PAGE_TOKENS / P::COLUMNS;
        let bytes = steps * P::BYTES;
        let tile = &values[group * bytes..(group + D) * bytes];
        let weights: [&[u32]; T] = std::array::from_fn(|t| &weights[t][..steps]);
        for k in 0..steps {
            let words: [u32; T] = std::array::from_fn(|t| weights[t][k]);
            for d in 0..D {
                P::add(
                    simd,
                    &tile[d * bytes + k * P::BYTES..][..P::BYTES],
                    words,
                    &mut sums[d],
                );
            }
        }
    }
}

/// Keys are a tile of Q8_0; values are int8, and a weight is multiplied with the scale of its token first.
pub(crate) struct Eight;

impl Cache for Eight {
    const PAIRS: bool = false;

    #[inline(always)]
    fn scores<S: Simd, const T: usize>(
        simd: S,
        keys: &[u8],
        layout: &PageLayout,
        queries: &[&[u32]; T],
    ) -> [S::F; T] {
        let blocks = layout.padded / 32;
        let rows: [&[[u32; BLOCK_WORDS]]; T] =
            std::array::from_fn(|t| &queries[t].as_chunks().0[..blocks]);
        block_product::<S, Q8_0, T>(simd, keys, blocks, &rows, false)
    }

    #[inline(always)]
    fn values<S: Simd, const T: usize, const D: usize>(
        simd: S,
        values: &[u8],
        layout: &PageLayout,
        group: usize,
        weights: &[&[u32]; T],
        sums: &mut [[S::F; T]; D],
    ) {
        let (numbers, scales) = values.split_at(layout.value_scales());
        for d in 0..D {
            let scales: &[u16] = bytemuck::cast_slice(&scales[(group + d) / 2 * 32..][..32]);
            let scales = simd.load_f16(&scales.as_chunks().0[0]);
            let mut scaled = [[0.0; PAGE_TOKENS]; T];
            for t in 0..T {
                let weights: &[f32] = bytemuck::cast_slice(&weights[t][..PAGE_TOKENS]);
                simd.store(
                    simd.mul(simd.load(&weights.as_chunks().0[0]), scales),
                    &mut scaled[t],
                );
            }
            let tile: &[i8] = bytemuck::cast_slice(&numbers[(group + d) * 256..][..256]);
            for (k, row) in tile.as_chunks::<LANES>().0.iter().enumerate() {
                let row = simd.load_i8(row);
                for t in 0..T {
                    sums[d][t] = simd.fma(row, simd.splat(scaled[t][k]), sums[d][t]);
                }
            }
        }
    }
}
