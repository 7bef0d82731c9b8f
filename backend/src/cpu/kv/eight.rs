//! Writing keys and values of 8 bits, a head of a token at a time.

use super::PageLayout;
use crate::{
    cpu::{
        pack::{quant_bytes, record_bytes, scales_start},
        simd::{LANES, Simd},
    },
    model::weights::Format,
};

/// Bytes of sixteen values of each of sixteen tokens.
const GROUP_BYTES: usize = 256;

impl PageLayout {
    /// As [`PageLayout::put`], for Q8_0.
    #[inline(always)]
    pub(super) fn put_eight<S: Simd>(
        &self,
        simd: S,
        layer: &mut [u8],
        head: usize,
        slot: usize,
        key: &[f32],
        value: &[f32],
    ) {
        let keys = &mut layer[self.keys(0, head)..][..self.head_bytes()];
        for (block, x) in key.as_chunks().0.iter().enumerate() {
            let (scale, q) = quantize(simd, x);
            let record = &mut keys[block / 2 * record_bytes(Format::Q8_0)..];
            let quants = &mut record[block % 2 * quant_bytes(Format::Q8_0)..];
            for (four, group) in q.as_chunks::<4>().0.iter().zip(quants.chunks_exact_mut(64)) {
                group[slot * 4..slot * 4 + 4].copy_from_slice(bytemuck::cast_slice(four));
            }
            let scales = &mut record[scales_start(Format::Q8_0) + block % 2 * 32..];
            scales[slot * 2..slot * 2 + 2].copy_from_slice(&scale);
        }
        let values = &mut layer[self.values(0, head)..][..self.head_bytes()];
        let (numbers, scales) = values.split_at_mut(self.value_scales());
        for (block, x) in value.as_chunks().0.iter().enumerate() {
            let (scale, q) = quantize(simd, x);
            let groups = numbers[2 * block * GROUP_BYTES..].chunks_exact_mut(GROUP_BYTES);
            for (sixteen, group) in q.as_chunks::<LANES>().0.iter().zip(groups) {
                let pair = &mut group[slot / 2 * 32..][..32];
                for (&q, out) in sixteen.iter().zip(pair.as_chunks_mut::<2>().0) {
                    out[slot % 2] = q as u8;
                }
            }
            scales[block * 32 + slot * 2..][..2].copy_from_slice(&scale);
        }
    }
}

/// The scale, an f16, and the numbers in units of it.
#[inline(always)]
fn quantize<S: Simd>(simd: S, x: &[f32; 32]) -> ([u8; 2], [i8; 32]) {
    let halves = x.as_chunks::<LANES>().0;
    let v = [simd.load(&halves[0]), simd.load(&halves[1])];
    let largest = simd.reduce_max(simd.max(simd.abs(v[0]), simd.abs(v[1])));
    let scale = half::f16::from_f32(largest / 127.0);
    let unit = scale.to_f32();
    let inverse = simd.splat(if unit > 0.0 { 1.0 / unit } else { 0.0 });
    // A scale that was rounded down would give 128.
    let (least, most) = (simd.splat(-127.0), simd.splat(127.0));
    let mut q = [0; 32];
    for (v, out) in v.into_iter().zip(q.as_chunks_mut().0) {
        let x = simd.min(simd.max(simd.mul(v, inverse), least), most);
        simd.store_i8(simd.round(x), out);
    }
    (scale.to_le_bytes(), q)
}
