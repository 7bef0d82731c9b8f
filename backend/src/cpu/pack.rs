//! Weights in the order in which the kernels read them: tiles of sixteen rows, so that one register holds four products of each of sixteen rows, and the
//! vector of activations is broadcast. A tile is one contiguous piece, read from front to back.
//! No number is changed; quantised weights take as many bytes as in the file (Q4_K and Q5_K 3 % more).
//!
//! ```text
//! tile                records of 1 (Q4_1), 2 (Q4_0, Q8_0) or 8 blocks (K-quants): the numbers of each block, then the scales of all, so that reading a
//!                     matrix is one stream through memory
//! numbers of a block  [group of 4 columns][row 0..16][column of the group]        u8; 4-bit: groups g (low) and g + 4 (high) share a byte;
//!                     then bit 4 (Q5_K, 64 bytes, bit g of byte (row, column)) or bits 4 and 5 (Q6_K, 2 × 64 bytes, bits 2 (g % 4) of half g / 4)
//! scales              Q4_0, Q8_0: d f16 [block][16]       Q4_1: d, m f16 [2][16]
//!                     Q4_K, Q5_K: d, dmin f16 [2][16], then sc, m u8 [8][2][16]
//!                     Q6_K:       d f16 [16], then sc i8 [8][2 halves][16]
//! F32, F16            [column][16]        BF16: [pair of columns][16][2]
//! ```

use std::sync::Arc;

use memmap2::{Mmap, MmapMut};

use super::{simd::LANES, threads::Team};
use crate::model::weights::{Format, Tensor};

/// A matrix packed in tiles of [`LANES`] rows; rows past the end are zero.
#[derive(Clone, Debug)]
pub(crate) struct Matrix {
    pub(crate) format: Format,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    arena: Arc<Mmap>,
    start: usize,
}

impl Matrix {
    pub(crate) fn tiles(&self) -> usize {
        self.rows.div_ceil(LANES)
    }

    /// Bytes of tile `index`.
    #[inline]
    pub(crate) fn tile(&self, index: usize) -> &[u8] {
        let bytes = tile_bytes(self.format, self.cols);
        let start = self.start + index * bytes;
        &self.arena[start..start + bytes]
    }
}

/// Bytes of a block's numbers in a tile.
pub(crate) const fn quant_bytes(format: Format) -> usize {
    match format {
        Format::Q8_0 => 512,
        Format::Q4_0 | Format::Q4_1 | Format::Q4K => 256,
        Format::Q5K => 320,
        Format::Q6K => 384,
        Format::F32 | Format::F16 | Format::Bf16 => 0,
    }
}

/// Blocks of a record; 0 for the plain formats.
pub(crate) const fn record_blocks(format: Format) -> usize {
    match format {
        Format::Q4_1 => 1,
        Format::Q8_0 | Format::Q4_0 => 2,
        Format::Q4K | Format::Q5K | Format::Q6K => 8,
        Format::F32 | Format::F16 | Format::Bf16 => 0,
    }
}

/// Where the scales begin in a record.
pub(crate) const fn scales_start(format: Format) -> usize {
    record_blocks(format) * quant_bytes(format)
}

/// Bytes of a record: whole cache lines.
pub(crate) const fn record_bytes(format: Format) -> usize {
    let scales = match format {
        Format::Q8_0 | Format::Q4_0 | Format::Q4_1 => 64,
        Format::Q4K | Format::Q5K => 320,
        Format::Q6K => 288,
        Format::F32 | Format::F16 | Format::Bf16 => 0,
    };
    (scales_start(format) + scales).next_multiple_of(64)
}

/// Bytes of a tile: whole cache lines.
pub(crate) fn tile_bytes(format: Format, cols: usize) -> usize {
    match format {
        Format::F32 => cols * 64,
        Format::F16 => (cols * 32).next_multiple_of(64),
        Format::Bf16 => cols.div_ceil(2) * 64,
        _ => (cols / 32).div_ceil(record_blocks(format)) * record_bytes(format),
    }
}

/// Bytes of a packed matrix.
pub(crate) fn matrix_bytes(format: Format, rows: usize, cols: usize) -> usize {
    rows.div_ceil(LANES) * tile_bytes(format, cols)
}

/// A matrix to pack: row `i` is row `source(i)` of the tensor.
pub(crate) struct Source<'a> {
    pub(crate) tensor: &'a Tensor,
    /// Rows of each head are reordered, for Q and K: see [`halves`].
    pub(crate) heads: Option<HeadRows>,
}

/// Rows of a projection whose heads turn in pairs `2 i, 2 i + 1`, reordered to `i, i + dim / 2`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadRows {
    pub(crate) head_dim: usize,
    /// Rotated dimensions.
    pub(crate) rope_dim: usize,
}

impl HeadRows {
    /// The row of the file that becomes row `row`.
    fn source(self, row: usize) -> usize {
        let (head, dim) = (row / self.head_dim, row % self.head_dim);
        let half = self.rope_dim / 2;
        let from = if dim >= self.rope_dim {
            dim
        } else {
            dim % half * 2 + dim / half
        };
        head * self.head_dim + from
    }
}

/// Packs all matrices into one allocation. `done` is called with each tensor whose bytes in the file are no longer needed.
pub(crate) fn pack(
    team: &mut Team,
    sources: &[Source<'_>],
    done: impl Fn(&Tensor),
) -> std::io::Result<Vec<Matrix>> {
    let sizes: Vec<usize> = sources
        .iter()
        .map(|source| matrix_bytes(source.tensor.format, source.tensor.rows, source.tensor.cols))
        .collect();
    let mut arena = MmapMut::map_anon(sizes.iter().sum::<usize>().max(64))?;
    // Fewer misses of the TLB while streaming; only a hint.
    #[cfg(target_os = "linux")]
    let _ = arena.advise(memmap2::Advice::HugePage);
    let mut rest = &mut arena[..];
    for (source, size) in sources.iter().zip(&sizes) {
        let (own, after) = rest.split_at_mut(*size);
        rest = after;
        let tensor = source.tensor;
        let tile = tile_bytes(tensor.format, tensor.cols);
        let tiles = tensor.rows.div_ceil(LANES);
        team.rows(own, tile, tiles, 4, |index, out| {
            for lane in 0..LANES.min(tensor.rows - index * LANES) {
                let row = index * LANES + lane;
                let row = source.heads.map_or(row, |heads| heads.source(row));
                pack_row(tensor.format, tensor.row(row), lane, out);
            }
        });
        done(tensor);
    }
    let arena = Arc::new(arena.make_read_only()?);
    let mut start = 0;
    Ok(sources
        .iter()
        .zip(&sizes)
        .map(|(source, size)| {
            let matrix = Matrix {
                format: source.tensor.format,
                rows: source.tensor.rows,
                cols: source.tensor.cols,
                arena: Arc::clone(&arena),
                start,
            };
            start += size;
            matrix
        })
        .collect())
}

/// Writes a row of the file into lane `lane` of a tile.
fn pack_row(format: Format, row: &[u8], lane: usize, tile: &mut [u8]) {
    match format {
        Format::F32 => {
            for (column, x) in row.chunks_exact(4).enumerate() {
                put(tile, column * 64 + lane * 4, x);
            }
        }
        Format::F16 => {
            for (column, x) in row.chunks_exact(2).enumerate() {
                put(tile, column * 32 + lane * 2, x);
            }
        }
        Format::Bf16 => {
            for (column, x) in row.chunks_exact(2).enumerate() {
                put(tile, column / 2 * 64 + lane * 4 + column % 2 * 2, x);
            }
        }
        Format::Q8_0 => small_blocks::<34, 2, 2, 1088>(row, lane, tile),
        Format::Q4_0 => small_blocks::<18, 2, 2, 576>(row, lane, tile),
        Format::Q4_1 => small_blocks::<20, 4, 1, 320>(row, lane, tile),
        Format::Q4K | Format::Q5K | Format::Q6K => {
            let records = tile.chunks_exact_mut(record_bytes(format));
            for (record, block) in records.zip(row.chunks_exact(format.block_bytes())) {
                let (quants, scales) = record.split_at_mut(scales_start(format));
                large_block(format, block, lane, quants, scales);
            }
        }
    }
}

/// Blocks of 32 columns, `HEAD` bytes of scales and then the numbers, `IN` of them to a record. All sizes are known to the compiler: small models start as
/// fast as this loop is.
fn small_blocks<const BLOCK: usize, const HEAD: usize, const IN: usize, const RECORD: usize>(
    row: &[u8],
    lane: usize,
    tile: &mut [u8],
) {
    const { assert!(RECORD == IN * (BLOCK - HEAD) * LANES + 64) }
    assert!(lane < LANES);
    let size = (BLOCK - HEAD) * LANES;
    let (blocks, _) = row.as_chunks::<BLOCK>();
    let (records, _) = tile.as_chunks_mut::<RECORD>();
    for (record, blocks) in records.iter_mut().zip(blocks.chunks(IN)) {
        for (index, block) in blocks.iter().enumerate() {
            let (head, numbers) = block.split_at(HEAD);
            for (part, scale) in head.as_chunks::<2>().0.iter().enumerate() {
                put(record, IN * size + (index + part) * 32 + lane * 2, scale);
            }
            // Byte j of a file's block of 4-bit numbers holds columns j and j + 16, which is the order of the tile too.
            for (group, four) in numbers.as_chunks::<4>().0.iter().enumerate() {
                put(record, index * size + group * 64 + lane * 4, four);
            }
        }
    }
}

/// Writes a block of 256 columns.
fn large_block(format: Format, block: &[u8], lane: usize, quants: &mut [u8], scales: &mut [u8]) {
    let size = quant_bytes(format);
    match format {
        Format::Q4K | Format::Q5K => {
            put(scales, lane * 2, &block[..2]);
            put(scales, 32 + lane * 2, &block[2..4]);
            let packed = &block[4..16];
            let (high, low) = if format == Format::Q5K {
                (Some(&block[16..48]), &block[48..])
            } else {
                (None, &block[16..])
            };
            for sub in 0..8 {
                let (scale, min) = scale_min(packed, sub);
                scales[64 + sub * 32 + lane] = scale;
                scales[64 + sub * 32 + 16 + lane] = min;
                let mut q = [0; 32];
                for (i, q) in q.iter_mut().enumerate() {
                    *q = low[32 * (sub / 2) + i] >> (4 * (sub % 2)) & 15
                        | high.map_or(0, |high| (high[i] >> sub & 1) << 4);
                }
                pack_quants(&q, lane, &mut quants[sub * size..][..size]);
            }
        }
        Format::Q6K => {
            put(scales, lane * 2, &block[208..210]);
            for sub in 0..8 {
                let (half, part) = (sub / 4, sub % 4);
                let mut q = [0; 32];
                for (i, q) in q.iter_mut().enumerate() {
                    let low = block[64 * half + 32 * (part % 2) + i] >> (4 * (part / 2)) & 15;
                    let high = block[128 + 32 * half + i] >> (2 * part) & 3;
                    *q = low | high << 4;
                }
                pack_quants(&q, lane, &mut quants[sub * size..][..size]);
                for part in 0..2 {
                    scales[32 + sub * 32 + part * 16 + lane] = block[192 + 2 * sub + part];
                }
            }
        }
        _ => {}
    }
}

/// Writes 32 numbers of 4, 5 or 6 bits into lane `lane` of a block of 256, 320 or 384 bytes.
fn pack_quants(q: &[u8; 32], lane: usize, block: &mut [u8]) {
    let (low, high) = block.split_at_mut(256);
    for (i, &q) in q.iter().enumerate() {
        let (group, byte) = (i / 4, lane * 4 + i % 4);
        low[group % 4 * 64 + byte] |= (q & 15) << (4 * (group / 4));
        match high.len() {
            64 => high[byte] |= (q >> 4) << group,
            128 => high[group / 4 * 64 + byte] |= (q >> 4) << (2 * (group % 4)),
            _ => {}
        }
    }
}

/// The 6-bit scale and minimum of sub-block `sub` in the 12 bytes of a K-quant block (ggml's `get_scale_min_k4`).
fn scale_min(packed: &[u8], sub: usize) -> (u8, u8) {
    if sub < 4 {
        (packed[sub] & 63, packed[sub + 4] & 63)
    } else {
        (
            packed[sub + 4] & 15 | packed[sub - 4] >> 6 << 4,
            packed[sub + 4] >> 4 | packed[sub] >> 6 << 4,
        )
    }
}

#[inline(always)]
fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    out[at..at + bytes.len()].copy_from_slice(bytes);
}
