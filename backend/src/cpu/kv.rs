//! The pool of KV pages. A page holds sixteen tokens of every layer; keys and values lie as tiles of a matrix product, so that attention is the same kernel
//! as a matrix product: keys `[head_dim]` columns by sixteen tokens, values sixteen tokens by sixteen dimensions, dimension after dimension.
//!
//! ```text
//! page   [layer][K: kv_heads × (step × 16 tokens) | V: kv_heads × (16 dimensions of head_dim / 16 groups × step)]
//! step   F32, F16: one column; BF16: a pair of columns side by side, for the instruction that multiplies pairs
//! ```
//!
//! Invariant: the slots behind the newest token of a page are finite (zero, or left from a draft), so that a probability of zero takes them out.
//! The pool is one zeroed mapping: a page that was never used is not resident.

use memmap2::MmapMut;

use crate::{
    device::PAGE_TOKENS,
    model::{config::LlamaConfig, plan::KvFormat},
};

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
        let number = if self.format == KvFormat::F32 { 4 } else { 2 };
        self.padded * PAGE_TOKENS * number
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

    /// Index of number `dim` of the key of the token in `slot`, in numbers from [`PageLayout::keys`].
    #[inline(always)]
    fn key(&self, slot: usize, dim: usize) -> usize {
        match self.format {
            KvFormat::Bf16 => dim / 2 * 32 + slot * 2 + dim % 2,
            _ => dim * 16 + slot,
        }
    }

    /// Index of number `dim` of the value of the token in `slot`, in numbers from [`PageLayout::values`].
    #[inline(always)]
    fn value(&self, slot: usize, dim: usize) -> usize {
        let group = dim / 16 * 256;
        match self.format {
            KvFormat::Bf16 => group + slot / 2 * 32 + dim % 16 * 2 + slot % 2,
            _ => group + slot * 16 + dim % 16,
        }
    }

    /// Writes the key and the value of one head of the token in `slot` into the bytes of a layer of a page.
    pub(crate) fn put(
        &self,
        layer: &mut [u8],
        head: usize,
        slot: usize,
        key: &[f32],
        value: &[f32],
    ) {
        let (keys, values) = (self.keys(0, head), self.values(0, head));
        let bytes = self.head_bytes();
        self.put_numbers(&mut layer[keys..keys + bytes], key, |dim| {
            self.key(slot, dim)
        });
        self.put_numbers(&mut layer[values..values + bytes], value, |dim| {
            self.value(slot, dim)
        });
    }

    #[inline(always)]
    fn put_numbers(&self, out: &mut [u8], numbers: &[f32], at: impl Fn(usize) -> usize) {
        if self.format == KvFormat::F32 {
            let out: &mut [f32] = bytemuck::cast_slice_mut(out);
            for (dim, x) in numbers.iter().enumerate() {
                out[at(dim)] = *x;
            }
            return;
        }
        let out: &mut [u16] = bytemuck::cast_slice_mut(out);
        for (dim, x) in numbers.iter().enumerate() {
            out[at(dim)] = if self.format == KvFormat::F16 {
                half::f16::from_f32(*x).to_bits()
            } else {
                half::bf16::from_f32(*x).to_bits()
            };
        }
    }

    /// Copies the first `tokens` slots of a page to another and clears the rest.
    pub(crate) fn copy(&self, from: &[u8], to: &mut [u8], tokens: usize) {
        to.fill(0);
        let number = if self.format == KvFormat::F32 { 4 } else { 2 };
        for part in (0..self.page_bytes()).step_by(self.head_bytes()) {
            let values = part / self.head_bytes() / self.kv_heads % 2 == 1;
            for slot in 0..tokens {
                for dim in 0..self.padded {
                    let at = if values {
                        self.value(slot, dim)
                    } else {
                        self.key(slot, dim)
                    };
                    let at = part + at * number;
                    to[at..at + number].copy_from_slice(&from[at..at + number]);
                }
            }
        }
    }

    /// Names this layout for pages kept on disk.
    pub(crate) fn name(&self) -> String {
        format!(
            "cpu-1 {} layers={} kv_heads={} head_dim={} tokens={PAGE_TOKENS}",
            self.format, self.layers, self.kv_heads, self.head_dim
        )
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
