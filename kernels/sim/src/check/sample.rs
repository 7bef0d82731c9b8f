//! The sampler against a plain one that sorts.

use kernels::ops::{MOST_LOGPROBS, Sample, SampleResult, SampleRow, SeenToken};

use super::{On, get, launch, put, random::Random};

/// Rows, masks and histories of a launch.
#[derive(Default)]
struct Batch {
    vocab: usize,
    logits: Vec<Vec<f32>>,
    rows: Vec<SampleRow>,
    masks: Vec<u32>,
    seen: Vec<SeenToken>,
}

impl Batch {
    fn run(&self, on: &mut On<'_>) -> Vec<SampleResult> {
        on.run(|sim| {
            let all = self.logits.concat();
            let logits = put(sim, &all);
            let masks = put(sim, &[&self.masks[..], &[0]].concat());
            let op = Sample {
                logits,
                logit_rows: self.logits.len(),
                vocab: self.vocab,
                rows: put(sim, &self.rows),
                count: self.rows.len(),
                masks,
                seen: put(sim, &self.seen),
                saved: sim.alloc(self.seen.len() * 4).unwrap(),
                seen_count: self.seen.len(),
                results: sim
                    .alloc(self.rows.len() * size_of::<SampleResult>())
                    .unwrap(),
            };
            sim.clear(op.results).unwrap();
            launch(sim, &op.launch().unwrap());
            // Penalties are taken back.
            let after: Vec<f32> = get(sim, logits, all.len());
            assert!(
                after
                    .iter()
                    .map(|x| x.to_bits())
                    .eq(all.iter().map(|x| x.to_bits()))
            );
            get(sim, op.results, self.rows.len())
        })
    }

    /// Checks every result.
    fn check(&self, on: &mut On<'_>) {
        for (row, result) in self.rows.iter().zip(self.run(on)) {
            let logits = &self.logits[row.row as usize];
            let mask = (row.mask != SampleRow::NO_MASK).then(|| &self.masks[row.mask as usize..]);
            let seen = &self.seen[row.seen as usize..(row.seen + row.seen_count) as usize];
            check(logits, row, mask, seen, &result);
        }
    }
}

/// Likeliest first, ties to the lowest token.
fn sorted(mut tokens: Vec<(u32, f32)>) -> Vec<(u32, f32)> {
    tokens.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    tokens
}

fn check(
    logits: &[f32],
    row: &SampleRow,
    mask: Option<&[u32]>,
    seen: &[SeenToken],
    result: &SampleResult,
) {
    assert_eq!(result.status, SampleResult::OK);
    let most = logits.iter().copied().fold(f32::MIN, f32::max);
    let total: f64 = logits.iter().map(|x| f64::from(x - most).exp()).sum();
    let logprob = |token: u32| f64::from(logits[token as usize] - most) - total.ln();
    let all: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
    let finite = all.iter().filter(|t| t.1 > f32::NEG_INFINITY).count();
    let count = (row.top_logprobs as usize).min(MOST_LOGPROBS).min(finite);
    assert_eq!(result.count as usize, count);
    for (i, (token, _)) in sorted(all.clone()).into_iter().take(count).enumerate() {
        assert_eq!(result.top_tokens[i], token);
        assert!((f64::from(result.top_logprobs[i]) - logprob(token)).abs() < 1e-4);
    }
    assert!((f64::from(result.logprob) - logprob(result.token)).abs() < 1e-4);

    let mut penalised = all;
    for SeenToken { token, times } in seen {
        let x = &mut penalised[*token as usize].1;
        *x = if *x > 0.0 {
            *x / row.repetition
        } else {
            *x * row.repetition
        };
        if *times > 0 {
            *x -= row.presence + row.frequency * *times as f32;
        }
    }
    let allowed = |t: u32| mask.is_none_or(|m| m[t as usize / 32] >> (t % 32) & 1 == 1);
    let mut kept = sorted(
        penalised
            .into_iter()
            .filter(|(t, x)| allowed(*t) && *x > f32::NEG_INFINITY)
            .collect(),
    );
    if row.temperature == 0.0 {
        assert_eq!(result.token, kept[0].0);
        return;
    }
    if row.top_k > 0 {
        kept.truncate(row.top_k as usize);
    }
    let likeliest = f64::from(kept[0].1);
    let weight = |x: f32| ((f64::from(x) - likeliest) / f64::from(row.temperature)).exp();
    if row.top_p < 1.0 {
        let wanted = f64::from(row.top_p) * kept.iter().map(|t| weight(t.1)).sum::<f64>();
        let mut sum = 0.0;
        let enough = kept.iter().position(|t| {
            sum += weight(t.1);
            sum >= wanted * (1.0 - 1e-7)
        });
        kept.truncate(enough.unwrap_or(kept.len()) + 1);
    }
    kept.retain(|t| weight(t.1) >= f64::from(row.min_p) * (1.0 - 1e-6));
    kept.sort_unstable_by_key(|t| t.0);
    let total: f64 = kept.iter().map(|t| weight(t.1)).sum();
    let target = uniform(row.seed, row.position) * total;
    let mut before = 0.0;
    // The token in whose weight the target lies; beside a boundary its neighbour is as right.
    let near = kept.iter().any(|t| {
        let after = before + weight(t.1);
        let inside = before - total * 1e-5 <= target && target <= after + total * 1e-5;
        before = after;
        inside && t.0 == result.token
    });
    assert!(near, "{row:?}: token {}", result.token);
}

/// Philox 4x32-10, written from the paper.
fn uniform(seed: u64, position: u64) -> f64 {
    let mut counter = [position as u32, (position >> 32) as u32, 0, 0];
    let mut key = [seed as u32, (seed >> 32) as u32];
    for _ in 0..10 {
        let [low, high] = [(0xD251_1F53u64, counter[0]), (0xCD9E_8D57, counter[2])]
            .map(|(m, c)| m * u64::from(c));
        counter = [
            (high >> 32) as u32 ^ counter[1] ^ key[0],
            high as u32,
            (low >> 32) as u32 ^ counter[3] ^ key[1],
            low as u32,
        ];
        key = [
            key[0].wrapping_add(0x9E37_79B9),
            key[1].wrapping_add(0xBB67_AE85),
        ];
    }
    let bits = u64::from(counter[0]) << 32 | u64::from(counter[1]);
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// Normal-like logits with many equal ones.
fn logits(random: &mut Random, vocab: usize) -> Vec<f32> {
    (0..vocab)
        .map(|_| ((0..4).map(|_| random.uniform()).sum::<f32>() * 24.0).round() / 8.0)
        .collect()
}

pub fn draws_of_every_kind_are_those_of_a_plain_sampler(on: &mut On<'_>) {
    let mut random = Random(41);
    for vocab in [1usize, 7, 1000, 1025, 3001] {
        let words = vocab.div_ceil(32);
        let mut batch = Batch {
            vocab,
            logits: (0..3).map(|_| logits(&mut random, vocab)).collect(),
            ..Batch::default()
        };
        batch.logits[1][vocab / 2] = f32::NEG_INFINITY;
        if vocab == 1 {
            batch.logits[1][0] = 3.0;
        }
        for i in 0..24u32 {
            let greedy = SampleRow::greedy(i % 3);
            let mut row = SampleRow {
                seed: random.next_u64(),
                position: random.next_u64(),
                temperature: [0.0, 0.2, 1.0, 3.0][random.below(4)],
                top_k: [0, 0, 1, 5, 40, 5000][random.below(6)],
                top_p: [1.0, 1.0, 0.0, 0.5, 0.9, 0.999][random.below(6)],
                min_p: [0.0, 0.0, 0.05, 1.0][random.below(4)],
                top_logprobs: [0, 1, 20][random.below(3)],
                ..greedy
            };
            if random.below(2) == 0 {
                row.mask = batch.masks.len() as u32;
                batch
                    .masks
                    .extend((0..words).map(|_| random.next_u32() & random.next_u32()));
                // At least one finite token.
                let at = row.mask as usize;
                batch.masks[at] |= 1;
            }
            // Rows that change logits need a row of their own.
            if random.below(3) == 0 {
                row.row = batch.logits.len() as u32;
                batch.logits.push(logits(&mut random, vocab));
                (row.repetition, row.presence, row.frequency) = (1.3, 0.5, 0.25);
                row.seen = batch.seen.len() as u32;
                row.seen_count = vocab.min(9) as u32;
                for k in 0..row.seen_count {
                    batch.seen.push(SeenToken {
                        token: (vocab as u32 - 1) / 9 * k + k % 2 * u32::from(vocab > 20),
                        times: k % 4,
                    });
                }
                if vocab < 20 {
                    let first = row.seen as usize;
                    (0..)
                        .zip(&mut batch.seen[first..])
                        .for_each(|(k, s)| s.token = k);
                }
            }
            batch.rows.push(row);
        }
        batch.check(on);
    }
}

pub fn draws_follow_the_weights(on: &mut On<'_>) {
    let row = |position| SampleRow {
        position,
        temperature: 1.0,
        seed: 7,
        ..SampleRow::greedy(0)
    };
    let batch = Batch {
        vocab: 3,
        logits: vec![vec![1f32.ln(), 2f32.ln(), 5f32.ln()]],
        rows: (0..400).map(row).collect(),
        ..Batch::default()
    };
    let mut counts = [0i32; 3];
    for result in batch.run(on) {
        counts[result.token as usize] += 1;
    }
    // Expected 50, 100, 250; five standard deviations.
    for (count, (expected, deviation)) in counts.into_iter().zip([(50, 33), (100, 43), (250, 49)]) {
        assert!((count - expected).abs() < deviation, "{counts:?}");
    }
}

pub fn broken_rows_and_empty_masks_are_named(on: &mut On<'_>) {
    let logits = [
        vec![1.0, f32::NAN, 2.0],
        vec![1.0, f32::INFINITY, 2.0],
        vec![f32::NEG_INFINITY; 3],
        vec![1.0, f32::NEG_INFINITY, 2.0],
        vec![1.0, 5.0, 5.0],
    ];
    let mut rows: Vec<SampleRow> = (0..5).map(SampleRow::greedy).collect();
    rows[3].mask = 0;
    let batch = Batch {
        vocab: 3,
        logits: logits.to_vec(),
        rows,
        masks: vec![0b010],
        seen: Vec::new(),
    };
    let results = batch.run(on);
    let status: Vec<u32> = results.iter().map(|r| r.status).collect();
    assert_eq!(
        status,
        [
            SampleResult::NAN,
            SampleResult::INFINITE,
            SampleResult::NOTHING_FINITE,
            SampleResult::NOTHING_ALLOWED,
            SampleResult::OK
        ]
    );
    assert_eq!(results[4].token, 1);
}
