//! The forward pass of a Llama: embedding, then for each layer attention and the gated feed-forward, then the output matrix for the rows that are wanted.
//!
//! All tokens of a batch, whichever sequence they belong to, go through each matrix together; only attention looks at sequences.

use super::{
    activation::{Activations, Encode, Layout, NormEncode},
    attention::{Attend, Item, MergeSegments, Workspace, finish, query_words, state_len},
    buffers::Buffers,
    kv::Pool,
    matmul::{Row, SiluMul, TileProduct},
    network::Network,
    product::{Epilogue, product, tiles_per_chunk},
    rope::{EncodeQueries, Rotate, turn},
    simd::Level,
    step::{Piece, Step},
    threads::Team,
};
use crate::device::{PAGE_TOKENS, Span};

/// What a step works with.
pub(crate) struct Forward<'a> {
    pub(crate) level: Level,
    pub(crate) network: &'a Network,
    pub(crate) team: &'a mut Team,
    pub(crate) pool: &'a mut Pool,
    pub(crate) buffers: &'a mut Buffers,
    pub(crate) step: &'a Step,
    pub(crate) spans: &'a [Span<'a>],
}

impl Forward<'_> {
    pub(crate) fn run(mut self) {
        if self.step.tokens.is_empty() {
            return;
        }
        self.embed();
        for index in 0..self.network.layers.len() {
            self.attention(index);
            self.feed_forward(index);
        }
        self.output();
    }

    fn embed(&mut self) {
        let Forward {
            level,
            network,
            step,
            buffers,
            ..
        } = self;
        let config = &network.config;
        self.team.rows(
            &mut buffers.x,
            config.hidden,
            step.tokens.len(),
            4,
            |token, out| {
                level.run(Row {
                    matrix: &network.embedding,
                    row: step.tokens[token].id as usize,
                    out,
                });
            },
        );
        self.team.rows(
            &mut buffers.turns,
            config.rope.dim,
            step.tokens.len(),
            8,
            |token, out| {
                turn(&network.frequencies, step.tokens[token].position, out);
            },
        );
    }

    fn attention(&mut self, index: usize) {
        let network = self.network;
        let layer = &network.layers[index];
        let layout = &network.encodings.qkv;
        self.norm(&layer.attention_norm, layout);
        let [q, k, v] = &layer.qkv;
        let tokens = self.step.tokens.len();
        let columns = q.rows + k.rows + v.rows;
        product(
            self.level,
            self.team,
            &mut self.buffers.members,
            &[q, k, v],
            Activations {
                layout,
                words: &self.buffers.encoded,
            },
            &mut self.buffers.qkv[..tokens * columns],
            columns,
            Epilogue::Store,
        );
        self.rotate(index);
        self.attend(index);
        self.gather();
        let layout = &network.encodings.attention_output;
        product(
            self.level,
            self.team,
            &mut self.buffers.members,
            &[&layer.attention_output],
            Activations {
                layout,
                words: &self.buffers.encoded,
            },
            &mut self.buffers.x[..tokens * network.config.hidden],
            network.config.hidden,
            Epilogue::Accumulate,
        );
    }

    /// Norm of the residual stream, encoded.
    fn norm(&mut self, weight: &[f32], layout: &Layout) {
        let Forward {
            level,
            network,
            step,
            buffers,
            ..
        } = self;
        let hidden = network.config.hidden;
        let x = &buffers.x;
        self.team.rows_with(
            &mut buffers.encoded,
            layout.stride,
            step.tokens.len(),
            8,
            &mut buffers.members,
            |member, token, row| {
                level.run(NormEncode {
                    layout,
                    x: &x[token * hidden..(token + 1) * hidden],
                    weight,
                    eps: network.config.norm_eps,
                    scratch: &mut member.row,
                    row,
                });
            },
        );
    }

    /// Turns queries and keys to their positions; queries are encoded, keys and values go to their pages.
    fn rotate(&mut self, index: usize) {
        let Forward {
            level,
            network,
            step,
            pool,
            buffers,
            ..
        } = self;
        let config = &network.config;
        let page = pool.layout;
        let (q, kv) = (
            config.heads * config.head_dim,
            config.kv_heads * config.head_dim,
        );
        let columns = q + 2 * kv;
        let dim = config.rope.dim;
        let turns = &buffers.turns;
        let words = query_words(page.format, page.padded);
        // Attention works with powers of two.
        let scale = std::f32::consts::LOG2_E / (config.head_dim as f32).sqrt();
        let queries = &mut buffers.queries;
        self.team.rows_two(
            &mut buffers.qkv,
            columns,
            queries,
            config.heads * words,
            step.tokens.len(),
            8,
            |token, row, out| {
                level.run(Rotate {
                    x: &mut row[..q + kv],
                    head_dim: config.head_dim,
                    turn: &turns[token * dim..(token + 1) * dim],
                });
                level.run(EncodeQueries {
                    x: &mut row[..q],
                    head_dim: config.head_dim,
                    scale,
                    format: page.format,
                    out,
                    words,
                });
            },
        );
        let qkv = &buffers.qkv;
        let ranges: Vec<(usize, usize)> = step
            .writes
            .iter()
            .map(|write| {
                (
                    write.page * page.page_bytes() + page.keys(index, 0),
                    page.layer_bytes(),
                )
            })
            .collect();
        self.team.parts(
            pool.bytes_mut(),
            &ranges,
            &mut buffers.members,
            |_, write, bytes| {
                for token in step.writes[write].tokens.clone() {
                    let slot = step.tokens[token].position % PAGE_TOKENS;
                    if slot == 0 {
                        bytes.fill(0);
                    }
                    let row = &qkv[token * columns + q..(token + 1) * columns];
                    let (keys, values) = row.split_at(kv);
                    for head in 0..config.kv_heads {
                        let range = head * config.head_dim..(head + 1) * config.head_dim;
                        page.put(bytes, head, slot, &keys[range.clone()], &values[range]);
                    }
                }
            },
        );
    }

    fn attend(&mut self, index: usize) {
        let Forward {
            level,
            network,
            step,
            pool,
            buffers,
            spans,
            ..
        } = self;
        let config = &network.config;
        let page = pool.layout;
        let group = config.heads / config.kv_heads;
        let state = state_len(page.padded);
        let words = query_words(page.format, page.padded);
        let head_dim = config.head_dim;
        let tokens = step.tokens.len();
        let queries = &buffers.queries;
        let bytes = pool.bytes();
        let attend = |piece: &Piece, workspace: &mut Workspace| {
            let item = Item {
                layout: page,
                pool: bytes,
                pages: spans[piece.span].pages,
                layer: index,
                kv_head: piece.kv_head,
                group,
                queries: &queries[piece.tokens.start * config.heads * words..],
                heads: config.heads,
                position: step.tokens[piece.tokens.start].position,
                tokens: piece.tokens.len(),
                segments: (piece.segments.start, piece.segments.end),
            };
            level.run(Attend { item, workspace });
        };
        if !step.split {
            let ranges: Vec<(usize, usize)> = step
                .pieces
                .iter()
                .map(|piece| {
                    let width = group * head_dim;
                    (
                        (piece.kv_head * tokens + piece.tokens.start) * width,
                        piece.tokens.len() * width,
                    )
                })
                .collect();
            self.team.parts(
                &mut buffers.attended,
                &ranges,
                &mut buffers.members,
                |member, piece, out| {
                    attend(&step.pieces[piece], &mut member.attention);
                    for (state, out) in member
                        .attention
                        .states
                        .chunks_exact(state)
                        .zip(out.chunks_exact_mut(head_dim))
                    {
                        finish(state, out);
                    }
                },
            );
            return;
        }
        let mut end = 0;
        let ranges: Vec<(usize, usize)> = step
            .pieces
            .iter()
            .map(|piece| {
                let len = piece.tokens.len() * group * state;
                end += len;
                (end - len, len)
            })
            .collect();
        self.team.parts(
            &mut buffers.states,
            &ranges,
            &mut buffers.members,
            |member, piece, out| {
                attend(&step.pieces[piece], &mut member.attention);
                out.copy_from_slice(&member.attention.states[..out.len()]);
            },
        );
        // The pieces of one span and head are neighbours, segment after segment.
        let mut first = 0;
        while first < step.pieces.len() {
            let piece = &step.pieces[first];
            let segments = step.pieces[first..]
                .iter()
                .take_while(|other| other.kv_head == piece.kv_head && other.span == piece.span)
                .count();
            let (start, stride) = ranges[first];
            for query in 0..piece.tokens.len() * group {
                let states = &mut buffers.states[start + query * state..];
                if segments > 1 {
                    level.run(MergeSegments {
                        states,
                        stride,
                        segments,
                        len: state,
                    });
                }
                let at = ((piece.kv_head * tokens + piece.tokens.start) * group + query) * head_dim;
                finish(&states[..state], &mut buffers.attended[at..at + head_dim]);
            }
            first += segments;
        }
    }

    /// Brings the heads of each token together and encodes them.
    fn gather(&mut self) {
        let Forward {
            level,
            network,
            step,
            buffers,
            ..
        } = self;
        let config = &network.config;
        let layout = &network.encodings.attention_output;
        let width = config.heads / config.kv_heads * config.head_dim;
        let tokens = step.tokens.len();
        let attended = &buffers.attended;
        self.team.rows_with(
            &mut buffers.encoded,
            layout.stride,
            tokens,
            8,
            &mut buffers.members,
            |member, token, row| {
                let x = &mut member.row[..layout.cols];
                for (head, x) in x.chunks_exact_mut(width).enumerate() {
                    x.copy_from_slice(&attended[(head * tokens + token) * width..][..width]);
                }
                level.run(Encode { layout, x, row });
            },
        );
    }

    fn feed_forward(&mut self, index: usize) {
        let network = self.network;
        let config = &network.config;
        let layer = &network.layers[index];
        let tokens = self.step.tokens.len();
        let layout = &network.encodings.gate_up;
        self.norm(&layer.ffn_norm, layout);
        let level = self.level;
        let x = Activations {
            layout,
            words: &self.buffers.encoded,
        };
        let per_chunk = tiles_per_chunk(self.team.threads(), &layer.gate) / 2;
        self.team.stripes(
            &mut self.buffers.gated[..tokens * config.ffn],
            config.ffn,
            0..config.ffn,
            per_chunk,
            &mut self.buffers.members,
            |member, mut stripe| {
                let [gate, up] = &mut member.tiles;
                let (gate, up) = (&mut gate[..tokens], &mut up[..tokens]);
                for (matrix, out) in [(&layer.gate, &mut *gate), (&layer.up, &mut *up)] {
                    level.run(TileProduct {
                        matrix,
                        tile: stripe.index,
                        x,
                        out,
                    });
                }
                level.run(SiluMul { gate, up });
                for (token, tile) in gate.iter().enumerate() {
                    let row = stripe.row(token);
                    row.copy_from_slice(&tile[..row.len()]);
                }
            },
        );
        let layout = &network.encodings.down;
        let gated = &self.buffers.gated;
        self.team.rows(
            &mut self.buffers.encoded,
            layout.stride,
            tokens,
            8,
            |token, row| {
                level.run(Encode {
                    layout,
                    x: &gated[token * config.ffn..(token + 1) * config.ffn],
                    row,
                });
            },
        );
        product(
            level,
            self.team,
            &mut self.buffers.members,
            &[&layer.down],
            Activations {
                layout,
                words: &self.buffers.encoded,
            },
            &mut self.buffers.x[..tokens * config.hidden],
            config.hidden,
            Epilogue::Accumulate,
        );
    }

    fn output(&mut self) {
        let Forward {
            level,
            network,
            step,
            buffers,
            ..
        } = self;
        if step.rows.is_empty() {
            return;
        }
        let config = &network.config;
        let layout = &network.encodings.output;
        let x = &buffers.x;
        self.team.rows_with(
            &mut buffers.encoded,
            layout.stride,
            step.rows.len(),
            8,
            &mut buffers.members,
            |member, row, out| {
                let token = step.rows[row];
                level.run(NormEncode {
                    layout,
                    x: &x[token * config.hidden..(token + 1) * config.hidden],
                    weight: &network.final_norm,
                    eps: config.norm_eps,
                    scratch: &mut member.row,
                    row: out,
                });
            },
        );
        product(
            *level,
            self.team,
            &mut buffers.members,
            &[&network.output],
            Activations {
                layout,
                words: &buffers.encoded,
            },
            &mut buffers.logits[..step.rows.len() * config.vocab],
            config.vocab,
            Epilogue::Store,
        );
    }
}
