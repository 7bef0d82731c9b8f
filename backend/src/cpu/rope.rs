//! Rotary position embedding (Su et al. 2021). Heads come with the two dimensions of a pair half the rotated width apart, whatever the file's layout: Q and K
//! of the other layout had their rows reordered when they were packed.

use super::{
    activation::{BLOCK_WORDS, encode_blocks},
    simd::{Kernel, Simd},
};
use crate::model::{
    config::{Rope, RopeScaling},
    plan::KvFormat,
};

/// Angular frequency of each pair, `[dim / 2]`.
pub(crate) fn frequencies(rope: &Rope) -> Vec<f32> {
    (0..rope.dim / 2)
        .map(|i| {
            let frequency =
                (1.0 / f64::from(rope.base).powf(2.0 * i as f64 / rope.dim as f64)) as f32;
            match &rope.scaling {
                RopeScaling::None => frequency,
                RopeScaling::Linear { factor } => frequency / factor,
                RopeScaling::Factors(factors) => frequency / factors.get(i).copied().unwrap_or(1.0),
            }
        })
        .collect()
}

/// Cosines and sines of one position, `[dim / 2]` each, one after the other.
pub(crate) fn turn(frequencies: &[f32], position: usize, out: &mut [f32]) {
    let (cos, sin) = out.split_at_mut(frequencies.len());
    for ((frequency, cos), sin) in frequencies.iter().zip(cos).zip(sin) {
        let angle = f64::from(position as f32 * frequency);
        *cos = angle.cos() as f32;
        *sin = angle.sin() as f32;
    }
}

/// Rotates heads in place: `x` is `[heads][head_dim]`.
pub(crate) struct Rotate<'a> {
    pub(crate) x: &'a mut [f32],
    pub(crate) head_dim: usize,
    /// From [`turn`].
    pub(crate) turn: &'a [f32],
}

impl Kernel for Rotate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let half = self.turn.len() / 2;
        let (cos, sin) = self.turn.split_at(half);
        for head in self.x.chunks_exact_mut(self.head_dim) {
            let (low, rest) = head.split_at_mut(half);
            let high = &mut rest[..half];
            for i in 0..half {
                let (x, y) = (low[i], high[i]);
                low[i] = x * cos[i] - y * sin[i];
                high[i] = y * cos[i] + x * sin[i];
            }
        }
    }
}

/// Scales rotated queries and encodes them for the format of the keys: f32, pairs of bf16, or blocks of int8. A query's words may be more than its numbers
/// need; the padding stays zero.
pub(crate) struct EncodeQueries<'a> {
    /// `[heads][head_dim]`
    pub(crate) x: &'a mut [f32],
    pub(crate) head_dim: usize,
    pub(crate) scale: f32,
    pub(crate) format: KvFormat,
    /// `[heads][words]`
    pub(crate) out: &'a mut [u32],
    /// Of a query.
    pub(crate) words: usize,
}

impl Kernel for EncodeQueries<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for (x, out) in self
            .x
            .chunks_exact_mut(self.head_dim)
            .zip(self.out.chunks_exact_mut(self.words))
        {
            x.iter_mut().for_each(|x| *x *= self.scale);
            match self.format {
                KvFormat::Q8_0 => {
                    encode_blocks(simd, x, out);
                    // In place of the scaled sum: what the offset of the keys adds to a product, as the whole number that it is.
                    for block in out.as_chunks_mut::<BLOCK_WORDS>().0 {
                        let bytes: &[i8] = bytemuck::cast_slice(&block[..8]);
                        let sum: i32 = bytes.iter().map(|&q| i32::from(q)).sum();
                        block[9] = (-(S::OFFSET_8 as i32) * sum) as u32;
                    }
                }
                KvFormat::Bf16 => {
                    let out: &mut [u16] = bytemuck::cast_slice_mut(out);
                    for (out, x) in out.iter_mut().zip(x) {
                        *out = half::bf16::from_f32(*x).to_bits();
                    }
                }
                KvFormat::F32 | KvFormat::F16 => {
                    for (out, x) in out.iter_mut().zip(x) {
                        *out = x.to_bits();
                    }
                }
            }
        }
    }
}
