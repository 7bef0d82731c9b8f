//! The simplest quantisation of each format, round to nearest: good enough to make test models, not to make good models.

use half::{bf16, f16};

use crate::model::weights::Format;

/// `row` as blocks of `format`.
///
/// # Panics
/// If the row is not a whole number of blocks.
pub fn quantize_row(format: Format, row: &[f32]) -> Vec<u8> {
    let length = format.block_len();
    assert_eq!(row.len() % length, 0, "a row of {format}");
    let mut out = Vec::with_capacity(format.row_bytes(row.len()));
    for block in row.chunks_exact(length) {
        match format {
            Format::F32 => out.extend(block[0].to_le_bytes()),
            Format::F16 => out.extend(f16::from_f32(block[0]).to_le_bytes()),
            Format::Bf16 => out.extend(bf16::from_f32(block[0]).to_le_bytes()),
            Format::Q8_0 => q8_0(block, &mut out),
            Format::Q4_0 => q4_0(block, &mut out),
            Format::Q4_1 => q4_1(block, &mut out),
            Format::Q4K => q45_k(block, 15.0, &mut out),
            Format::Q5K => q45_k(block, 31.0, &mut out),
            Format::Q6K => q6_k(block, &mut out),
        }
    }
    out
}

/// Appends `scale` as f16 and gives back what it became.
fn scale(out: &mut Vec<u8>, scale: f32) -> f32 {
    let rounded = f16::from_f32(scale);
    out.extend(rounded.to_le_bytes());
    rounded.to_f32()
}

/// `x / step`, rounded, in `low..=high`; 0 if there is no step.
fn nearest(x: f32, step: f32, low: f32, high: f32) -> i32 {
    if step == 0.0 {
        return 0;
    }
    (x / step).round().clamp(low, high) as i32
}

fn largest(block: &[f32]) -> f32 {
    block.iter().fold(0.0, |most, x| x.abs().max(most))
}

fn low_high(block: &[f32]) -> (f32, f32) {
    block
        .iter()
        .fold((0.0, 0.0), |(low, high), x| (x.min(low), x.max(high)))
}

fn q8_0(block: &[f32], out: &mut Vec<u8>) {
    let d = scale(out, largest(block) / 127.0);
    out.extend(
        block
            .iter()
            .map(|x| nearest(*x, d, -127.0, 127.0) as i8 as u8),
    );
}

fn q4_0(block: &[f32], out: &mut Vec<u8>) {
    let d = scale(out, largest(block) / 7.0);
    let q = |i: usize| (nearest(block[i], d, -8.0, 7.0) + 8) as u8;
    out.extend((0..16).map(|i| q(i) | q(i + 16) << 4));
}

fn q4_1(block: &[f32], out: &mut Vec<u8>) {
    let (low, high) = low_high(block);
    let d = scale(out, (high - low) / 15.0);
    let m = scale(out, low);
    let q = |i: usize| nearest(block[i] - m, d, 0.0, 15.0) as u8;
    out.extend((0..16).map(|i| q(i) | q(i + 16) << 4));
}

/// Q4_K for `most == 15`, Q5_K for `most == 31`.
fn q45_k(block: &[f32], most: f32, out: &mut Vec<u8>) {
    let ranges: Vec<(f32, f32)> = block.chunks_exact(32).map(low_high).collect();
    let steps: Vec<f32> = ranges
        .iter()
        .map(|(low, high)| (high - low) / most)
        .collect();
    let lows: Vec<f32> = ranges.iter().map(|(low, _)| -low).collect();
    let d = scale(out, largest(&steps) / 63.0);
    let dmin = scale(out, largest(&lows) / 63.0);
    let steps: Vec<u8> = steps
        .iter()
        .map(|x| nearest(*x, d, 0.0, 63.0) as u8)
        .collect();
    let mins: Vec<u8> = lows
        .iter()
        .map(|x| nearest(*x, dmin, 0.0, 63.0) as u8)
        .collect();
    let mut packed = [0u8; 12];
    for j in 0..4 {
        packed[j] = steps[j] | steps[j + 4] >> 4 << 6;
        packed[j + 4] = mins[j] | mins[j + 4] >> 4 << 6;
        packed[j + 8] = (steps[j + 4] & 15) | (mins[j + 4] & 15) << 4;
    }
    out.extend(packed);
    let q: Vec<u8> = block
        .iter()
        .enumerate()
        .map(|(i, x)| {
            let (step, min) = (d * f32::from(steps[i / 32]), dmin * f32::from(mins[i / 32]));
            nearest(x + min, step, 0.0, most) as u8
        })
        .collect();
    if most == 31.0 {
        out.extend((0..32).map(|i| (0..8).fold(0, |bits, j| bits | (q[32 * j + i] >> 4) << j)));
    }
    for pair in q.chunks_exact(64) {
        out.extend((0..32).map(|i| (pair[i] & 15) | (pair[i + 32] & 15) << 4));
    }
}

fn q6_k(block: &[f32], out: &mut Vec<u8>) {
    let steps: Vec<f32> = block
        .chunks_exact(16)
        .map(|part| largest(part) / 31.0)
        .collect();
    let d = f16::from_f32(largest(&steps) / 127.0);
    let scales: Vec<i32> = steps
        .iter()
        .map(|x| nearest(*x, d.to_f32(), 0.0, 127.0))
        .collect();
    let q: Vec<u8> = block
        .iter()
        .enumerate()
        .map(|(i, x)| {
            let step = d.to_f32() * scales[i / 16] as f32;
            (nearest(*x, step, -32.0, 31.0) + 32) as u8
        })
        .collect();
    for half in q.chunks_exact(128) {
        out.extend((0..64).map(|i| (half[i] & 15) | (half[i + 64] & 15) << 4));
    }
    for half in q.chunks_exact(128) {
        out.extend(
            (0..32).map(|i| (0..4).fold(0, |bits, k| bits | half[32 * k + i] >> 4 << (2 * k))),
        );
    }
    out.extend(scales.iter().map(|scale| *scale as u8));
    out.extend(d.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model::quant::dequantize_row, testing::Random};

    #[test]
    fn every_format_gives_back_what_went_in_within_its_step() {
        let mut random = Random(7);
        let row: Vec<f32> = (0..512).map(|_| random.uniform()).collect();
        for format in Format::ALL {
            let bytes = quantize_row(format, &row);
            assert_eq!(bytes.len(), format.row_bytes(row.len()));
            let mut back = vec![0.0; row.len()];
            dequantize_row(format, &bytes, &mut back);
            let worst = row
                .iter()
                .zip(&back)
                .fold(0.0f32, |worst, (a, b)| worst.max((a - b).abs()));
            let allowed = match format {
                Format::F32 => 0.0,
                Format::F16 => 0.0005,
                Format::Bf16 | Format::Q8_0 => 0.005,
                Format::Q4_0 | Format::Q4_1 | Format::Q4K => 0.1,
                Format::Q5K => 0.06,
                Format::Q6K => 0.025,
            };
            assert!(worst <= allowed, "{format}: off by {worst}");
        }
    }

    #[test]
    fn zeros_stay_zeros() {
        for format in Format::ALL {
            let mut back = vec![1.0; 256];
            dequantize_row(format, &quantize_row(format, &[0.0; 256]), &mut back);
            assert_eq!(back, [0.0; 256], "{format}");
        }
    }
}
