//! Products of packed weights with activations: `matvec.cu`, `norm_qkv_rope.cu`, `norm_gate_up.cu`.

use bytemuck::{Pod, Zeroable};

use super::{CacheShape, EncodedShape, cache::Layout, word};
use crate::{
    launch::{Launch, MOST_SHARED_BYTES, Memory, ShapeError},
    pack::{Packed, TILE_ROWS},
    source::{CacheFormat, Kernel, Width},
};

/// Activations as a product takes them.
#[derive(Clone, Copy, Debug)]
pub enum Rows {
    /// From [`Encode`](super::Encode): `values`, `scales`.
    Encoded { values: Memory, scales: Memory },
    /// `[tokens][columns]` f32, encoded by each block; `norm`: `[columns]` f32 and the epsilon. Only as many tokens as fit, see [`Input::fits`].
    Plain {
        x: Memory,
        norm: Option<(Memory, f32)>,
    },
    /// From [`EncodeSm90`](super::EncodeSm90), for bf16, f16 and fp8 on Hopper: any number of tokens, best for many.
    Tiles { values: Memory, scales: Memory },
}

/// Weights and activations of a product.
#[derive(Clone, Copy, Debug)]
pub struct Input {
    pub shape: Packed,
    pub weights: Memory,
    pub rows: Rows,
    pub tokens: usize,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Params {
    weights: u64,
    values: u64,
    scales: u64,
    x: u64,
    norm: u64,
    tiles: u32,
    records: u32,
    tile_bytes: u32,
    tokens: u32,
    stride: u32,
    scales_stride: u32,
    x_stride: u32,
    columns: u32,
    eps: f32,
    unused: u32,
}

impl Input {
    /// Can a block encode `tokens` rows for itself?
    pub fn fits(shape: Packed, tokens: usize) -> bool {
        let width = width(tokens);
        width != Width::W128
            && tokens.min(width.get()) * EncodedShape::of(shape).row_bytes() + static_bytes(width)
                <= MOST_SHARED_BYTES
    }

    fn params(&self) -> Result<(Params, Width, usize), ShapeError> {
        let (shape, tokens) = (self.shape, self.tokens);
        ShapeError::unless(tokens > 0, || "no tokens".to_owned())?;
        let encoded = EncodedShape::of(shape);
        let width = match self.rows {
            Rows::Tiles { .. } => Width::Sm90,
            _ => width(tokens),
        };
        let mut params = Params {
            weights: self.weights.hold("weights", shape.bytes())?,
            tiles: word("tiles", shape.tiles())?,
            records: word("records", shape.records())?,
            tile_bytes: word("bytes of a tile", shape.tile_bytes())?,
            tokens: word("tokens", tokens)?,
            stride: word("stride", encoded.stride())?,
            scales_stride: word("scales", encoded.scales_stride())?,
            x_stride: word("columns", shape.columns)?,
            columns: word("columns", shape.columns)?,
            ..Params::zeroed()
        };
        let mut shared = 0;
        match self.rows {
            Rows::Encoded { values, scales } => {
                params.values = values.hold("values", tokens * encoded.stride())?;
                params.scales = scales.hold("scales", tokens * encoded.scales_stride() * 8)?;
            }
            Rows::Tiles { values, scales } => {
                ShapeError::unless(shape.format.block_columns() == 1, || {
                    format!("{} has no product of tiles", shape.format.name())
                })?;
                params.values = values.hold("values", encoded.tiles_bytes(tokens))?;
                params.scales = scales.hold("scales", tokens * encoded.scales_stride() * 8)?;
                shared = HOPPER_SHARED_BYTES;
            }
            Rows::Plain { x, norm } => {
                ShapeError::unless(Input::fits(shape, tokens), || {
                    format!(
                        "{tokens} rows of {} columns are more than a block can encode",
                        shape.columns
                    )
                })?;
                params.x = x.hold("x", tokens * shape.columns * 4)?;
                if let Some((norm, eps)) = norm {
                    params.norm = norm.hold("norm", shape.columns * 4)?;
                    params.eps = eps;
                }
                shared = tokens.min(width.get()) * encoded.row_bytes();
            }
        }
        Ok((params, width, shared))
    }

    /// Blocks of the same tiles follow each other.
    fn grid(&self, width: Width) -> Result<[u32; 3], ShapeError> {
        let tiles = match width {
            Width::W8 | Width::W32 | Width::W64 => 1,
            Width::W128 => 4,
            Width::Sm90 => 8,
        };
        let blocks = self.shape.tiles().div_ceil(tiles);
        ShapeError::unless(blocks <= MOST_BLOCKS_Y, || {
            format!(
                "a matrix of {} rows; at most {}",
                self.shape.rows,
                MOST_BLOCKS_Y * tiles * TILE_ROWS
            )
        })?;
        Ok([
            word("tokens", self.tokens.div_ceil(width.get()))?,
            word("tiles", blocks)?,
            1,
        ])
    }
}

/// Dynamic shared memory of a block of `product_sm90.cuh`: totals, and four stages of two records of 8 tiles and 128 tokens.
const HOPPER_SHARED_BYTES: usize = 8 * 32 * 64 * 4 + 4 * 2 * (8 * 1024 + 8192);

/// Most blocks of a grid in its second direction.
const MOST_BLOCKS_Y: usize = 65_535;

/// Tokens of a block.
fn width(tokens: usize) -> Width {
    if tokens <= 8 {
        Width::W8
    } else if tokens <= 64 {
        Width::W32
    } else {
        Width::W128
    }
}

/// Static shared memory of a product's block.
fn static_bytes(width: Width) -> usize {
    width.get() * 512 + 64
}

/// `out = W x` or `out += W x`.
#[derive(Clone, Copy, Debug)]
pub struct Matvec {
    pub input: Input,
    /// `[tokens][rows]` f32
    pub out: Memory,
    pub add: bool,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct MatvecParams {
    product: Params,
    out: u64,
    rows: u32,
    out_stride: u32,
    add: u32,
    unused: u32,
}

impl Matvec {
    pub fn launch(&self) -> Result<Launch, ShapeError> {
        let (product, width, shared) = self.input.params()?;
        let rows = self.input.shape.rows;
        let params = MatvecParams {
            product,
            out: self.out.hold("out", self.input.tokens * rows * 4)?,
            rows: word("rows", rows)?,
            out_stride: word("rows", rows)?,
            add: u32::from(self.add),
            unused: 0,
        };
        let kernel = Kernel::Matvec(self.input.shape.format, width);
        Ok(Launch::new(kernel, self.input.grid(width)?, shared, params))
    }
}

/// `out = silu(gate) * up`; the weights are gate and up together, `[2 ffn][columns]`, see [`gate_up_row`](crate::pack::gate_up_row).
#[derive(Clone, Copy, Debug)]
pub struct GateUp {
    pub input: Input,
    /// `[tokens][ffn]` f32
    pub out: Memory,
    pub ffn: usize,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct GateUpParams {
    product: Params,
    out: u64,
    ffn: u32,
    unused: u32,
}

impl GateUp {
    pub fn launch(&self) -> Result<Launch, ShapeError> {
        let (product, width, shared) = self.input.params()?;
        let rows = self.ffn.div_ceil(8) * TILE_ROWS;
        ShapeError::unless(self.input.shape.rows == rows, || {
            format!(
                "gate and up have {} rows together; {rows} are needed",
                self.input.shape.rows
            )
        })?;
        let params = GateUpParams {
            product,
            out: self.out.hold("out", self.input.tokens * self.ffn * 4)?,
            ffn: word("ffn", self.ffn)?,
            unused: 0,
        };
        let kernel = Kernel::NormGateUp(self.input.shape.format, width);
        Ok(Launch::new(kernel, self.input.grid(width)?, shared, params))
    }
}

/// Queries, keys and values of a layer, or a run of whole heads of them when their formats differ.
#[derive(Clone, Copy, Debug)]
pub struct Qkv {
    /// Weights `[heads of the run * head_dim][columns]`, rows ordered by [`head_row`](crate::pack::head_row).
    pub input: Input,
    pub cache: CacheShape,
    pub layer: usize,
    /// Query heads of the layer.
    pub heads: usize,
    /// Of the run: heads are counted over queries, then keys, then values.
    pub first_head: usize,
    pub rope_dim: usize,
    /// `[positions][rope_dim / 2]` cosine and sine, f32; for every position that occurs.
    pub turns: Memory,
    /// `[tokens]` u32
    pub positions: Memory,
    /// `[tokens]` u32: page * 16 + place
    pub slots: Memory,
    /// `[tokens][heads][head_dim]` bf16, multiplied by log2(e) / sqrt(head_dim)
    pub q: Memory,
    /// Pages.
    pub pool: Memory,
    /// `[tokens][2][kv_heads][head_dim]` f32, for [`AppendFp8`]; only with a cache of that format.
    pub kv: Option<Memory>,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct QkvParams {
    product: Params,
    turns: u64,
    positions: u64,
    slots: u64,
    q: u64,
    pool: u64,
    kv: u64,
    cache: Layout,
    heads: u32,
    first_head: u32,
    rope_dim: u32,
    query_scale: f32,
}

impl Qkv {
    fn params(&self) -> Result<(QkvParams, Width, usize), ShapeError> {
        let (product, width, shared) = self.input.params()?;
        let (cache, tokens) = (self.cache, self.input.tokens);
        let all = self.heads + 2 * cache.kv_heads;
        let run = self.input.shape.rows / cache.head_dim.max(1);
        ShapeError::unless(
            self.input.shape.rows == run * cache.head_dim && self.first_head + run <= all,
            || {
                format!(
                    "{} rows from head {} on; heads are {} rows and there are {all}",
                    self.input.shape.rows, self.first_head, cache.head_dim
                )
            },
        )?;
        ShapeError::unless(
            self.rope_dim <= cache.head_dim && self.rope_dim.is_multiple_of(2),
            || format!("{} rotated dimensions of {}", self.rope_dim, cache.head_dim),
        )?;
        let width_of_token = cache.kv_heads * cache.head_dim;
        let params = QkvParams {
            product,
            turns: self.turns.hold("turns", self.rope_dim / 2 * 8)?,
            positions: self.positions.hold("positions", tokens * 4)?,
            slots: self.slots.hold("slots", tokens * 4)?,
            q: self.q.hold("q", tokens * self.heads * cache.head_dim * 2)?,
            pool: self.pool.hold("pool", cache.page_bytes())?,
            kv: match (cache.format, self.kv) {
                (CacheFormat::Bf16, _) => 0,
                (CacheFormat::Fp8, Some(kv)) => kv.hold("kv", tokens * 2 * width_of_token * 4)?,
                (CacheFormat::Fp8, None) => {
                    return Err(ShapeError("an fp8 cache needs `kv`".to_owned()));
                }
            },
            cache: cache.layout(self.layer)?,
            heads: word("heads", self.heads)?,
            first_head: word("first_head", self.first_head)?,
            rope_dim: word("rope_dim", self.rope_dim)?,
            query_scale: std::f32::consts::LOG2_E / (cache.head_dim as f32).sqrt(),
        };
        Ok((params, width, shared))
    }

    pub fn launch(&self) -> Result<Launch, ShapeError> {
        let (params, width, shared) = self.params()?;
        let kernel = Kernel::NormQkvRope(self.input.shape.format, width);
        Ok(Launch::new(kernel, self.input.grid(width)?, shared, params))
    }
}

/// Writes the keys and values that [`Qkv`] left in `kv` to their pages as fp8; after the last run of the layer.
#[derive(Clone, Copy, Debug)]
pub struct AppendFp8(pub Qkv);

impl AppendFp8 {
    pub fn launch(&self) -> Result<Launch, ShapeError> {
        let (params, _, _) = self.0.params()?;
        ShapeError::unless(self.0.cache.format == CacheFormat::Fp8, || {
            "the cache is not fp8".to_owned()
        })?;
        let items = self.0.input.tokens * 2 * self.0.cache.kv_heads;
        let grid = [word("items", items.div_ceil(8))?, 1, 1];
        Ok(Launch::new(Kernel::AppendFp8, grid, 0, params))
    }
}
