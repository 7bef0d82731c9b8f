//! Working memory of a step, allocated once.

use super::{
    attention::{Workspace, query_words, state_len},
    kv::PageLayout,
    network::Network,
    simd::LANES,
    step::PIECE_QUERIES,
};

/// States that pieces of one segment may leave behind, over all heads and tokens of a batch.
pub(crate) const SPLIT_STATES: usize = 4096;

/// Everything a step writes beside the KV pool, allocated once. `n`: most tokens of a batch.
#[derive(Debug)]
pub(crate) struct Buffers {
    /// Residual stream, `[n, hidden]`.
    pub(crate) x: Vec<f32>,
    /// Encoded input of the next matrix.
    pub(crate) encoded: Vec<u32>,
    /// `[n, q + 2 kv]`
    pub(crate) qkv: Vec<f32>,
    /// `[n, heads, query_words]`
    pub(crate) queries: Vec<u32>,
    /// `[kv_heads, n, group, head_dim]`
    pub(crate) attended: Vec<f32>,
    /// States of split attention.
    pub(crate) states: Vec<f32>,
    /// `[n, ffn]`
    pub(crate) gated: Vec<f32>,
    /// Cosines and sines, `[n, rope.dim]`.
    pub(crate) turns: Vec<f32>,
    /// `[max_rows, vocab]`
    pub(crate) logits: Vec<f32>,
    pub(crate) members: Vec<Member>,
}

/// Scratch of a member of the team.
#[derive(Debug)]
pub(crate) struct Member {
    /// Products of one tile with all tokens, twice.
    pub(crate) tiles: [Vec<[f32; LANES]>; 2],
    /// A row of any width.
    pub(crate) row: Vec<f32>,
    pub(crate) attention: Workspace,
}

impl Buffers {
    pub(crate) fn new(
        network: &Network,
        page: &PageLayout,
        tokens: usize,
        rows: usize,
        threads: usize,
    ) -> Buffers {
        let config = &network.config;
        let q = config.heads * config.head_dim;
        let kv = config.kv_heads * config.head_dim;
        let encodings = &network.encodings;
        let widest = [
            &encodings.qkv,
            &encodings.attention_output,
            &encodings.gate_up,
            &encodings.down,
        ]
        .map(|layout| layout.words(tokens))
        .into_iter()
        .max()
        .unwrap_or(0);
        let group = config.heads / config.kv_heads;
        Buffers {
            x: vec![0.0; tokens * config.hidden],
            encoded: vec![0; widest.max(encodings.output.words(rows))],
            qkv: vec![0.0; tokens * (q + 2 * kv)],
            queries: vec![0; tokens * config.heads * query_words(page.format, page.padded)],
            attended: vec![0.0; tokens * q],
            states: vec![0.0; SPLIT_STATES * state_len(page.padded)],
            gated: vec![0.0; tokens * config.ffn],
            turns: vec![0.0; tokens * config.rope.dim],
            logits: vec![0.0; rows * config.vocab],
            members: (0..threads)
                .map(|_| Member {
                    tiles: std::array::from_fn(|_| vec![[0.0; LANES]; tokens.max(rows)]),
                    row: vec![0.0; config.hidden.max(config.ffn).max(q)],
                    attention: Workspace::new(page, PIECE_QUERIES.max(group)),
                })
                .collect(),
        }
    }
}
