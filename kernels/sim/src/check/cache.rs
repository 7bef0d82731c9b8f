//! A cache of keys and values, and where its numbers lie.

use half::bf16;
use kernels::{
    ops::CacheShape,
    pack::{e4m3, e4m3_value},
    source::CacheFormat,
};

/// The heads of a model and a cache for it.
#[derive(Clone, Copy)]
pub(super) struct Heads {
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    pub(super) format: CacheFormat,
}

impl Heads {
    pub(super) fn cache(self) -> CacheShape {
        CacheShape {
            format: self.format,
            layers: 2,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
        }
    }
}

/// The layer that the checks work on, of two.
pub(super) const LAYER: usize = 1;

/// A copy of the rule in `cuda/cache.cuh`, from its words: where a number of a head lies, in numbers.
pub(super) fn place(value: bool, token: usize, dim: usize) -> usize {
    let (row, k) = if value {
        (dim % 16, token)
    } else {
        (token, dim % 16)
    };
    let lane = row % 8 * 4 + k / 4;
    // Words of two: (g, first pair), (g + 8, first pair), (g, second pair), (g + 8, second pair).
    let word = k % 4 / 2 * 2 + row / 8;
    dim / 16 * 256 + lane * 8 + word * 2 + k % 2
}

/// Numbers of a head as the cache keeps them.
pub(super) fn stored(format: CacheFormat, x: &[f32]) -> Vec<f32> {
    let scale = x.iter().fold(0f32, |m, x| m.max(x.abs())) / 448.0;
    x.iter()
        .map(|x| match format {
            CacheFormat::Bf16 => bf16::from_f32(*x).to_f32(),
            CacheFormat::Fp8 => e4m3_value(e4m3(x / scale)) * scale,
        })
        .collect()
}
