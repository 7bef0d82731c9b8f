//! `encode.cu`

use bytemuck::{Pod, Zeroable};

use super::word;
use crate::{
    launch::{Launch, Memory, ShapeError},
    pack::{Encoding, Packed},
    source::Kernel,
};

/// Encoded rows: `values [tokens][stride]` and `scales [tokens][scales_stride]` of two f32.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EncodedShape {
    pub encoding: Encoding,
    /// Blocks of 32 columns: those of the weights' records.
    pub blocks: usize,
}

impl EncodedShape {
    /// For a product with these weights.
    pub fn of(weights: Packed) -> EncodedShape {
        EncodedShape {
            encoding: weights.format.encoding(),
            blocks: weights.records() * (weights.format.record_columns() / 32),
        }
    }

    /// Bytes of a row of values.
    pub fn stride(self) -> usize {
        self.blocks * 32 * self.encoding.bytes()
    }

    /// Scales of a row, 8 bytes each.
    pub fn scales_stride(self) -> usize {
        match self.encoding {
            Encoding::Int8 => self.blocks,
            Encoding::Bf16 | Encoding::F16 => 1,
        }
    }

    /// Bytes of the values of `tokens` rows as [`EncodeSm90`] writes them: whole tiles of 128 tokens by 32 columns.
    pub fn tiles_bytes(self, tokens: usize) -> usize {
        tokens.div_ceil(128) * 128 * self.stride()
    }

    /// Bytes of values and scales of a row.
    pub(super) fn row_bytes(self) -> usize {
        self.stride() + self.scales_stride() * 8
    }
}

/// Encodes rows of f32, see the `.cu` file.
#[derive(Clone, Copy, Debug)]
pub struct Encode {
    /// `[..][columns]` f32
    pub x: Memory,
    /// `[columns]` f32, with the epsilon
    pub norm: Option<(Memory, f32)>,
    /// `[tokens]` u32: which rows of x, and how many x has. `None`: the first `tokens`.
    pub rows: Option<(Memory, usize)>,
    pub tokens: usize,
    pub columns: usize,
    pub shape: EncodedShape,
    pub values: Memory,
    pub scales: Memory,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Params {
    x: u64,
    norm: u64,
    rows: u64,
    values: u64,
    scales: u64,
    x_stride: u32,
    columns: u32,
    blocks: u32,
    stride: u32,
    scales_stride: u32,
    eps: f32,
}

/// The same as tiles for the products of Hopper, see `encode_sm90.cu`: `values` are [`EncodedShape::tiles_bytes`]. Not int8.
#[derive(Clone, Copy, Debug)]
pub struct EncodeSm90(pub Encode);

impl EncodeSm90 {
    pub fn launch(&self) -> Result<Launch, ShapeError> {
        let Encode { tokens, shape, .. } = self.0;
        ShapeError::unless(shape.encoding != Encoding::Int8, || {
            "int8 rows have no tiles".to_owned()
        })?;
        let params = self.0.params(shape.tiles_bytes(tokens))?;
        let grid = [word("tokens", tokens)?, 1, 1];
        let kernel = Kernel::EncodeSm90(shape.encoding);
        Ok(Launch::new(kernel, grid, 0, params))
    }
}

impl Encode {
    pub fn launch(&self) -> Result<Launch, ShapeError> {
        let params = self.params(self.tokens * self.shape.stride())?;
        let grid = [word("tokens", self.tokens)?, 1, 1];
        let kernel = Kernel::Encode(self.shape.encoding);
        Ok(Launch::new(kernel, grid, 0, params))
    }

    fn params(&self, values_bytes: usize) -> Result<Params, ShapeError> {
        let Encode {
            tokens,
            columns,
            shape,
            ..
        } = *self;
        ShapeError::unless(tokens > 0 && columns <= shape.blocks * 32, || {
            format!(
                "{tokens} tokens of {columns} columns in rows of {}",
                shape.blocks * 32
            )
        })?;
        let x_rows = self.rows.map_or(tokens, |(_, rows)| rows);
        Ok(Params {
            x: self.x.hold("x", x_rows * columns * 4)?,
            norm: match self.norm {
                Some((norm, _)) => norm.hold("norm", columns * 4)?,
                None => 0,
            },
            rows: match self.rows {
                Some((rows, _)) => rows.hold("rows", tokens * 4)?,
                None => 0,
            },
            values: self.values.hold("values", values_bytes)?,
            scales: self
                .scales
                .hold("scales", tokens * shape.scales_stride() * 8)?,
            x_stride: word("columns", columns)?,
            columns: word("columns", columns)?,
            blocks: word("blocks", shape.blocks)?,
            stride: word("stride", shape.stride())?,
            scales_stride: word("scales", shape.scales_stride())?,
            eps: self.norm.map_or(0.0, |(_, eps)| eps),
        })
    }
}
