//! Attention over pages against f64: grouped heads, ragged batches, shuffled pages, chunks of prompts, drafts.

use half::bf16;
use kernels::{
    launch::{Launcher, Memory},
    ops::{Attention, PAGE_TOKENS, Piece, pieces},
    pack::e4m3,
    source::{CacheFormat, Width},
};

use super::{
    On, bits,
    cache::{Heads, LAYER, place, stored},
    distance, get, launch, put,
    random::Random,
};

/// One sequence of a batch.
#[derive(Clone, Copy)]
struct Span {
    past: usize,
    tokens: usize,
}

/// Keys and values of a sequence and the page table it has.
struct Sequence {
    /// `[kind][position][kv_head][head_dim]`, as stored
    kv: [Vec<f32>; 2],
    pages: Vec<u32>,
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
    sim: &mut dyn Launcher,
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

pub fn decode_of_ragged_batches_matches_f64_in_every_order(on: &mut On<'_>) {
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
            let got = on.run(|sim| {
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

pub fn prompts_and_drafts_match_f64_and_their_bits_do_not_depend_on_how_they_were_cut(
    on: &mut On<'_>,
) {
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
        let all = on.run(|sim| {
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
            let got = on.run(|sim| {
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

pub fn a_wrong_page_is_seen(on: &mut On<'_>) {
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
    let mut run = |sequences: &[Sequence]| {
        on.once(|sim| {
            let pool = put(sim, &bytes);
            attend(sim, heads, pool, sequences, &[(0, span)], &q, SPLIT)
        })
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

/// Prompts by the warp groups of Hopper.
pub(super) fn check_hopper(on: &mut On<'_>) {
    for (head_dim, group, format) in [
        (64, 3, CacheFormat::Bf16),
        (128, 4, CacheFormat::Fp8),
        (80, 1, CacheFormat::Bf16),
    ] {
        let heads = Heads {
            heads: 2 * group,
            kv_heads: 2,
            head_dim,
            format,
        };
        let mut random = Random(36);
        let spans = [(0, 61), (115, 46)].map(|(past, tokens)| Span { past, tokens });
        let (sequences, pages) = sequences(&mut random, heads, &spans);
        let q = queries(&mut random, heads, 61 + 46);
        let bytes = pool(heads, &sequences, pages);
        let run: Vec<(usize, Span)> = spans.into_iter().enumerate().collect();
        let mut of_width = |width| {
            on.run(|sim| {
                let pool = put(sim, &bytes);
                let cut = Cut {
                    width,
                    split: false,
                };
                attend(sim, heads, pool, &sequences, &run, &q, cut)
            })
        };
        let got = of_width(Width::Sm90);
        let (first, second) = got.split_at(61 * heads.heads * head_dim);
        let (first_q, second_q) = q.split_at(first.len());
        for (i, (got, q)) in [(first, first_q), (second, second_q)]
            .into_iter()
            .enumerate()
        {
            let apart = distance(got, &reference(heads, &sequences[i], spans[i], q));
            assert!(apart < 4e-3, "{format:?} d {head_dim}: {apart}");
        }
        let narrow = of_width(Width::W32);
        if on.simulated() {
            assert!(bits(&got) == bits(&narrow), "{format:?} d {head_dim}");
        }
    }
}
