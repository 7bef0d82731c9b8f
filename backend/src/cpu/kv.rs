//! The pool of KV pages. A page holds sixteen tokens of every layer; keys and values lie as tiles of a matrix product: keys `[head_dim]` columns by sixteen tokens, values sixteen tokens by sixteen dimensions, dimension after dimension.
//!
//! ```text
//! page   [layer][K: kv_heads × (step × 16 tokens) | V: kv_heads × (16 dimensions of head_dim / 16 groups × step)]
//! step   F32, F16: one column; BF16: a pair of columns side by side, for the instruction that multiplies pairs
//! Q8_0   K: a tile of Q8_0 weights (see `pack`); V: [head_dim / 16][8 pairs of tokens][16 dimensions][2] i8, then [head_dim / 32][16 tokens] f16
//! ```
//!
//! Invariant: the slots behind the newest token of a page are finite (zero, or left from a draft), so that a probability of zero takes them out.
//! The pool is one zeroed mapping: a page that was never used is not resident.

mod eight;

use half::{bf16, f16};
use memmap2::MmapMut;

use super::{
    pack::{quant_bytes, record_bytes, scales_start, tile_bytes},
    simd::{Kernel, Simd},
};
use crate::{
    device::PAGE_TOKENS,
    model::{config::LlamaConfig, plan::KvFormat, weights::Format},
};

/// Most blocks of 32 numbers in a head.
pub(crate) const MOST_BLOCKS: usize = 32;

/// What lies at a place of a page.
#[derive(Clone, Copy, Debug)]
enum Stored {
    /// Number of a head.
    Number(usize),
    /// Scale of a block of 32 numbers.
    Scale,
}

/// Where things lie in a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageLayout {
    pub(crate) format: KvFormat,
    pub(crate) layers: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    /// `head_dim` rounded up to whole vectors.
    pub(crate) padded: usize,
}

impl PageLayout {
    pub(crate) fn new(config: &LlamaConfig, format: KvFormat) -> PageLayout {
        PageLayout {
            format,
            layers: config.layers,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            padded: config.head_dim.next_multiple_of(16),
        }
    }

    /// Bytes of the keys, or values, of one head of one layer.
    pub(crate) fn head_bytes(&self) -> usize {
        match self.format {
            KvFormat::F32 => self.padded * PAGE_TOKENS * 4,
            KvFormat::F16 | KvFormat::Bf16 => self.padded * PAGE_TOKENS * 2,
            KvFormat::Q8_0 => tile_bytes(Format::Q8_0, self.padded),
        }
    }

    pub(crate) fn layer_bytes(&self) -> usize {
        2 * self.kv_heads * self.head_bytes()
    }

    pub(crate) fn page_bytes(&self) -> usize {
        self.layers * self.layer_bytes()
    }

    /// Where the keys of a head begin in a page.
    #[inline(always)]
    pub(crate) fn keys(&self, layer: usize, head: usize) -> usize {
        layer * self.layer_bytes() + head * self.head_bytes()
    }

    #[inline(always)]
    pub(crate) fn values(&self, layer: usize, head: usize) -> usize {
        self.keys(layer, head) + self.kv_heads * self.head_bytes()
    }

    /// Calls `part(offset, numbers)` for every run of bytes of the key of the token in `slot`, offsets from [`PageLayout::keys`]; `numbers` names the
    /// numbers that lie there, or a block whose scale does.
    #[inline(always)]
    fn key_parts(&self, slot: usize, mut part: impl FnMut(usize, Stored)) {
        match self.format {
            KvFormat::F32 => {
                (0..self.padded).for_each(|dim| part((dim * 16 + slot) * 4, Stored::Number(dim)));
            }
            KvFormat::F16 => {
                (0..self.padded).for_each(|dim| part((dim * 16 + slot) * 2, Stored::Number(dim)));
            }
            KvFormat::Bf16 => (0..self.padded)
                .for_each(|dim| part(dim / 2 * 64 + slot * 4 + dim % 2 * 2, Stored::Number(dim))),
            KvFormat::Q8_0 => {
                for block in 0..self.padded / 32 {
                    let record = block / 2 * record_bytes(Format::Q8_0);
                    let quants = record + block % 2 * quant_bytes(Format::Q8_0);
                    for dim in 0..32 {
                        part(
                            quants + dim / 4 * 64 + slot * 4 + dim % 4,
                            Stored::Number(block * 32 + dim),
                        );
                    }
                    part(
                        record + scales_start(Format::Q8_0) + block % 2 * 32 + slot * 2,
                        Stored::Scale,
                    );
                }
            }
        }
    }

    /// The same for the value, offsets from [`PageLayout::values`].
    #[inline(always)]
    fn value_parts(&self, slot: usize, mut part: impl FnMut(usize, Stored)) {
        let at = |dim: usize| dim / 16 * 256 + slot * 16 + dim % 16;
        match self.format {
            KvFormat::F32 => {
                (0..self.padded).for_each(|dim| part(at(dim) * 4, Stored::Number(dim)));
            }
            KvFormat::F16 => {
                (0..self.padded).for_each(|dim| part(at(dim) * 2, Stored::Number(dim)));
            }
            KvFormat::Bf16 => {
                for dim in 0..self.padded {
                    let pair = dim / 16 * 256 + slot / 2 * 32 + dim % 16 * 2 + slot % 2;
                    part(pair * 2, Stored::Number(dim));
                }
            }
            KvFormat::Q8_0 => {
                for dim in 0..self.padded {
                    let pair = dim / 16 * 256 + slot / 2 * 32 + dim % 16 * 2 + slot % 2;
                    part(pair, Stored::Number(dim));
                }
                for block in 0..self.padded / 32 {
                    part(self.value_scales() + block * 32 + slot * 2, Stored::Scale);
                }
            }
        }
    }

    /// Where the scales of Q8_0 values begin, from [`PageLayout::values`].
    pub(crate) fn value_scales(&self) -> usize {
        self.padded * PAGE_TOKENS
    }

    /// Writes the key and the value of one head of the token in `slot` into the bytes of a layer of a page.
    #[inline(always)]
    fn put<S: Simd>(
        &self,
        simd: S,
        layer: &mut [u8],
        head: usize,
        slot: usize,
        key: &[f32],
        value: &[f32],
    ) {
        if self.format == KvFormat::Q8_0 {
            self.put_eight(simd, layer, head, slot, key, value);
            return;
        }
        let bytes = self.head_bytes();
        let (keys, values) = (self.keys(0, head), self.values(0, head));
        let out = &mut layer[keys..keys + bytes];
        self.key_parts(slot, |at, stored| self.put_part(out, at, stored, key));
        let out = &mut layer[values..values + bytes];
        self.value_parts(slot, |at, stored| self.put_part(out, at, stored, value));
    }

    #[inline(always)]
    fn put_part(&self, out: &mut [u8], at: usize, stored: Stored, numbers: &[f32]) {
        let Stored::Number(dim) = stored else { return };
        // Padding stays zero.
        let Some(&x) = numbers.get(dim) else { return };
        match self.format {
            KvFormat::F32 => out[at..at + 4].copy_from_slice(&x.to_le_bytes()),
            KvFormat::F16 => out[at..at + 2].copy_from_slice(&f16::from_f32(x).to_le_bytes()),
            KvFormat::Bf16 => out[at..at + 2].copy_from_slice(&bf16::from_f32(x).to_le_bytes()),
            // Written a block at a time.
            KvFormat::Q8_0 => {}
        }
    }

    /// Copies the first `tokens` slots of a page to another and clears the rest.
    pub(crate) fn copy(&self, from: &[u8], to: &mut [u8], tokens: usize) {
        to.fill(0);
        let number = match self.format {
            KvFormat::F32 => 4,
            KvFormat::F16 | KvFormat::Bf16 => 2,
            KvFormat::Q8_0 => 1,
        };
        let size = |stored| {
            if matches!(stored, Stored::Scale) {
                2
            } else {
                number
            }
        };
        for layer in 0..self.layers {
            for head in 0..self.kv_heads {
                for slot in 0..tokens {
                    let mut copy = |at: usize, stored| {
                        let range = at..at + size(stored);
                        to[range.clone()].copy_from_slice(&from[range]);
                    };
                    let (keys, values) = (self.keys(layer, head), self.values(layer, head));
                    self.key_parts(slot, |at, stored| copy(keys + at, stored));
                    self.value_parts(slot, |at, stored| copy(values + at, stored));
                }
            }
        }
    }

    /// Names this layout for pages kept on disk.
    pub(crate) fn name(&self) -> String {
        format!(
            "cpu-2 {} layers={} kv_heads={} head_dim={} tokens={PAGE_TOKENS}",
            self.format, self.layers, self.kv_heads, self.head_dim
        )
    }
}

/// Writes the keys and values of all heads of the token in `slot` into the bytes of a layer of a page.
pub(crate) struct Put<'a> {
    pub(crate) layout: PageLayout,
    pub(crate) layer: &'a mut [u8],
    pub(crate) slot: usize,
    /// `[kv_heads][head_dim]`
    pub(crate) keys: &'a [f32],
    pub(crate) values: &'a [f32],
}

impl Kernel for Put<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let keys = self.keys.chunks_exact(self.layout.head_dim);
        let values = self.values.chunks_exact(self.layout.head_dim);
        for (head, (key, value)) in keys.zip(values).enumerate() {
            self.layout
                .put(simd, self.layer, head, self.slot, key, value);
        }
    }
}

/// All pages.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) layout: PageLayout,
    pub(crate) pages: usize,
    bytes: MmapMut,
}

impl Pool {
    pub(crate) fn new(layout: PageLayout, pages: usize) -> std::io::Result<Pool> {
        let size = pages
            .checked_mul(layout.page_bytes())
            .ok_or(std::io::ErrorKind::OutOfMemory)?;
        Ok(Pool {
            layout,
            pages,
            bytes: MmapMut::map_anon(size.max(64))?,
        })
    }

    pub(crate) fn page(&self, page: usize) -> &[u8] {
        let size = self.layout.page_bytes();
        &self.bytes[page * size..(page + 1) * size]
    }

    pub(crate) fn page_mut(&mut self, page: usize) -> &mut [u8] {
        let size = self.layout.page_bytes();
        &mut self.bytes[page * size..(page + 1) * size]
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Two different pages.
    pub(crate) fn pair(&mut self, from: usize, to: usize) -> (&[u8], &mut [u8]) {
        let size = self.layout.page_bytes();
        if from < to {
            let (low, high) = self.bytes.split_at_mut(to * size);
            (&low[from * size..(from + 1) * size], &mut high[..size])
        } else {
            let (low, high) = self.bytes.split_at_mut(from * size);
            (&high[..size], &mut low[to * size..(to + 1) * size])
        }
    }
}
