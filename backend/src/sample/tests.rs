use std::sync::Arc;

use pretty_assertions::assert_eq;
use proptest::prelude::*;

use super::*;

fn row<'a>(params: &'a SamplingParams, mask: Option<&'a TokenMask>) -> SampleRow<'a> {
    SampleRow {
        row: 0,
        params,
        history: &[],
        prompt: 0,
        mask,
        position: 0,
        top_logprobs: 0,
    }
}

fn greedy_params() -> SamplingParams {
    SamplingParams {
        temperature: 0.0,
        ..SamplingParams::default()
    }
}

fn mask(vocab: usize, allowed: &[u32]) -> TokenMask {
    let mut words = vec![0; vocab.div_ceil(32)];
    for &token in allowed {
        words[token as usize / 32] |= 1 << (token % 32);
    }
    TokenMask(Arc::from(words))
}

fn pick_one(logits: &[f32], row: &SampleRow<'_>) -> Result<Sampled, SampleError> {
    let mut logits = logits.to_vec();
    let before = logits.clone();
    let sampled = pick(&mut logits, row, &mut Scratch::default());
    assert_eq!(logits, before, "pick must leave the logits as they came");
    sampled
}

/// How often each token comes in `draws` draws at positions 0, 1, 2, …
fn frequencies(logits: &[f32], params: &SamplingParams, draws: u64) -> Vec<f64> {
    let mut counts = vec![0f64; logits.len()];
    for position in 0..draws {
        let row = SampleRow {
            position,
            ..row(params, None)
        };
        counts[pick_one(logits, &row).unwrap().token as usize] += 1.0 / draws as f64;
    }
    counts
}

fn assert_close(actual: &[f64], expected: &[f64], tolerance: f64) {
    for (a, e) in actual.iter().zip(expected) {
        assert!((a - e).abs() < tolerance, "{actual:?} is not {expected:?}");
    }
}

fn softmax(logits: &[f32], temperature: f64) -> Vec<f64> {
    let weights: Vec<f64> = logits
        .iter()
        .map(|&l| (f64::from(l) / temperature).exp())
        .collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|w| w / sum).collect()
}

#[test]
fn greedy_takes_the_lowest_of_equal_tokens() {
    let mut logits = vec![0.5; 3000];
    logits[1500] = 2.0;
    logits[2999] = 2.0;
    let params = greedy_params();
    assert_eq!(pick_one(&logits, &row(&params, None)).unwrap().token, 1500);
    let allowed = mask(3000, &[7, 2999]);
    assert_eq!(
        pick_one(&logits, &row(&params, Some(&allowed)))
            .unwrap()
            .token,
        2999
    );
    let allowed = mask(3000, &[2000, 7]);
    assert_eq!(
        pick_one(&logits, &row(&params, Some(&allowed)))
            .unwrap()
            .token,
        7
    );
}

#[test]
fn logprobs_are_those_of_the_raw_logits_whatever_is_masked_or_penalised() {
    let logits = [1.0, 2.0, 3.0, -1.0];
    let params = SamplingParams {
        presence_penalty: 5.0,
        repetition_penalty: 1.3,
        ..greedy_params()
    };
    let allowed = mask(4, &[0, 3]);
    let row = SampleRow {
        history: &[3, 2, 2],
        prompt: 1,
        top_logprobs: 2,
        ..row(&params, Some(&allowed))
    };
    let sampled = pick_one(&logits, &row).unwrap();
    let log = |token: usize| softmax(&logits, 1.0)[token].ln() as f32;
    assert_eq!(sampled.token, 0);
    assert!((sampled.logprob - log(0)).abs() < 1e-6);
    assert_eq!(sampled.top.iter().map(|t| t.0).collect::<Vec<_>>(), [2, 1]);
    assert!((sampled.top[0].1 - log(2)).abs() < 1e-6);
    assert!((sampled.top[1].1 - log(1)).abs() < 1e-6);
}

#[test]
fn repetition_counts_the_prompt_and_presence_and_frequency_do_not() {
    let base = greedy_params();
    let logits = [2.0, 1.9, -1.0, 1.5];
    let with = |params: &SamplingParams, history: &[u32], prompt: usize| {
        let row = SampleRow {
            history,
            prompt,
            ..row(params, None)
        };
        pick_one(&logits, &row).unwrap().token
    };
    let repetition = SamplingParams {
        repetition_penalty: 1.1,
        ..base
    };
    assert_eq!(with(&repetition, &[0], 1), 1);
    let presence = SamplingParams {
        presence_penalty: 0.2,
        ..base
    };
    assert_eq!(with(&presence, &[0], 1), 0);
    assert_eq!(with(&presence, &[0], 0), 1);
    let frequency = SamplingParams {
        frequency_penalty: 0.06,
        ..base
    };
    assert_eq!(with(&frequency, &[0], 0), 0);
    assert_eq!(with(&frequency, &[0, 0], 0), 1);
}

#[test]
fn draws_follow_the_distribution_at_each_temperature() {
    let logits = [1.0, 0.0, -1.0, 2.0, f32::NEG_INFINITY];
    for temperature in [0.5f32, 1.0, 2.0] {
        let params = SamplingParams {
            temperature,
            seed: 11,
            ..SamplingParams::default()
        };
        let expected = softmax(&logits, f64::from(temperature));
        assert_close(&frequencies(&logits, &params, 40_000), &expected, 0.01);
    }
}

#[test]
fn each_filter_cuts_what_the_one_before_left() {
    // Probabilities 0.4, 0.3, 0.2, 0.1.
    let logits: Vec<f32> = [0.4f32, 0.3, 0.2, 0.1].iter().map(|p| p.ln()).collect();
    let plain = SamplingParams::default();
    let top_k = SamplingParams { top_k: 3, ..plain };
    let expected = [4.0 / 9.0, 3.0 / 9.0, 2.0 / 9.0, 0.0];
    assert_close(&frequencies(&logits, &top_k, 40_000), &expected, 0.01);
    // 0.4 + 0.3 reaches 0.65 of all, and of the top three's 0.9 it is 0.78 > 0.75.
    let top_p = SamplingParams {
        top_p: 0.65,
        ..plain
    };
    let both = SamplingParams {
        top_k: 3,
        top_p: 0.75,
        ..plain
    };
    let two = [4.0 / 7.0, 3.0 / 7.0, 0.0, 0.0];
    assert_close(&frequencies(&logits, &top_p, 40_000), &two, 0.01);
    assert_close(&frequencies(&logits, &both, 40_000), &two, 0.01);
    let min_p = SamplingParams {
        min_p: 0.45,
        ..plain
    };
    assert_close(&frequencies(&logits, &min_p, 40_000), &expected, 0.01);
    let nothing = SamplingParams {
        top_p: 0.0,
        ..plain
    };
    assert_close(
        &frequencies(&logits, &nothing, 1000),
        &[1.0, 0.0, 0.0, 0.0],
        1e-6,
    );
}

#[test]
fn a_nucleus_larger_than_the_first_look_is_found() {
    // 1000 equal tokens: half of the mass is the 500 lowest ids.
    let params = SamplingParams {
        top_p: 0.5,
        ..SamplingParams::default()
    };
    let found = frequencies(&vec![0.25; 1000], &params, 20_000);
    assert!(found[..500].iter().all(|&f| f > 0.0));
    assert!(found[500..].iter().all(|&f| f == 0.0));
}

#[test]
fn broken_logits_are_an_error_and_not_a_token() {
    let params = greedy_params();
    let mut logits = vec![0.0; 100];
    logits[99] = f32::NAN;
    assert_eq!(
        pick_one_nan(&mut logits, &params),
        Err(SampleError::Broken("a NaN"))
    );
    logits[99] = f32::INFINITY;
    assert_eq!(
        pick_one_nan(&mut logits, &params),
        Err(SampleError::Broken("an infinity"))
    );
    let mut logits = vec![f32::NEG_INFINITY; 5];
    assert_eq!(
        pick_one_nan(&mut logits, &params),
        Err(SampleError::Broken("nothing finite"))
    );
    let none = mask(4, &[]);
    for params in [greedy_params(), SamplingParams::default()] {
        assert_eq!(
            pick_one(&[0.0; 4], &row(&params, Some(&none))),
            Err(SampleError::NothingAllowed)
        );
    }
}

fn pick_one_nan(logits: &mut [f32], params: &SamplingParams) -> Result<u32, SampleError> {
    pick(logits, &row(params, None), &mut Scratch::default()).map(|s| s.token)
}

#[test]
fn exp_is_right_to_two_parts_in_ten_million() {
    for step in 0..200_000 {
        let x = -87.0 * step as f32 / 200_000.0;
        let (ours, exact) = (f64::from(scan::exp(x)), f64::from(x).exp());
        assert!(
            (ours / exact - 1.0).abs() < 3e-7,
            "exp({x}) is {ours}, not {exact}"
        );
    }
    assert_eq!(scan::exp(0.0), 1.0);
    assert_eq!(scan::exp(-100.0), 0.0);
    assert_eq!(scan::exp(f32::NEG_INFINITY), 0.0);
}

/// The same steps by full sorting, in f64.
fn naive_survivors(logits: &[f32], params: &SamplingParams, mask: Option<&TokenMask>) -> Vec<u32> {
    let mut all: Vec<(u32, f32)> = logits
        .iter()
        .enumerate()
        .map(|(t, &l)| (t as u32, l))
        .filter(|&(t, _)| mask.is_none_or(|m| m.allows(t)))
        .collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    if params.top_k > 0 {
        all.truncate(params.top_k);
    }
    let logits: Vec<f32> = all.iter().map(|&(_, l)| l).collect();
    let weights = softmax(&logits, f64::from(params.temperature));
    let mut sum = 0.0;
    let mut kept = all.len();
    for (index, weight) in weights.iter().enumerate() {
        sum += weight;
        if params.top_p < 1.0 && sum >= f64::from(params.top_p) {
            kept = index + 1;
            break;
        }
    }
    let floor = f64::from(params.min_p) * weights.first().copied().unwrap_or(0.0);
    let kept = all.iter().zip(&weights).take(kept);
    kept.filter(|(_, w)| **w >= floor)
        .map(|(t, _)| t.0)
        .collect()
}

proptest! {
    #[test]
    fn a_draw_is_always_among_what_full_sorting_would_leave(
        logits in prop::collection::vec(-8i32..8, 1..300),
        top_k in 0usize..40,
        top_p in 1u32..=16,
        min_p in 0u32..4,
        allowed in prop::option::of(prop::collection::vec(any::<u32>(), 10)),
        position in any::<u64>(),
    ) {
        // Coarse logits make ties; odd fractions keep the bounds off the sums of weights.
        let logits: Vec<f32> = logits.iter().map(|&l| l as f32 * 0.7).collect();
        let params = SamplingParams {
            temperature: 0.8,
            top_k,
            top_p: if top_p == 16 { 1.0 } else { top_p as f32 / 16.0 + 0.0137 },
            min_p: min_p as f32 * 0.1037,
            seed: 3,
            ..SamplingParams::default()
        };
        let mask = allowed.map(|words| TokenMask(Arc::from(words)));
        let survivors = naive_survivors(&logits, &params, mask.as_ref());
        let row = SampleRow { position, ..row(&params, mask.as_ref()) };
        match pick_one(&logits, &row) {
            Ok(sampled) => prop_assert!(survivors.contains(&sampled.token)),
            Err(error) => {
                prop_assert_eq!(error, SampleError::NothingAllowed);
                prop_assert_eq!(survivors, Vec::<u32>::new());
            }
        }
    }

    #[test]
    fn logprobs_and_alternatives_agree_with_a_plain_softmax(
        logits in prop::collection::vec(-30f32..30.0, 1..3000),
        top_logprobs in 0usize..=20,
    ) {
        let params = greedy_params();
        let row = SampleRow { top_logprobs, ..row(&params, None) };
        let sampled = pick_one(&logits, &row).unwrap();
        let exact = softmax(&logits, 1.0);
        let mut sorted: Vec<u32> = (0..logits.len() as u32).collect();
        sorted.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]).then(a.cmp(&b)));
        prop_assert_eq!(sampled.token, sorted[0]);
        sorted.truncate(top_logprobs);
        prop_assert_eq!(sampled.top.iter().map(|t| t.0).collect::<Vec<_>>(), sorted);
        for (token, logprob) in sampled.top {
            let expected = exact[token as usize].ln();
            prop_assert!((f64::from(logprob) - expected).abs() < 1e-4, "{} is not {}", logprob, expected);
        }
    }
}

#[test]
#[ignore = "a measurement: cargo test --release -p codex-bridge-backend --lib sample::tests -- --ignored --nocapture"]
fn speed() {
    let logits: Vec<f32> = (0..128_256u64)
        .map(|i| (philox::uniform(1, i) * 12.0 - 6.0) as f32)
        .collect();
    let every = TokenMask(Arc::from(vec![u32::MAX; 128_256 / 32 + 1]));
    let few = mask(128_256, &(0..500).map(|i| i * 200).collect::<Vec<_>>());
    let plain = SamplingParams::default();
    let cases = [
        ("greedy", greedy_params(), None),
        ("greedy, wide mask", greedy_params(), Some(&every)),
        ("greedy, narrow mask", greedy_params(), Some(&few)),
        ("temperature 1", plain.clone(), None),
        (
            "top-k 40",
            SamplingParams {
                top_k: 40,
                ..plain.clone()
            },
            None,
        ),
        (
            "top-p 0.9 of a flat row",
            SamplingParams {
                top_p: 0.9,
                ..plain.clone()
            },
            None,
        ),
        (
            "top-p 0.9 at temperature 0.2",
            SamplingParams {
                top_p: 0.9,
                temperature: 0.2,
                ..plain
            },
            None,
        ),
    ];
    for (name, params, mask) in cases {
        let mut logits = logits.clone();
        let mut scratch = Scratch::default();
        let start = std::time::Instant::now();
        for position in 0..50 {
            let row = SampleRow {
                position,
                ..row(&params, mask)
            };
            pick(&mut logits, &row, &mut scratch).unwrap();
        }
        println!("{name}: {:?} a row of 128256", start.elapsed() / 50);
    }
}
