//! Rows of weights as files hold them, and the numbers they stand for.

use half::{bf16, f16};
use kernels::pack::{Format, e4m3_value, fp8_row};

use super::random::Random;

/// A random row as the file has it: any quants, scales of about `1 / columns.sqrt()`.
pub(super) fn random_row(random: &mut Random, format: Format, columns: usize) -> Vec<u8> {
    let size = 1.0 / (columns as f32).sqrt();
    let mut bytes: Vec<u8> = Vec::new();
    let half = |random: &mut Random, bytes: &mut Vec<u8>, scale: f32| {
        bytes.extend(f16::from_f32((random.uniform() + 1.5) * scale).to_le_bytes());
    };
    let some = |random: &mut Random, bytes: &mut Vec<u8>, count: usize| {
        bytes.extend((0..count).map(|_| random.next_u32() as u8));
    };
    match format {
        Format::Bf16 => {
            for _ in 0..columns {
                bytes.extend(bf16::from_f32(random.uniform() * size).to_le_bytes());
            }
        }
        Format::F16 => {
            for _ in 0..columns {
                bytes.extend(f16::from_f32(random.uniform() * size).to_le_bytes());
            }
        }
        Format::Fp8 => bytes = fp8_row(&random.numbers(columns, size)),
        Format::Q8_0 | Format::Q4_0 | Format::Q4_1 => {
            for _ in 0..columns / 32 {
                let most = if format == Format::Q8_0 { 127.0 } else { 8.0 };
                half(random, &mut bytes, size / most);
                if format == Format::Q4_1 {
                    half(random, &mut bytes, -size / 2.0);
                }
                let count = if format == Format::Q8_0 { 32 } else { 16 };
                some(random, &mut bytes, count);
            }
        }
        Format::Q4K | Format::Q5K => {
            for _ in 0..columns / 256 {
                half(random, &mut bytes, size / 512.0);
                half(random, &mut bytes, size / 64.0);
                let count = if format == Format::Q4K { 140 } else { 172 };
                some(random, &mut bytes, count);
            }
        }
        Format::Q6K => {
            for _ in 0..columns / 256 {
                some(random, &mut bytes, 208);
                half(random, &mut bytes, size / 2048.0);
            }
        }
    }
    bytes
}

/// The numbers of a row, from the formats' definition (see `backend/src/model/quant.rs`).
pub(super) fn numbers_of(format: Format, columns: usize, row: &[u8]) -> Vec<f64> {
    let half = |at: usize| f64::from(f16::from_le_bytes([row[at], row[at + 1]]).to_f32());
    let k_scale = |at: usize, j: usize| {
        let s = &row[at..at + 12];
        let (scale, min) = if j < 4 {
            (s[j] & 63, s[j + 4] & 63)
        } else {
            (
                (s[j + 4] & 15) | s[j - 4] >> 6 << 4,
                s[j + 4] >> 4 | s[j] >> 6 << 4,
            )
        };
        (f64::from(scale), f64::from(min))
    };
    let number = |c: usize| -> f64 {
        let i = c % 32;
        match format {
            Format::Bf16 => f64::from(bf16::from_le_bytes([row[2 * c], row[2 * c + 1]]).to_f32()),
            Format::F16 => half(2 * c),
            Format::Fp8 => {
                let scale: [u8; 4] = row[columns..].try_into().unwrap();
                f64::from(e4m3_value(row[c])) * f64::from(f32::from_le_bytes(scale))
            }
            Format::Q8_0 => half(c / 32 * 34) * f64::from(row[c / 32 * 34 + 2 + i] as i8),
            Format::Q4_0 => {
                let q = row[c / 32 * 18 + 2 + i % 16] >> (i / 16 * 4) & 15;
                half(c / 32 * 18) * (f64::from(q) - 8.0)
            }
            Format::Q4_1 => {
                let q = row[c / 32 * 20 + 4 + i % 16] >> (i / 16 * 4) & 15;
                half(c / 32 * 20) * f64::from(q) + half(c / 32 * 20 + 2)
            }
            Format::Q4K | Format::Q5K => {
                let size = if format == Format::Q4K { 144 } else { 176 };
                let (at, j) = (c / 256 * size, c / 32 % 8);
                let (scale, min) = k_scale(at + 4, j);
                let mut q = row[at + size - 128 + j / 2 * 32 + i] >> (j % 2 * 4) & 15;
                if format == Format::Q5K {
                    q |= (row[at + 16 + i] >> j & 1) << 4;
                }
                half(at) * scale * f64::from(q) - half(at + 2) * min
            }
            Format::Q6K => {
                let (at, n) = (c / 256 * 210, c % 256);
                let (part, k) = (n / 128, n / 32 % 4);
                let low = row[at + part * 64 + k % 2 * 32 + i] >> (k / 2 * 4) & 15;
                let high = row[at + 128 + part * 32 + i] >> (2 * k) & 3;
                let scale = f64::from(row[at + 192 + n / 16] as i8);
                half(at + 208) * scale * (f64::from(low | high << 4) - 32.0)
            }
        }
    };
    (0..columns).map(number).collect()
}
