//! Queries, keys and values of a layer: norm, product, rotation, and into pages.

use std::ops::Range;

use half::bf16;
use kernels::{
    launch::Launcher,
    ops::{AppendFp8, Input, Qkv},
    pack::{Format, Packed, Pairs, e4m3_value, head_row},
    source::CacheFormat,
};

use super::{
    On,
    cache::{Heads, LAYER, place},
    distance,
    encode::{Form, rows},
    get, launch, put,
    random::Random,
    rows::{numbers_of, random_row},
};

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

pub fn queries_keys_and_values_turn_and_go_to_their_pages(on: &mut On<'_>) {
    check(on, false);
}

/// `hopper`: by its products, for the formats that have them.
pub(super) fn check(on: &mut On<'_>, hopper: bool) {
    let (columns, tokens, pages) = (96, 133, 10);
    for (format, cache, head_dim, rope_dim, pairs) in [
        (Format::Q4_1, CacheFormat::Bf16, 64, 64, Pairs::Neighbours),
        (Format::Q8_0, CacheFormat::Fp8, 64, 64, Pairs::Halves),
        (Format::Bf16, CacheFormat::Bf16, 32, 16, Pairs::Halves),
        (Format::F16, CacheFormat::Fp8, 48, 32, Pairs::Neighbours),
    ] {
        if hopper && format.block_columns() != 1 {
            continue;
        }
        let heads = Heads {
            heads: 6,
            kv_heads: 2,
            head_dim,
            format: cache,
        };
        let mut random = Random(34);
        let weights = qkv_weights(&mut random, format, heads, columns, rope_dim, pairs);
        let positions: Vec<u32> = (0..tokens as u32).map(|i| i * 17 % 40).collect();
        // No two alike, in no order.
        let slots: Vec<usize> = (0..tokens).map(|i| (i * 7 + 3) % (pages * 16)).collect();
        let x = random.numbers(tokens * columns, 2.0);
        let norm = random.numbers(columns, 1.0);
        let turns: Vec<f32> = (0..40)
            .flat_map(|position| {
                (0..rope_dim / 2).flat_map(move |i| {
                    let angle = position as f32 * 0.3f32.powi(i as i32);
                    [angle.cos(), angle.sin()]
                })
            })
            .collect();
        let shape = heads.cache();
        let query_bytes = heads.heads * head_dim * 2;
        // Queries of some of the tokens, and then all pages.
        let run = |sim: &mut dyn Launcher, own: Range<usize>, form: Form| {
            let tokens = own.len();
            let x = put(sim, &x[own.start * columns..own.end * columns]);
            let norm = Some(put(sim, &norm));
            let rows = rows(sim, form, weights.shape, x, tokens, norm);
            let pool = sim.alloc(pages * shape.page_bytes()).unwrap();
            sim.clear(pool).unwrap();
            let slots: Vec<u32> = slots[own.clone()].iter().map(|s| *s as u32).collect();
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
                positions: put(sim, &positions[own]),
                slots: put(sim, &slots),
                q: sim.alloc(tokens * query_bytes).unwrap(),
                pool,
                kv: Some(
                    sim.alloc(tokens * 2 * heads.kv_heads * head_dim * 4)
                        .unwrap(),
                ),
            };
            launch(sim, &op.launch().unwrap());
            if cache == CacheFormat::Fp8 {
                launch(sim, &AppendFp8(op).launch().unwrap());
            }
            let mut bytes: Vec<u8> = get(sim, op.q, tokens * query_bytes);
            bytes.extend(get::<u8>(sim, pool, pages * shape.page_bytes()));
            bytes
        };
        let form = if hopper { Form::Tiles } else { Form::Encoded };
        let bytes = on.run(|sim| run(sim, 0..tokens, form));
        let (query, pool) = bytes.split_at(tokens * query_bytes);
        if hopper && on.simulated() {
            let plain = on.once(|sim| run(sim, 0..tokens, Form::Encoded));
            assert!(plain == bytes, "{format:?}: tiles");
        }
        // The same by narrower blocks, which encode for themselves.
        let mut cut_pool = vec![0; pool.len()];
        let cuts = [0..7, 7..40, 40..tokens].into_iter().filter(|_| !hopper);
        for own in cuts {
            let fits = Input::fits(weights.shape, own.len());
            let form = if fits { Form::Plain } else { Form::Encoded };
            let cut = on.run(|sim| run(sim, own.clone(), form));
            let (cut_query, part) = cut.split_at(own.len() * query_bytes);
            assert!(
                cut_query == &query[own.start * query_bytes..own.end * query_bytes],
                "{format:?}: queries {own:?}"
            );
            cut_pool.iter_mut().zip(part).for_each(|(all, b)| *all |= b);
        }
        assert!(hopper || cut_pool == pool, "{format:?}: keys and values");
        let q: Vec<u16> = bytemuck::pod_collect_to_vec(query);

        for (token, position) in positions.iter().copied().enumerate() {
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
                    2e-2
                };
                let apart = distance(&got, &want);
                assert!(
                    apart < bound,
                    "{format:?} token {token} head {head}: {apart}"
                );
            }
        }
        // Nothing else was touched: numbers of these tokens, in one of two layers.
        let written = pool.iter().filter(|byte| **byte != 0).count();
        let stored = tokens * heads.kv_heads * shape.part_bytes() / 16;
        assert!(written <= stored, "{written} bytes of {stored}");
    }
}
