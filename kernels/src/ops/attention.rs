//! `attention.cu`: which block takes which queries and keys, and the launch.

use bytemuck::{Pod, Zeroable};

use super::{CacheShape, PAGE_TOKENS, cache::Layout, word};
use crate::{
    launch::{Launch, MOST_SHARED_BYTES, MOST_SHARED_BYTES_SM90, Memory, ShapeError},
    source::{CacheFormat, Kernel, Width},
};

/// Context is summed in pieces of this many tokens, whoever computes them.
pub const SEGMENT_TOKENS: usize = 8 * PAGE_TOKENS;

/// Queries and keys of a block, for one key head.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Piece {
    pub first_token: u32,
    pub tokens: u32,
    pub position: u32,
    pub table: u32,
    pub first_segment: u32,
    pub last_segment: u32,
    pub state: u32,
    pub chunk: u32,
}

/// Adds the pieces of a span: `tokens` tokens from `first_token` of the batch on, at positions `position..`, whose page table begins at `table`.
///
/// Spans of few tokens have every segment in a piece of its own (split), so that a long context keeps the whole device busy; `states` and `chunks` count
/// what that takes. Long prompts keep all segments of their queries together.
#[allow(clippy::too_many_arguments)]
pub fn pieces(
    out: &mut Vec<Piece>,
    (states, chunks): (&mut u32, &mut u32),
    width: Width,
    group: usize,
    first_token: usize,
    tokens: usize,
    position: usize,
    table: usize,
    split: bool,
) -> Result<(), ShapeError> {
    let at_once = width.get() / group.max(1);
    ShapeError::unless(at_once > 0, || {
        format!("{group} query heads to a key head; at most {}", width.get())
    })?;
    let mut done = 0;
    while done < tokens {
        let count = at_once.min(tokens - done);
        let position = position + done;
        let segments = (position + count - 1) / SEGMENT_TOKENS + 1;
        let piece = Piece {
            first_token: word("first_token", first_token + done)?,
            tokens: word("tokens", count)?,
            position: word("position", position)?,
            table: word("table", table)?,
            first_segment: 0,
            last_segment: word("segments", segments)?,
            state: *states,
            chunk: *chunks,
        };
        if split && segments > 1 {
            for segment in 0..piece.last_segment {
                out.push(Piece {
                    first_segment: segment,
                    last_segment: segment + 1,
                    state: *states + segment,
                    ..piece
                });
            }
            *states += piece.last_segment;
            *chunks += 1;
        } else {
            out.push(piece);
        }
        done += count;
    }
    Ok(())
}

/// Attention of a batch, see the `.cu` file.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    pub cache: CacheShape,
    pub layer: usize,
    pub heads: usize,
    pub tokens: usize,
    /// For which the pieces were made.
    pub width: Width,
    /// `[count]` [`Piece`]
    pub pieces: Memory,
    pub count: usize,
    /// Page tables, u32: the entry for each page up to the last token of each span.
    pub tables: Memory,
    /// `[tokens][heads][head_dim]` bf16
    pub q: Memory,
    pub pool: Memory,
    /// `[tokens][heads][head_dim]` f32
    pub out: Memory,
    /// [`Attention::states_bytes`] for all states of the pieces.
    pub states: Memory,
    pub states_count: usize,
    /// `[chunks][kv_heads]` u32, zero.
    pub counters: Memory,
    pub chunks: usize,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Params {
    q: u64,
    pool: u64,
    pieces: u64,
    tables: u64,
    out: u64,
    states: u64,
    counters: u64,
    cache: Layout,
    heads: u32,
    group: u32,
}

impl Attention {
    /// Bytes of `states` partial results.
    pub fn states_bytes(cache: CacheShape, width: Width, states: usize) -> usize {
        states * cache.kv_heads * width.get() * (cache.head_dim + 2) * 4
    }

    /// Can a block of this width hold heads of this length?
    pub fn fits(cache: CacheShape, width: Width) -> bool {
        let most = match width {
            Width::Sm90 => MOST_SHARED_BYTES_SM90,
            _ => MOST_SHARED_BYTES,
        };
        shared_bytes(cache, width) + static_bytes(width) <= most
    }

    pub fn launch(&self) -> Result<Launch, ShapeError> {
        let cache = self.cache;
        ShapeError::unless(
            self.count > 0 && self.heads.is_multiple_of(cache.kv_heads.max(1)),
            || {
                format!(
                    "{} pieces, {} query heads over {} key heads",
                    self.count, self.heads, cache.kv_heads
                )
            },
        )?;
        let shared = shared_bytes(cache, self.width);
        ShapeError::unless(Attention::fits(cache, self.width), || {
            format!(
                "heads of {} numbers with {} queries a block",
                cache.head_dim,
                self.width.get()
            )
        })?;
        ShapeError::unless(self.width != Width::Sm90 || self.states_count == 0, || {
            "spread segments on warp groups".to_owned()
        })?;
        let numbers = self.tokens * self.heads * cache.head_dim;
        let params = Params {
            q: self.q.hold("q", numbers * 2)?,
            pool: self.pool.hold("pool", cache.page_bytes())?,
            pieces: self
                .pieces
                .hold("pieces", self.count * size_of::<Piece>())?,
            tables: self.tables.hold("tables", 4)?,
            out: self.out.hold("out", numbers * 4)?,
            states: self.states.hold(
                "states",
                Attention::states_bytes(cache, self.width, self.states_count),
            )?,
            counters: self
                .counters
                .hold("counters", self.chunks * cache.kv_heads * 4)?,
            cache: cache.layout(self.layer)?,
            heads: word("heads", self.heads)?,
            group: word("group", self.heads / cache.kv_heads)?,
        };
        let kernel = match cache.format {
            CacheFormat::Bf16 => Kernel::Attention(CacheFormat::Bf16, self.width),
            CacheFormat::Fp8 => Kernel::Attention(CacheFormat::Fp8, self.width),
        };
        let grid = [
            word("pieces", self.count)?,
            word("key heads", cache.kv_heads)?,
            1,
        ];
        Ok(Launch::new(kernel, grid, shared, params))
    }
}

/// Dynamic shared memory of a block.
fn shared_bytes(cache: CacheShape, width: Width) -> usize {
    match width {
        // Queries, weights of a segment, values.
        Width::Sm90 => cache.head_dim * 256 + SEGMENT_TOKENS * 256 + cache.head_dim * 512,
        _ => cache.head_dim * width.get() * 4,
    }
}

/// Static shared memory of a block.
fn static_bytes(width: Width) -> usize {
    let queries = width.get();
    let weights = match width {
        Width::Sm90 => 0,
        _ => queries * (SEGMENT_TOKENS + 8) * 2,
    };
    weights + queries * (8 * 4 * 2 + 4 * 2 + 8) + 16
}
