//! Weights in the order in which tensor cores read them: tiles of 16 rows, in each a stream of records whose bytes lie as lanes hold them. The layout is
//! described in `cuda/formats.cuh`. No number is changed: what a record holds is what the file's blocks held.

mod record;
#[cfg(test)]
mod tests;

use half::bf16;

use crate::launch::ShapeError;

/// Rows of a tile.
pub const TILE_ROWS: usize = 16;

/// How weights are stored. Block formats are those of ggml (`ggml-common.h`).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Format {
    Bf16,
    F16,
    /// e4m3 with an f32 scale for each row; made from other formats by [`fp8_row`].
    Fp8,
    Q8_0,
    Q4_0,
    Q4_1,
    Q4K,
    Q5K,
    Q6K,
}

/// How activations are stored that meet a format.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Encoding {
    /// Blocks of 32 with a scale.
    Int8,
    Bf16,
    /// With a power of two for each row.
    F16,
}

impl Encoding {
    pub const ALL: [Encoding; 3] = [Encoding::Int8, Encoding::Bf16, Encoding::F16];

    pub fn name(self) -> &'static str {
        match self {
            Encoding::Int8 => "int8",
            Encoding::Bf16 => "bf16",
            Encoding::F16 => "f16",
        }
    }

    /// Bytes of a number.
    pub fn bytes(self) -> usize {
        if self == Encoding::Int8 { 1 } else { 2 }
    }
}

impl Format {
    pub const ALL: [Format; 9] = [
        Format::Bf16,
        Format::F16,
        Format::Fp8,
        Format::Q8_0,
        Format::Q4_0,
        Format::Q4_1,
        Format::Q4K,
        Format::Q5K,
        Format::Q6K,
    ];

    /// As in the names of kernels: `q4_0`.
    pub fn name(self) -> &'static str {
        match self {
            Format::Bf16 => "bf16",
            Format::F16 => "f16",
            Format::Fp8 => "fp8",
            Format::Q8_0 => "q8_0",
            Format::Q4_0 => "q4_0",
            Format::Q4_1 => "q4_1",
            Format::Q4K => "q4_k",
            Format::Q5K => "q5_k",
            Format::Q6K => "q6_k",
        }
    }

    pub fn encoding(self) -> Encoding {
        match self {
            Format::Bf16 => Encoding::Bf16,
            Format::F16 | Format::Fp8 => Encoding::F16,
            _ => Encoding::Int8,
        }
    }

    /// Numbers of a block of a row in the file.
    pub fn block_columns(self) -> usize {
        match self {
            Format::Bf16 | Format::F16 | Format::Fp8 => 1,
            Format::Q8_0 | Format::Q4_0 | Format::Q4_1 => 32,
            Format::Q4K | Format::Q5K | Format::Q6K => 256,
        }
    }

    /// Bytes of a row in the file; for [`Format::Fp8`] the numbers and then the scale.
    pub fn row_bytes(self, columns: usize) -> usize {
        match self {
            Format::Bf16 | Format::F16 => columns * 2,
            Format::Fp8 => columns + 4,
            Format::Q8_0 => columns / 32 * 34,
            Format::Q4_0 => columns / 32 * 18,
            Format::Q4_1 => columns / 32 * 20,
            Format::Q4K => columns / 256 * 144,
            Format::Q5K => columns / 256 * 176,
            Format::Q6K => columns / 256 * 210,
        }
    }

    /// Columns of a record.
    pub fn record_columns(self) -> usize {
        match self {
            Format::Bf16 | Format::F16 | Format::Fp8 => 32,
            Format::Q8_0 | Format::Q4_0 | Format::Q4_1 => 64,
            Format::Q4K | Format::Q5K | Format::Q6K => 256,
        }
    }

    /// Bytes of a record: 16 rows.
    pub fn record_bytes(self) -> usize {
        match self {
            Format::Bf16 | Format::F16 => 1024,
            Format::Fp8 => 512,
            Format::Q8_0 => 1088,
            Format::Q4_0 => 576,
            Format::Q4_1 => 640,
            Format::Q4K => 2304,
            Format::Q5K => 2816,
            Format::Q6K => 3360,
        }
    }

    /// Bytes behind the last record of a tile.
    fn tail_bytes(self) -> usize {
        if self == Format::Fp8 { 64 } else { 0 }
    }
}

/// A packed matrix: what it is and how long it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Packed {
    pub format: Format,
    /// `rows` of them are whole tiles only in the packed matrix: missing rows are zero.
    pub rows: usize,
    /// The dimension that is summed over.
    pub columns: usize,
}

impl Packed {
    pub fn new(format: Format, rows: usize, columns: usize) -> Result<Packed, ShapeError> {
        ShapeError::unless(
            rows > 0 && columns > 0 && columns.is_multiple_of(format.block_columns()),
            || {
                format!(
                    "a {} matrix of {rows} x {columns}; columns are a multiple of {}",
                    format.name(),
                    format.block_columns()
                )
            },
        )?;
        Ok(Packed {
            format,
            rows,
            columns,
        })
    }

    pub fn tiles(self) -> usize {
        self.rows.div_ceil(TILE_ROWS)
    }

    /// Records of a tile.
    pub fn records(self) -> usize {
        self.columns.div_ceil(self.format.record_columns())
    }

    pub fn tile_bytes(self) -> usize {
        self.records() * self.format.record_bytes() + self.format.tail_bytes()
    }

    pub fn bytes(self) -> usize {
        self.tiles() * self.tile_bytes()
    }

    /// Writes a tile. `row(r)` gives the bytes of the row that comes to place `r` of the tile, [`Format::row_bytes`] long; `None`: zeros.
    ///
    /// # Panics
    /// If `tile` or a row has another length.
    pub fn pack_tile<'a>(self, tile: &mut [u8], row: impl Fn(usize) -> Option<&'a [u8]>) {
        assert_eq!(tile.len(), self.tile_bytes(), "bytes of a tile");
        tile.fill(0);
        for r in 0..TILE_ROWS {
            if let Some(bytes) = row(r) {
                assert_eq!(
                    bytes.len(),
                    self.format.row_bytes(self.columns),
                    "bytes of a row"
                );
                record::put_row(self, tile, r, bytes);
            }
        }
    }

    /// Packs rows in the order of the file.
    pub fn pack(self, rows: &[u8]) -> Vec<u8> {
        self.pack_ordered(|row| {
            let bytes = self.format.row_bytes(self.columns);
            (row < self.rows).then(|| &rows[row * bytes..(row + 1) * bytes])
        })
    }

    /// Packs the whole matrix; `row` as in [`Packed::pack_tile`], numbered through all tiles.
    pub fn pack_ordered<'a>(self, row: impl Fn(usize) -> Option<&'a [u8]>) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes()];
        for (index, tile) in bytes.chunks_exact_mut(self.tile_bytes()).enumerate() {
            self.pack_tile(tile, |r| row(index * TILE_ROWS + r));
        }
        bytes
    }
}

/// How the dimensions of a head are paired in the file for rotation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Pairs {
    /// `2 i` with `2 i + 1` (GGUF).
    Neighbours,
    /// `i` with `i + rope_dim / 2` (Hugging Face).
    Halves,
    /// Values: nothing turns.
    None,
}

/// The row of a head in the file that comes to row `place` of the head's tiles: rows `r` and `r + 8` of a tile are dimensions that turn together.
pub fn head_row(place: usize, head_dim: usize, rope_dim: usize, pairs: Pairs) -> usize {
    let (tile, r) = (place / TILE_ROWS, place % TILE_ROWS);
    let (pair, second) = (tile * 8 + r % 8, r / 8);
    let turning = rope_dim / 2;
    match pairs {
        Pairs::None => pair + second * head_dim / 2,
        _ if pair >= turning => rope_dim + (pair - turning) + second * (head_dim / 2 - turning),
        Pairs::Neighbours => 2 * pair + second,
        Pairs::Halves => pair + second * turning,
    }
}

/// The row that comes to row `place` of gate and up together: 0 and the row of gate, or 1 and the row of up.
pub fn gate_up_row(place: usize) -> (usize, usize) {
    let (tile, r) = (place / TILE_ROWS, place % TILE_ROWS);
    (r / 8, tile * 8 + r % 8)
}

/// A row as fp8: e4m3 numbers and then the scale, `largest / 448`.
pub fn fp8_row(row: &[f32]) -> Vec<u8> {
    let largest = row.iter().fold(0f32, |most, x| most.max(x.abs()));
    let scale = largest / 448.0;
    let inverse = if largest > 0.0 { 448.0 / largest } else { 0.0 };
    let mut bytes: Vec<u8> = row.iter().map(|x| e4m3(x * inverse)).collect();
    bytes.extend(scale.to_le_bytes());
    bytes
}

/// Nearest e4m3 number, ties to even; beyond 448 becomes 448.
pub fn e4m3(x: f32) -> u8 {
    let sign = (x.to_bits() >> 24) as u8 & 0x80;
    let magnitude = x.abs();
    if magnitude.is_nan() {
        return sign | 0x7f;
    }
    if magnitude < 0.015_625 {
        return sign | (magnitude * 512.0).round_ties_even() as u8;
    }
    if magnitude >= 448.0 {
        return sign | 0x7e;
    }
    let bits = magnitude.to_bits();
    let rounded = bits + 0x7ffff + (bits >> 20 & 1);
    sign | ((rounded - (120 << 23)) >> 20).min(0x7e) as u8
}

/// The number an e4m3 byte stands for.
pub fn e4m3_value(byte: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(byte >> 3 & 15), f32::from(byte & 7));
    let magnitude = match (exponent, byte & 7) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa / 512.0,
        _ => (1.0 + mantissa / 8.0) * (exponent as f32 - 7.0).exp2(),
    };
    if byte & 0x80 == 0 {
        magnitude
    } else {
        -magnitude
    }
}

/// Rounds to bf16, for callers that make rows.
pub fn bf16_row(row: &[f32]) -> Vec<u8> {
    row.iter()
        .flat_map(|x| bf16::from_f32(*x).to_le_bytes())
        .collect()
}
