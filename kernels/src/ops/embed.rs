//! `embed.cu`

use bytemuck::{Pod, Zeroable};

use super::word;
use crate::{
    launch::{Launch, Memory, ShapeError},
    pack::Packed,
    source::Kernel,
};

/// Gathers rows of the embedding, see the `.cu` file. Tokens are below `shape.rows`.
#[derive(Clone, Copy, Debug)]
pub struct Embed {
    /// `[vocab][columns]`
    pub shape: Packed,
    pub weights: Memory,
    /// `[tokens]` u32
    pub ids: Memory,
    pub tokens: usize,
    /// `[tokens][columns]` f32
    pub x: Memory,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Params {
    weights: u64,
    tokens: u64,
    x: u64,
    records: u32,
    tile_bytes: u32,
    columns: u32,
    unused: u32,
}

impl Embed {
    pub fn launch(&self) -> Result<Launch, ShapeError> {
        let (shape, tokens) = (self.shape, self.tokens);
        ShapeError::unless(tokens > 0, || "no tokens".to_owned())?;
        let params = Params {
            weights: self.weights.hold("weights", shape.bytes())?,
            tokens: self.ids.hold("ids", tokens * 4)?,
            x: self.x.hold("x", tokens * shape.columns * 4)?,
            records: word("records", shape.records())?,
            tile_bytes: word("bytes of a tile", shape.tile_bytes())?,
            columns: word("columns", shape.columns)?,
            unused: 0,
        };
        let grid = [word("tokens", tokens)?, 1, 1];
        Ok(Launch::new(Kernel::Embed(shape.format), grid, 0, params))
    }
}
