//! The K formats: super-blocks of 256 numbers whose sub-blocks have small integer scales.

use super::f16_at;

/// Scale and minimum of sub-block `j`, 6 bits each, packed into 12 bytes: those of sub-blocks 0 to 3 are the low 6 bits of bytes `j` and `j + 4`;
/// of 4 to 7 the low four bits are the halves of byte `j + 4` and the high two are the top bits of bytes `j - 4` and `j`.
fn scale_min(packed: &[u8], j: usize) -> (f32, f32) {
    let (scale, min) = if j < 4 {
        (packed[j] & 63, packed[j + 4] & 63)
    } else {
        let both = packed[j + 4];
        (
            (both & 15) | (packed[j - 4] >> 6 << 4),
            (both >> 4) | (packed[j] >> 6 << 4),
        )
    };
    (f32::from(scale), f32::from(min))
}

/// 32 bytes hold sub-blocks `2 p` (low halves) and `2 p + 1` (high halves).
pub(super) fn q4_k(block: &[u8], out: &mut [f32]) {
    let (d, dmin) = (f16_at(block, 0), f16_at(block, 2));
    let (scales, quants) = (&block[4..16], &block[16..144]);
    for (j, out) in out.chunks_exact_mut(32).enumerate() {
        let (scale, min) = scale_min(scales, j);
        let (scale, min) = (d * scale, dmin * min);
        let bytes = &quants[j / 2 * 32..][..32];
        for (x, byte) in out.iter_mut().zip(bytes) {
            let q = byte >> (j % 2 * 4) & 15;
            *x = scale * f32::from(q) - min;
        }
    }
}

/// As Q4_K; bit `j` of byte `i` of `high` is the fifth bit of number `i` of sub-block `j`.
pub(super) fn q5_k(block: &[u8], out: &mut [f32]) {
    let (d, dmin) = (f16_at(block, 0), f16_at(block, 2));
    let (scales, high, quants) = (&block[4..16], &block[16..48], &block[48..176]);
    for (j, out) in out.chunks_exact_mut(32).enumerate() {
        let (scale, min) = scale_min(scales, j);
        let (scale, min) = (d * scale, dmin * min);
        let bytes = &quants[j / 2 * 32..][..32];
        for ((x, byte), high) in out.iter_mut().zip(bytes).zip(high) {
            let q = (byte >> (j % 2 * 4) & 15) | (high >> j & 1) << 4;
            *x = scale * f32::from(q) - min;
        }
    }
}

/// Each half of 128 numbers has 64 bytes of low and 32 bytes of high bits. Its quarter `k` of 32 numbers: the low four bits are the low (`k < 2`) or
/// high halves of bytes `32 (k % 2)..`, the high two are bits `2 k` and `2 k + 1`.
pub(super) fn q6_k(block: &[u8], out: &mut [f32]) {
    let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let d = f16_at(block, 208);
    for (quarter, out) in out.chunks_exact_mut(32).enumerate() {
        let (half, k) = (quarter / 4, quarter % 4);
        let low = &low[half * 64 + k % 2 * 32..][..32];
        let high = &high[half * 32..][..32];
        for (i, x) in out.iter_mut().enumerate() {
            let q = (low[i] >> (k / 2 * 4) & 15) | (high[i] >> (2 * k) & 3) << 4;
            let scale = d * f32::from(scales[quarter * 2 + i / 16] as i8);
            *x = scale * (f32::from(q) - 32.0);
        }
    }
}
