//! Products with a page of keys or values, one type a way of keeping them.

use super::super::{
    kv::PageLayout,
    matmul::{Step, plain_product},
    simd::Simd,
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
