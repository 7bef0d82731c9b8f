//! The forward pass of a Llama: embedding, then for each layer attention and the gated feed-forward, then the output matrix for the rows that are wanted.
//!
//! All tokens of a batch, whichever sequence they belong to, go through each matrix together; only attention looks at sequences.

use super::{
    activation::{Activations, Encode, GROUP, Layout, NormEncode},
    attention::{Attend, Item, MergeSegments, Workspace, finish, query_words, state_len},
    buffers::{Buffers, Member},
    few::{self, Factor, Few},
    kv::{Pool, Put},
    matmul::{Row, SiluMul, TileProduct},
    network::Network,
    pack::Matrix,
    product::{Epilogue, product, put, tiles_per_chunk},
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
    pub(crate) few: &'a mut Few,
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
        self.norm(&layer.attention_norm, &network.encodings.qkv);
        self.product(Factor::Qkv(index));
        self.rotate(index);
        self.attend(index);
        self.gather();
        self.product(Factor::AttentionOutput(index));
    }

    /// A product of the weights with what is encoded.
    fn product(&mut self, factor: Factor) {
        let network = self.network;
        let config = &network.config;
        let buffers = &mut *self.buffers;
        let (matrices, layout) = factor.of(network);
        let tokens = self.step.tokens.len();
        let (out, columns, rows, epilogue) = match factor {
            Factor::Qkv(_) => {
                let columns: usize = matrices.iter().map(|matrix| matrix.rows).sum();
                (&mut buffers.qkv, columns, tokens, Epilogue::Store)
            }
            Factor::GateUp(_) => (&mut buffers.gated, config.ffn, tokens, Epilogue::Store),
            Factor::AttentionOutput(_) | Factor::Down(_) => {
                (&mut buffers.x, config.hidden, tokens, Epilogue::Accumulate)
            }
            Factor::Output => {
                let rows = self.step.rows.len();
                (&mut buffers.logits, config.vocab, rows, Epilogue::Store)
            }
        };
        let out = &mut out[..rows * columns];
        if rows <= few::MOST_TOKENS {
            self.few
                .product(self.team, factor, &buffers.encoded, out, columns, epilogue);
            return;
        }
        let x = Activations {
            layout,
            words: &buffers.encoded,
        };
        if let Factor::GateUp(index) = factor {
            let layer = &network.layers[index];
            let matrices = [&layer.gate, &layer.up];
            gate_up(
                self.level,
                self.team,
                &mut buffers.members,
                matrices,
                x,
                out,
            );
            return;
        }
        let matrices: Vec<&Matrix> = matrices.iter().collect();
        product(
            self.level,
            self.team,
            &mut buffers.members,
            &matrices,
            x,
            out,
            columns,
            epilogue,
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
            layout.group(),
            step.tokens.len().div_ceil(GROUP),
            1,
            &mut buffers.members,
            |member, index, group| {
                let x = x[index * GROUP * hidden..].chunks_exact(hidden);
                for (row, x) in x.take(members(index, step.tokens.len())).enumerate() {
                    level.run(NormEncode {
                        layout,
                        x,
                        weight,
                        eps: network.config.norm_eps,
                        scratch: &mut member.row,
                        group,
                        row,
                    });
                }
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
                    level.run(Put {
                        layout: page,
                        layer: &mut *bytes,
                        slot,
                        keys,
                        values,
                    });
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
            layout.group(),
            tokens.div_ceil(GROUP),
            1,
            &mut buffers.members,
            |member, index, group| {
                for row in 0..members(index, tokens) {
                    let token = index * GROUP + row;
                    let x = &mut member.row[..layout.cols];
                    for (head, x) in x.chunks_exact_mut(width).enumerate() {
                        x.copy_from_slice(&attended[(head * tokens + token) * width..][..width]);
                    }
                    level.run(Encode {
                        layout,
                        x,
                        group,
                        row,
                    });
                }
            },
        );
    }

    fn feed_forward(&mut self, index: usize) {
        let network = self.network;
        let layer = &network.layers[index];
        self.norm(&layer.ffn_norm, &network.encodings.gate_up);
        self.product(Factor::GateUp(index));
        let Forward {
            level,
            step,
            buffers,
            ..
        } = self;
        let ffn = network.config.ffn;
        let layout = &network.encodings.down;
        let gated = &buffers.gated;
        self.team.rows(
            &mut buffers.encoded,
            layout.group(),
            step.tokens.len().div_ceil(GROUP),
            1,
            |index, group| {
                let x = gated[index * GROUP * ffn..].chunks_exact(ffn);
                for (row, x) in x.take(members(index, step.tokens.len())).enumerate() {
                    level.run(Encode {
                        layout,
                        x,
                        group,
                        row,
                    });
                }
            },
        );
        self.product(Factor::Down(index));
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
            layout.group(),
            step.rows.len().div_ceil(GROUP),
            1,
            &mut buffers.members,
            |member, index, group| {
                for row in 0..members(index, step.rows.len()) {
                    let token = step.rows[index * GROUP + row];
                    level.run(NormEncode {
                        layout,
                        x: &x[token * config.hidden..(token + 1) * config.hidden],
                        weight: &network.final_norm,
                        eps: config.norm_eps,
                        scratch: &mut member.row,
                        group,
                        row,
                    });
                }
            },
        );
        self.product(Factor::Output);
    }
}

/// `out[token] = silu(gate × x[token]) * (up × x[token])`.
fn gate_up(
    level: Level,
    team: &mut Team,
    members: &mut [Member],
    [gate, up]: [&Matrix; 2],
    x: Activations<'_>,
    out: &mut [f32],
) {
    let ffn = gate.rows;
    let tokens = out.len() / ffn;
    let per_chunk = tiles_per_chunk(team.threads(), gate) / 2;
    team.stripes(
        out,
        ffn,
        0..ffn,
        per_chunk,
        members,
        |member, mut stripe| {
            let [gates, ups] = &mut member.tiles;
            let (gates, ups) = (&mut gates[..tokens], &mut ups[..tokens]);
            for (matrix, out) in [(gate, &mut *gates), (up, &mut *ups)] {
                level.run(TileProduct {
                    matrix,
                    tile: stripe.index,
                    x,
                    out,
                });
            }
            level.run(SiluMul {
                gate: gates,
                up: ups,
            });
            for (token, tile) in gates.iter().enumerate() {
                put(stripe.row(token), tile, Epilogue::Store);
            }
        },
    );
}

/// Rows of group `index` of `rows` rows.
fn members(index: usize, rows: usize) -> usize {
    GROUP.min(rows - index * GROUP)
}
