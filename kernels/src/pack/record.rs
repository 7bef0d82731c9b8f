//! Where the bytes of a row's blocks go in the records of a tile.

use super::{Format, Packed};

/// Writes row `r` of a zeroed tile.
pub(super) fn put_row(shape: Packed, tile: &mut [u8], r: usize, row: &[u8]) {
    let format = shape.format;
    let size = format.record_bytes();
    match format {
        Format::Bf16 | Format::F16 => {
            for (column, number) in row.chunks_exact(2).enumerate() {
                let c = column % 32;
                let at = column / 32 * size + c / 4 % 2 * 512 + lane(r, c / 8) * 16;
                put(tile, at + word(r, c / 2 % 2) * 4 + c % 2 * 2, number);
            }
        }
        Format::Fp8 => {
            let (numbers, scale) = row.split_at(shape.columns);
            for (column, number) in numbers.iter().enumerate() {
                tile[column / 32 * size + byte_place(r, column % 32)] = *number;
            }
            put(tile, shape.records() * size + r * 4, scale);
        }
        Format::Q8_0 | Format::Q4_0 | Format::Q4_1 => {
            let bytes = format.row_bytes(32);
            for (index, block) in row.chunks_exact(bytes).enumerate() {
                let record = &mut tile[index / 2 * size..(index / 2 + 1) * size];
                put_block(format, record, r, index % 2, block);
            }
        }
        Format::Q4K | Format::Q5K => {
            let bytes = format.row_bytes(256);
            for (record, block) in tile.chunks_exact_mut(size).zip(row.chunks_exact(bytes)) {
                // d, dmin and the packed scales stay as they are.
                put(record, 2048 + r * 16, &block[..16]);
                let quants = &block[bytes - 128..];
                for c in 0..256 {
                    let (b, i) = (c / 32, c % 32);
                    let q = quants[b / 2 * 32 + i] >> (b % 2 * 4) & 15;
                    put_nibble(&mut record[b / 2 * 512..], r, b, i, q);
                    if format == Format::Q5K {
                        let bit = block[16 + i] >> b & 1;
                        let at = 2304 + lane(r, i / 8) * 16 + b / 2 * 4 + i % 4;
                        record[at] |= bit << (b % 2 * 4 + word(r, i / 4 % 2));
                    }
                }
            }
        }
        Format::Q6K => {
            for (record, block) in tile.chunks_exact_mut(size).zip(row.chunks_exact(210)) {
                put(record, 3072 + r * 16, &block[192..208]);
                put(record, 3328 + r * 2, &block[208..210]);
                for c in 0..256 {
                    let (half, quarter, i) = (c / 128, c / 32 % 4, c % 32);
                    let low = block[half * 64 + quarter % 2 * 32 + i] >> (quarter / 2 * 4) & 15;
                    let high = block[128 + half * 32 + i] >> (2 * quarter) & 3;
                    let (b, h, c) = (c / 32, c / 16 % 2, c % 16);
                    let lane = lane(r, c / 4) * 16;
                    record[b / 2 * 512 + lane + (b % 2 * 2 + h) * 4 + c % 4] |= low << (r / 8 * 4);
                    record[2048 + b / 4 * 512 + lane + b % 4 * 4 + c % 4] |=
                        high << (4 * h + r / 8 * 2);
                }
            }
        }
    }
}

/// A block of 32 into its half of a record.
fn put_block(format: Format, record: &mut [u8], r: usize, b: usize, block: &[u8]) {
    match format {
        Format::Q8_0 => {
            put(record, 1024 + r % 8 * 8 + b * 4 + r / 8 * 2, &block[..2]);
            for (c, q) in block[2..].iter().enumerate() {
                record[b * 512 + byte_place(r, c)] = *q;
            }
        }
        Format::Q4_0 => {
            put(record, 512 + r % 8 * 8 + b * 4 + r / 8 * 2, &block[..2]);
            put_nibbles(record, r, b, &block[2..]);
        }
        _ => {
            let scales = 512 + r % 8 * 16 + b * 8 + r / 8 * 2;
            put(record, scales, &block[..2]);
            put(record, scales + 4, &block[2..4]);
            put_nibbles(record, r, b, &block[4..]);
        }
    }
}

/// 16 bytes with numbers `i` (low) and `i + 16` (high).
fn put_nibbles(record: &mut [u8], r: usize, b: usize, bytes: &[u8]) {
    for (i, byte) in bytes.iter().enumerate() {
        put_nibble(record, r, b, i, byte & 15);
        put_nibble(record, r, b, i + 16, byte >> 4);
    }
}

fn put_nibble(pair: &mut [u8], r: usize, b: usize, c: usize, q: u8) {
    pair[lane(r, c / 8) * 16 + (b % 2 * 2 + c / 4 % 2) * 4 + c % 4] |= q << (r / 8 * 4);
}

/// The lane that holds row `r` of a fragment, and of the columns the `t`-th part.
fn lane(r: usize, t: usize) -> usize {
    r % 8 * 4 + t
}

/// The word of a fragment for row `r` and the first or second half of the lane's columns.
fn word(r: usize, half: usize) -> usize {
    r / 8 + half * 2
}

/// Where byte (row, column) of a fragment of 32 columns lies.
fn byte_place(r: usize, c: usize) -> usize {
    lane(r, c / 8) * 16 + word(r, c / 4 % 2) * 4 + c % 4
}

fn put(to: &mut [u8], at: usize, bytes: &[u8]) {
    to[at..at + bytes.len()].copy_from_slice(bytes);
}
