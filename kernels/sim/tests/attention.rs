//! Queries, keys and values into pages, and attention over them, against f64: grouped heads, ragged batches, shuffled pages, chunks of prompts, drafts.

#![allow(clippy::unwrap_used, reason = "a failing test may panic")]

mod support;

use half::bf16;
use kernels::{
    launch::{Launcher, Memory},
    ops::{
        AppendFp8, Attention, CacheCopy, CacheShape, Input, PAGE_TOKENS, PageCopy, Piece, Qkv,
        Rows, pieces,
    },
    pack::{Format, Packed, Pairs, e4m3, e4m3_value, head_row},
    source::{CacheFormat, Width},
};
use kernels_sim::{Order, SimLauncher};
use support::{Random, distance, get, in_each_order, launch, numbers_of, put, random_row};

/// One sequence of a batch.
#[derive(Clone, Copy)]
struct Span {
    past: usize,
    tokens: usize,
}

/// The heads of a model and a cache for it.
#[derive(Clone, Copy)]
struct Heads {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    format: CacheFormat,
}

impl Heads {
    fn cache(self) -> CacheShape {
        CacheShape {
            format: self.format,
            layers: 2,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
        }
    }
}

/// Keys and values of a sequence and the page table it has.
struct Sequence {
    /// `[kind][position][kv_head][head_dim]`, as stored
    kv: [Vec<f32>; 2],
    pages: Vec<u32>,
}

const LAYER: usize = 1;

/// A copy of the rule in `cuda/cache.cuh`, from its words: where a number of a head lies, in numbers.
fn place(value: bool, token: usize, dim: usize) -> usize {
    let (row, k) = if value {
        (dim % 16, token)
    } else {
        (token, dim % 16)
    };
    let lane = row % 8 * 4 + k / 4;
    // Words of two: (g, first pair), (g + 8, first pair), (g, second pair), (g + 8, second pair).
    let word = k % 4 / 2 * 2 + row / 8;
    dim / 16 * 256 + lane * 8 + word * 2 + k % 2
}

/// Pages with NaN everywhere but in the pages of the sequences; those are zero behind the last token.
fn pool(heads: Heads, sequences: &[Sequence], pages: usize) -> Vec<u8> {
    let cache = heads.cache();
    let mut pool = vec![0xff; pages * cache.page_bytes()];
    let numbers = 2 * heads.head_dim * PAGE_TOKENS;
    for sequence in sequences {
        for &page in &sequence.pages {
            let at = page as usize * cache.page_bytes();
            pool[at..at + cache.page_bytes()].fill(0);
        }
        let positions = sequence.kv[0].len() / (heads.kv_heads * heads.head_dim);
        for position in 0..positions {
            let page = sequence.pages[position / PAGE_TOKENS] as usize;
            for head in 0..heads.kv_heads {
                let part = page * cache.page_bytes()
                    + (LAYER * heads.kv_heads + head) * cache.part_bytes();
                for (kind, kv) in sequence.kv.iter().enumerate() {
                    let x = &kv[(position * heads.kv_heads + head) * heads.head_dim..]
                        [..heads.head_dim];
                    let scale = x.iter().fold(0f32, |m, x| m.max(x.abs())) / 448.0;
                    for (dim, x) in x.iter().enumerate() {
                        let at = kind * numbers / 2 + place(kind == 1, position % 16, dim);
                        match heads.format {
                            CacheFormat::Bf16 => {
                                let bytes = bf16::from_f32(*x).to_le_bytes();
                                pool[part + at * 2..part + at * 2 + 2].copy_from_slice(&bytes);
                            }
                            CacheFormat::Fp8 => {
                                let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
                                pool[part + at] = e4m3(x * inverse);
                            }
                        }
                    }
                    if heads.format == CacheFormat::Fp8 {
                        let at = part + numbers + (kind * 16 + position % 16) * 4;
                        pool[at..at + 4].copy_from_slice(&scale.to_le_bytes());
                    }
                }
            }
        }
    }
    pool
}

/// Numbers of a head as the cache keeps them.
fn stored(format: CacheFormat, x: &[f32]) -> Vec<f32> {
    let scale = x.iter().fold(0f32, |m, x| m.max(x.abs())) / 448.0;
    x.iter()
        .map(|x| match format {
            CacheFormat::Bf16 => bf16::from_f32(*x).to_f32(),
            CacheFormat::Fp8 => e4m3_value(e4m3(x / scale)) * scale,
        })
        .collect()
}

/// Sequences with keys and values for all positions of their spans, in pages that lie in no order.
fn sequences(random: &mut Random, heads: Heads, spans: &[Span]) -> (Vec<Sequence>, usize) {
    let needed: usize = spans
        .iter()
        .map(|s| (s.past + s.tokens).div_ceil(PAGE_TOKENS))
        .sum();
    // A few pages stay nobody's.
    let mut free: Vec<u32> = (0..needed as u32 + 3).collect();
    for i in (1..free.len()).rev() {
        free.swap(i, random.below(i + 1));
    }
    let pages = free.len();
    let sequences = spans
        .iter()
        .map(|span| {
            let positions = span.past + span.tokens;
            let numbers = positions * heads.kv_heads * heads.head_dim;
            let kv = [0, 1].map(|_| {
                let numbers = random.numbers(numbers, 2.0);
                let heads_of = numbers.chunks_exact(heads.head_dim);
                heads_of.flat_map(|x| stored(heads.format, x)).collect()
            });
            let pages = free.split_off(free.len() - positions.div_ceil(PAGE_TOKENS));
            Sequence { kv, pages }
        })
        .collect();
    (sequences, pages)
}

/// Softmax attention in f64; `q` are the scaled queries of the span, `[tokens][heads][head_dim]`, for powers of two.
fn reference(heads: Heads, sequence: &Sequence, span: Span, q: &[f32]) -> Vec<f64> {
    let (dims, group) = (heads.head_dim, heads.heads / heads.kv_heads);
    let mut out = Vec::new();
    for token in 0..span.tokens {
        for head in 0..heads.heads {
            let q = &q[(token * heads.heads + head) * dims..][..dims];
            let row = |kind: usize, position: usize| {
                &sequence.kv[kind][(position * heads.kv_heads + head / group) * dims..][..dims]
            };
            let scores: Vec<f64> = (0..=span.past + token)
                .map(|position| {
                    let key = row(0, position);
                    q.iter()
                        .zip(key)
                        .map(|(a, b)| f64::from(*a) * f64::from(*b))
                        .sum()
                })
                .collect();
            let most = scores.iter().copied().fold(f64::MIN, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - most).exp2()).collect();
            let sum: f64 = weights.iter().sum();
            out.extend((0..dims).map(|d| {
                let values = weights
                    .iter()
                    .enumerate()
                    .map(|(position, w)| w * f64::from(row(1, position)[d]));
                values.sum::<f64>() / sum
            }));
        }
    }
    out
}

/// How a batch is put into blocks.
#[derive(Clone, Copy)]
struct Cut {
    width: Width,
    split: bool,
}

/// Attention of spans `run` (sequence, past, tokens) over the pool; `q` are their queries one after another.
fn attend(
    sim: &mut SimLauncher,
    heads: Heads,
    pool: Memory,
    sequences: &[Sequence],
    run: &[(usize, Span)],
    q: &[f32],
    cut: Cut,
) -> Vec<f32> {
    let (mut list, mut tables): (Vec<Piece>, Vec<u32>) = Default::default();
    let (mut states, mut chunks, mut tokens) = (0, 0, 0);
    for (sequence, span) in run {
        pieces(
            &mut list,
            (&mut states, &mut chunks),
            cut.width,
            heads.heads / heads.kv_heads,
            tokens,
            span.tokens,
            span.past,
            tables.len(),
            cut.split,
        )
        .unwrap();
        tables.extend(&sequences[*sequence].pages);
        tokens += span.tokens;
    }
    let bits: Vec<u16> = q.iter().map(|x| bf16::from_f32(*x).to_bits()).collect();
    let cache = heads.cache();
    let states = states as usize;
    let counters = sim.alloc(chunks as usize * heads.kv_heads * 4).unwrap();
    sim.clear(counters).unwrap();
    let op = Attention {
        cache,
        layer: LAYER,
        heads: heads.heads,
        tokens,
        width: cut.width,
        pieces: put(sim, &list),
        count: list.len(),
        tables: put(sim, &tables),
        q: put(sim, &bits),
        pool,
        out: sim.alloc(q.len() * 4).unwrap(),
        states: sim
            .alloc(Attention::states_bytes(cache, cut.width, states))
            .unwrap(),
        states_count: states,
        counters,
        chunks: chunks as usize,
    };
    launch(sim, &op.launch().unwrap());
    get(sim, op.out, q.len())
}

fn queries(random: &mut Random, heads: Heads, tokens: usize) -> Vec<f32> {
    let scale = 3.0 / (heads.head_dim as f32).sqrt();
    random
        .numbers(tokens * heads.heads * heads.head_dim, scale)
        .iter()
        .map(|x| bf16::from_f32(*x).to_f32())
        .collect()
}

const SPLIT: Cut = Cut {
    width: Width::W8,
    split: true,
};

#[test]
fn decode_of_ragged_batches_matches_f64_in_every_order() {
    for (heads, kv_heads, head_dim) in [(2, 2, 64), (9, 3, 64), (8, 2, 128), (8, 1, 32), (4, 2, 80)]
    {
        for format in [CacheFormat::Bf16, CacheFormat::Fp8] {
            let heads = Heads {
                heads,
                kv_heads,
                head_dim,
                format,
            };
            let mut random = Random(31);
            // Nothing before, inside the first page, at its end, at a segment's end, three segments.
            let spans = [0, 5, 15, 127, 300].map(|past| Span { past, tokens: 1 });
            let (sequences, pages) = sequences(&mut random, heads, &spans);
            let q = queries(&mut random, heads, spans.len());
            let bytes = pool(heads, &sequences, pages);
            let run: Vec<(usize, Span)> = spans.into_iter().enumerate().collect();
            let got = in_each_order(|sim| {
                let pool = put(sim, &bytes);
                attend(sim, heads, pool, &sequences, &run, &q, SPLIT)
            });
            let each = heads.heads * head_dim;
            for (i, span) in spans.iter().enumerate() {
                let own = i * each..(i + 1) * each;
                let want = reference(heads, &sequences[i], *span, &q[own.clone()]);
                let apart = distance(&got[own], &want);
                assert!(
                    apart < 4e-3,
                    "{format:?} d {head_dim} past {}: {apart}",
                    span.past
                );
            }
        }
    }
}

#[test]
fn prompts_and_drafts_match_f64_and_their_bits_do_not_depend_on_how_they_were_cut() {
    for format in [CacheFormat::Bf16, CacheFormat::Fp8] {
        let heads = Heads {
            heads: 6,
            kv_heads: 2,
            head_dim: 64,
            format,
        };
        let mut random = Random(32);
        let whole = Span {
            past: 0,
            tokens: 290,
        };
        let (sequences, pages) = sequences(&mut random, heads, &[whole]);
        let q = queries(&mut random, heads, 290);
        let bytes = pool(heads, &sequences, pages);
        let wide = Cut {
            width: Width::W64,
            split: false,
        };
        let all = in_each_order(|sim| {
            let pool = put(sim, &bytes);
            attend(sim, heads, pool, &sequences, &[(0, whole)], &q, wide)
        });
        let apart = distance(&all, &reference(heads, &sequences[0], whole, &q));
        assert!(apart < 4e-3, "{format:?}: {apart}");

        // One token, a draft of five, a chunk of 40 that crosses a segment: the same bits.
        let each = heads.heads * heads.head_dim;
        let cuts = [
            (289, 1, SPLIT),
            (289, 1, wide),
            (0, 1, SPLIT),
            (252, 5, SPLIT),
            (
                120,
                40,
                Cut {
                    width: Width::W32,
                    split: true,
                },
            ),
            (
                120,
                40,
                Cut {
                    width: Width::W32,
                    split: false,
                },
            ),
        ];
        for (past, tokens, cut) in cuts {
            let own = past * each..(past + tokens) * each;
            let run = [(0, Span { past, tokens })];
            let got = in_each_order(|sim| {
                let pool = put(sim, &bytes);
                attend(sim, heads, pool, &sequences, &run, &q[own.clone()], cut)
            });
            let same = got
                .iter()
                .zip(&all[own])
                .all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{format:?}: {tokens} tokens after {past}");
        }
    }
}

#[test]
fn a_wrong_page_is_seen() {
    let heads = Heads {
        heads: 4,
        kv_heads: 2,
        head_dim: 64,
        format: CacheFormat::Bf16,
    };
    let mut random = Random(33);
    let span = Span {
        past: 40,
        tokens: 1,
    };
    let (mut sequences, pages) = sequences(&mut random, heads, &[span, span]);
    let q = queries(&mut random, heads, 1);
    let bytes = pool(heads, &sequences, pages);
    let want = reference(heads, &sequences[0], span, &q);
    let run = |sequences: &[Sequence]| {
        let sim = &mut SimLauncher::new(Order::Forward);
        let pool = put(sim, &bytes);
        attend(sim, heads, pool, sequences, &[(0, span)], &q, SPLIT)
    };
    assert!(distance(&run(&sequences), &want) < 4e-3);
    let [first, other] = [0, 1].map(|s| sequences[s].pages[1]);
    // Somebody else's page is full of plausible numbers; nobody's is NaN; and one past the pool is no memory.
    sequences[0].pages[1] = other;
    assert!(distance(&run(&sequences), &want) > 0.1);
    let nobody = (0..pages as u32)
        .find(|page| sequences.iter().all(|s| !s.pages.contains(page)) && *page != first)
        .unwrap();
    sequences[0].pages[1] = nobody;
    assert!(run(&sequences).iter().any(|x| x.is_nan()));
}

/// The rows of Q, K and V of a layer and their packed form.
struct QkvWeights {
    shape: Packed,
    rows: Vec<Vec<u8>>,
    packed: Vec<u8>,
}

fn qkv_weights(
    random: &mut Random,
    format: Format,
    heads: Heads,
    columns: usize,
    rope_dim: usize,
    pairs: Pairs,
) -> QkvWeights {
    let dims = heads.head_dim;
    let count = (heads.heads + 2 * heads.kv_heads) * dims;
    let shape = Packed::new(format, count, columns).unwrap();
    let rows: Vec<Vec<u8>> = (0..count)
        .map(|_| random_row(random, format, columns))
        .collect();
    let packed = shape.pack_ordered(|place| {
        let head = place / dims;
        let pairs = if head < heads.heads + heads.kv_heads {
            pairs
        } else {
            Pairs::None
        };
        let row = head * dims + head_row(place % dims, dims, rope_dim, pairs);
        Some(&rows[row])
    });
    QkvWeights {
        shape,
        rows,
        packed,
    }
}

#[test]
fn queries_keys_and_values_turn_and_go_to_their_pages() {
    let columns = 96;
    for (format, cache, head_dim, rope_dim, pairs) in [
        (Format::Q4_1, CacheFormat::Bf16, 64, 64, Pairs::Neighbours),
        (Format::Q8_0, CacheFormat::Fp8, 64, 64, Pairs::Halves),
        (Format::Bf16, CacheFormat::Bf16, 32, 16, Pairs::Halves),
        (Format::F16, CacheFormat::Fp8, 48, 32, Pairs::Neighbours),
    ] {
        let heads = Heads {
            heads: 6,
            kv_heads: 2,
            head_dim,
            format: cache,
        };
        let mut random = Random(34);
        let weights = qkv_weights(&mut random, format, heads, columns, rope_dim, pairs);
        let positions = [0u32, 17, 33, 5];
        let slots = [3 * 16, 16 + 1, 2 * 16 + 1, 5];
        let x = random.numbers(positions.len() * columns, 2.0);
        let norm = random.numbers(columns, 1.0);
        let turns: Vec<f32> = (0..34)
            .flat_map(|position| {
                (0..rope_dim / 2).flat_map(move |i| {
                    let angle = position as f32 * 0.3f32.powi(i as i32);
                    [angle.cos(), angle.sin()]
                })
            })
            .collect();
        let shape = heads.cache();
        let pages = 4;
        let run = |sim: &mut SimLauncher| {
            let rows = Rows::Plain {
                x: put(sim, &x),
                norm: Some((put(sim, &norm), 1e-5)),
            };
            let pool = sim.alloc(pages * shape.page_bytes()).unwrap();
            sim.clear(pool).unwrap();
            let tokens = positions.len();
            let numbers = tokens * 2 * heads.kv_heads * head_dim;
            let op = Qkv {
                input: Input {
                    shape: weights.shape,
                    weights: put(sim, &weights.packed),
                    rows,
                    tokens,
                },
                cache: shape,
                layer: LAYER,
                heads: heads.heads,
                first_head: 0,
                rope_dim,
                turns: put(sim, &turns),
                positions: put(sim, &positions),
                slots: put(sim, &slots.map(|slot| slot as u32)),
                q: sim.alloc(tokens * heads.heads * head_dim * 2).unwrap(),
                pool,
                kv: Some(sim.alloc(numbers * 4).unwrap()),
            };
            launch(sim, &op.launch().unwrap());
            if cache == CacheFormat::Fp8 {
                launch(sim, &AppendFp8(op).launch().unwrap());
            }
            let mut bytes: Vec<u8> = get(sim, op.q, tokens * heads.heads * head_dim * 2);
            bytes.extend(get::<u8>(sim, pool, pages * shape.page_bytes()));
            bytes
        };
        let bytes = in_each_order(run);
        let (q, pool) = bytes.split_at(positions.len() * heads.heads * head_dim * 2);
        let q: Vec<u16> = bytemuck::pod_collect_to_vec(q);

        for (token, position) in positions.into_iter().enumerate() {
            let x = &x[token * columns..(token + 1) * columns];
            let mean = x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / columns as f64;
            let normed: Vec<f64> = x
                .iter()
                .zip(&norm)
                .map(|(x, w)| f64::from(*x) / (mean + 1e-5).sqrt() * f64::from(*w))
                .collect();
            let all: Vec<f64> = weights
                .rows
                .iter()
                .map(|row| {
                    let row = numbers_of(format, columns, row);
                    row.iter().zip(&normed).map(|(a, b)| a * b).sum()
                })
                .collect();
            for head in 0..heads.heads + 2 * heads.kv_heads {
                let row = &all[head * head_dim..(head + 1) * head_dim];
                let turned = head < heads.heads + heads.kv_heads;
                // What stands at place i of the kernels' order, and its partner.
                let order = |i: usize| {
                    let place = i % (head_dim / 2) / 8 * 16 + i % 8 + i / (head_dim / 2) * 8;
                    let pairs = if turned { pairs } else { Pairs::None };
                    row[head_row(place, head_dim, rope_dim, pairs)]
                };
                let want: Vec<f64> = (0..head_dim)
                    .map(|i| {
                        let pair = i % (head_dim / 2);
                        if !turned || pair >= rope_dim / 2 {
                            return order(i);
                        }
                        let (low, high) = (order(pair), order(pair + head_dim / 2));
                        let at = (position as usize * rope_dim / 2 + pair) * 2;
                        let (cos, sin) = (f64::from(turns[at]), f64::from(turns[at + 1]));
                        if i == pair {
                            low * cos - high * sin
                        } else {
                            high * cos + low * sin
                        }
                    })
                    .collect();
                let got: Vec<f32> = (0..head_dim)
                    .map(|i| {
                        if head < heads.heads {
                            let q = q[(token * heads.heads + head) * head_dim + i];
                            let scale = std::f32::consts::LOG2_E / (head_dim as f32).sqrt();
                            return bf16::from_bits(q).to_f32() / scale;
                        }
                        let value = head >= heads.heads + heads.kv_heads;
                        let kv_head = (head - heads.heads) % heads.kv_heads;
                        let (page, slot) = (slots[token] / 16, slots[token] % 16);
                        let part = page * shape.page_bytes()
                            + (LAYER * heads.kv_heads + kv_head) * shape.part_bytes();
                        let numbers = head_dim * 16;
                        let at = usize::from(value) * numbers + place(value, slot, i);
                        match cache {
                            CacheFormat::Bf16 => {
                                let at = part + at * 2;
                                bf16::from_le_bytes([pool[at], pool[at + 1]]).to_f32()
                            }
                            CacheFormat::Fp8 => {
                                let scale =
                                    part + 2 * numbers + (usize::from(value) * 16 + slot) * 4;
                                let scale: [u8; 4] = pool[scale..scale + 4].try_into().unwrap();
                                e4m3_value(pool[part + at]) * f32::from_le_bytes(scale)
                            }
                        }
                    })
                    .collect();
                let bound = if cache == CacheFormat::Fp8 && head >= heads.heads {
                    4e-2
                } else {
                    1.5e-2
                };
                let apart = distance(&got, &want);
                assert!(
                    apart < bound,
                    "{format:?} token {token} head {head}: {apart}"
                );
            }
        }
        // Nothing else was touched: numbers of four tokens, in one of two layers.
        let written = pool.iter().filter(|byte| **byte != 0).count();
        let stored = 4 * 2 * heads.kv_heads * (shape.part_bytes() / 32);
        assert!(written <= stored, "{written} bytes of {stored}");
    }
}

#[test]
fn a_copied_page_has_the_first_tokens_and_zeros_behind() {
    for format in [CacheFormat::Bf16, CacheFormat::Fp8] {
        let heads = Heads {
            heads: 2,
            kv_heads: 2,
            head_dim: 48,
            format,
        };
        let cache = heads.cache();
        let mut random = Random(35);
        let bytes: Vec<u8> = (0..3 * cache.page_bytes())
            .map(|_| random.next_u32() as u8 | 1)
            .collect();
        let copies = [PageCopy::new(0, 2, 16), PageCopy::new(0, 1, 5)];
        let got = in_each_order(|sim| {
            let (from, to) = (put(sim, &bytes), put(sim, &bytes));
            let op = CacheCopy {
                cache,
                from,
                to,
                copies: put(sim, &copies),
                count: 2,
            };
            launch(sim, &op.launch().unwrap());
            get::<u8>(sim, to, bytes.len())
        });
        let size = cache.page_bytes();
        assert!(got[2 * size..] == bytes[..size]);
        let number = if format == CacheFormat::Bf16 { 2 } else { 1 };
        let half = heads.head_dim * 16;
        for part in (size..2 * size).step_by(cache.part_bytes()) {
            for token in 0..16 {
                let same = |at: usize, bytes_of: usize| {
                    let got = &got[part + at..part + at + bytes_of];
                    let from = part - size + at;
                    if token < 5 {
                        assert_eq!(got, &bytes[from..from + bytes_of]);
                    } else {
                        assert!(got.iter().all(|byte| *byte == 0));
                    }
                };
                for dim in 0..heads.head_dim {
                    for value in [false, true] {
                        let at = usize::from(value) * half + place(value, token, dim);
                        same(at * number, number);
                    }
                }
                if format == CacheFormat::Fp8 {
                    same(2 * half + token * 4, 4);
                    same(2 * half + (16 + token) * 4, 4);
                }
            }
        }
    }
}
