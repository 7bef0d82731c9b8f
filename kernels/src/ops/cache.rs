//! Pages of the KV cache (`cache.cuh`, `cache_copy.cu`).

use bytemuck::{Pod, Zeroable};

use super::word;
use crate::{
    launch::{Launch, Memory, ShapeError},
    source::{CacheFormat, Kernel},
};

/// Tokens of a page.
pub const PAGE_TOKENS: usize = 16;

/// How a page is laid out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CacheShape {
    pub format: CacheFormat,
    pub layers: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Layout {
    page_bytes: u64,
    kv_heads: u32,
    head_dim: u32,
    layer: u32,
    fp8: u32,
}

impl CacheShape {
    /// Fragments are 16 dimensions wide.
    pub fn check(self) -> Result<(), ShapeError> {
        ShapeError::unless(
            self.head_dim > 0
                && self.head_dim.is_multiple_of(16)
                && self.kv_heads > 0
                && self.layers > 0,
            || {
                format!(
                    "a cache of {} layers, {} key heads of {}; heads are a multiple of 16",
                    self.layers, self.kv_heads, self.head_dim
                )
            },
        )
    }

    /// Bytes of the keys and values of a head of a layer of a page.
    pub fn part_bytes(self) -> usize {
        let numbers = 2 * self.head_dim * PAGE_TOKENS;
        match self.format {
            CacheFormat::Bf16 => numbers * 2,
            CacheFormat::Fp8 => numbers + 2 * PAGE_TOKENS * 4,
        }
    }

    pub fn page_bytes(self) -> usize {
        self.layers * self.kv_heads * self.part_bytes()
    }

    pub(super) fn layout(self, layer: usize) -> Result<Layout, ShapeError> {
        self.check()?;
        ShapeError::unless(layer < self.layers, || {
            format!("layer {layer} of {}", self.layers)
        })?;
        Ok(Layout {
            page_bytes: self.page_bytes() as u64,
            kv_heads: word("key heads", self.kv_heads)?,
            head_dim: word("head_dim", self.head_dim)?,
            layer: word("layer", layer)?,
            fp8: u32::from(self.format == CacheFormat::Fp8),
        })
    }
}

/// The first `tokens` of a page to another page.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct PageCopy {
    pub from: u32,
    pub to: u32,
    pub tokens: u32,
    unused: u32,
}

impl PageCopy {
    pub fn new(from: u32, to: u32, tokens: u32) -> PageCopy {
        PageCopy {
            from,
            to,
            tokens,
            unused: 0,
        }
    }
}

/// Copies pages, see the `.cu` file.
#[derive(Clone, Copy, Debug)]
pub struct CacheCopy {
    pub cache: CacheShape,
    /// Pages lie one after another in both; they may be the same memory if no page is both copied and overwritten.
    pub from: Memory,
    pub to: Memory,
    /// `[count]` [`PageCopy`]
    pub copies: Memory,
    pub count: usize,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Params {
    from: u64,
    to: u64,
    copies: u64,
    cache: Layout,
}

impl CacheCopy {
    pub fn launch(&self) -> Result<Launch, ShapeError> {
        ShapeError::unless(self.count > 0, || "no copies".to_owned())?;
        let page = self.cache.page_bytes();
        let params = Params {
            from: self.from.hold("from", page)?,
            to: self.to.hold("to", page)?,
            copies: self.copies.hold("copies", self.count * 16)?,
            cache: self.cache.layout(0)?,
        };
        let grid = [
            word("copies", self.count)?,
            word("parts", self.cache.layers * self.cache.kv_heads)?,
            1,
        ];
        Ok(Launch::new(Kernel::CacheCopy, grid, 0, params))
    }
}
