//! From stored blocks to numbers. The arithmetic (which products are rounded, in which order) is that of ggml's reference code, so results are equal bit
//! for bit to gguf-py's; `backend/tests/quant.rs` compares them.
//!
//! Layouts follow `ggml-common.h`. All integers and f16 scales are little endian; a row is a whole number of blocks.
//!
//! ```text
//! Q8_0   32: d f16 | 32 × i8                          x = q d
//! Q4_0   32: d f16 | 16 B                             x = (q - 8) d
//! Q4_1   32: d f16 | m f16 | 16 B                     x = q d + m
//!            byte i holds number i in its low and number i + 16 in its high half
//! Q4_K  256: d f16 | dmin f16 | 12 B | 128 B          x = q (d s) - (dmin m), s and m of 6 bits for each 32 numbers
//! Q5_K  256: d f16 | dmin f16 | 12 B | 32 B | 128 B   the same with a fifth bit from the 32 B
//! Q6_K  256: 128 B | 64 B | 16 × i8 | d f16           x = (q - 32) (d s), s for each 16 numbers
//! ```

use half::f16;

use super::weights::Format;

mod kblock;

/// Writes the numbers of one or more whole rows to `out`.
///
/// # Panics
/// If `out.len()` is not a multiple of the block length, or `bytes` is not exactly the blocks for it.
pub fn dequantize_row(format: Format, bytes: &[u8], out: &mut [f32]) {
    let (length, size) = (format.block_len(), format.block_bytes());
    assert_eq!(
        (out.len() % length, bytes.len()),
        (0, out.len() / length * size),
        "{format} row"
    );
    let blocks = bytes.chunks_exact(size).zip(out.chunks_exact_mut(length));
    match format {
        Format::F32 => blocks.for_each(|(block, out)| out[0] = f32_at(block, 0)),
        Format::F16 => blocks.for_each(|(block, out)| out[0] = f16_at(block, 0)),
        Format::Bf16 => blocks.for_each(|(block, out)| out[0] = bf16_at(block, 0)),
        Format::Q8_0 => blocks.for_each(|(block, out)| q8_0(block, out)),
        Format::Q4_0 => blocks.for_each(|(block, out)| q4_0(block, out)),
        Format::Q4_1 => blocks.for_each(|(block, out)| q4_1(block, out)),
        Format::Q4K => blocks.for_each(|(block, out)| kblock::q4_k(block, out)),
        Format::Q5K => blocks.for_each(|(block, out)| kblock::q5_k(block, out)),
        Format::Q6K => blocks.for_each(|(block, out)| kblock::q6_k(block, out)),
    }
}

/// The first block of `bytes` whose scale or minimum (for the plain formats: whose number) is infinite or not a number.
pub fn first_non_finite(format: Format, bytes: &[u8]) -> Option<usize> {
    let f16_finite = |block: &[u8], at| f16_bits(block, at) & 0x7c00 != 0x7c00;
    let mut blocks = bytes.chunks_exact(format.block_bytes());
    match format {
        Format::F32 => blocks.position(|block| !f32_at(block, 0).is_finite()),
        Format::F16 => blocks.position(|block| !f16_finite(block, 0)),
        Format::Bf16 => blocks.position(|block| f16_bits(block, 0) & 0x7f80 == 0x7f80),
        Format::Q8_0 | Format::Q4_0 => blocks.position(|block| !f16_finite(block, 0)),
        Format::Q4_1 | Format::Q4K | Format::Q5K => {
            blocks.position(|block| !(f16_finite(block, 0) && f16_finite(block, 2)))
        }
        Format::Q6K => blocks.position(|block| !f16_finite(block, 208)),
    }
}

fn f16_bits(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

fn f16_at(block: &[u8], at: usize) -> f32 {
    f16::from_bits(f16_bits(block, at)).to_f32()
}

fn bf16_at(block: &[u8], at: usize) -> f32 {
    // By bits: `to_f32` makes a signalling NaN quiet, gguf-py does not.
    f32::from_bits(u32::from(f16_bits(block, at)) << 16)
}

fn f32_at(block: &[u8], at: usize) -> f32 {
    f32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

fn q8_0(block: &[u8], out: &mut [f32]) {
    let d = f16_at(block, 0);
    for (x, q) in out.iter_mut().zip(&block[2..]) {
        *x = f32::from(*q as i8) * d;
    }
}

fn q4_0(block: &[u8], out: &mut [f32]) {
    let d = f16_at(block, 0);
    let (low, high) = out.split_at_mut(16);
    for ((low, high), q) in low.iter_mut().zip(high).zip(&block[2..]) {
        *low = (f32::from(q & 15) - 8.0) * d;
        *high = (f32::from(q >> 4) - 8.0) * d;
    }
}

fn q4_1(block: &[u8], out: &mut [f32]) {
    let (d, m) = (f16_at(block, 0), f16_at(block, 2));
    let (low, high) = out.split_at_mut(16);
    for ((low, high), q) in low.iter_mut().zip(high).zip(&block[4..]) {
        *low = f32::from(q & 15) * d + m;
        *high = f32::from(q >> 4) * d + m;
    }
}
