//! One pass over a row: its largest logit, where it stands, and the log of the softmax's denominator. Written so that the compiler makes vectors of it.

use super::SampleError;

/// Logits whose largest is found, and whose exponentials are added, while they lie in the nearest cache.
const BLOCK: usize = 1024;
const LANES: usize = 16;

/// What a row of raw logits says as a whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raw {
    /// The lowest token of the largest logit.
    pub(super) argmax: u32,
    /// `ln Σ exp(logit)`.
    log_sum: f64,
}

impl Raw {
    /// Natural log of the probability of a token with this logit.
    pub(super) fn logprob(&self, logit: f32) -> f32 {
        (f64::from(logit) - self.log_sum) as f32
    }
}

pub(super) fn scan(logits: &[f32]) -> Result<Raw, SampleError> {
    let mut max = f32::NEG_INFINITY;
    let mut argmax = 0;
    // Σ exp(logit - max) over the blocks so far.
    let mut sum = 0f64;
    for (block, values) in logits.chunks(BLOCK).enumerate() {
        let (largest, is_nan) = block_max(values);
        if is_nan {
            return Err(SampleError::Broken("a NaN"));
        }
        if largest > max {
            sum *= f64::from(max - largest).exp();
            max = largest;
            let first = values.iter().position(|&v| v == largest).unwrap_or(0);
            argmax = block * BLOCK + first;
        }
        if max > f32::NEG_INFINITY {
            sum += f64::from(sum_exp(values, max));
        }
    }
    if !max.is_finite() {
        let what = if max > 0.0 {
            "an infinity"
        } else {
            "nothing finite"
        };
        return Err(SampleError::Broken(what));
    }
    Ok(Raw {
        argmax: argmax as u32,
        log_sum: f64::from(max) + sum.ln(),
    })
}

fn block_max(values: &[f32]) -> (f32, bool) {
    let mut max = [f32::NEG_INFINITY; LANES];
    let mut nan = [false; LANES];
    let mut chunks = values.chunks_exact(LANES);
    for chunk in &mut chunks {
        for lane in 0..LANES {
            let value = chunk[lane];
            max[lane] = if value > max[lane] { value } else { max[lane] };
            nan[lane] |= value.is_nan();
        }
    }
    let rest = chunks.remainder();
    let largest = max
        .iter()
        .chain(rest)
        .fold(f32::NEG_INFINITY, |m, &v| if v > m { v } else { m });
    (
        largest,
        nan.contains(&true) || rest.iter().any(|v| v.is_nan()),
    )
}

fn sum_exp(values: &[f32], max: f32) -> f32 {
    let mut sums = [0f32; LANES];
    let mut chunks = values.chunks_exact(LANES);
    for chunk in &mut chunks {
        for lane in 0..LANES {
            sums[lane] += exp(chunk[lane] - max);
        }
    }
    let rest: f32 = chunks.remainder().iter().map(|&v| exp(v - max)).sum();
    sums.iter().sum::<f32>() + rest
}

/// `e^x` for `x <= 0`, to 2e-7 relative; 0 below -87. Unlike the library's it is the same on every machine and becomes vector code.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    /// Adding it rounds to a whole number, left in the low bits.
    const ROUND: f32 = 12_582_912.0;
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let clamped = if x > -87.0 { x } else { -87.0 };
    let rounded = clamped * std::f32::consts::LOG2_E + ROUND;
    let whole = rounded - ROUND;
    // |rest| <= ln 2 / 2
    let rest = clamped - whole * LN_2_HIGH - whole * LN_2_LOW;
    let mut p = 1.0 / 720.0;
    for factor in [1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        p = p * rest + factor;
    }
    let scaled = f32::from_bits(p.to_bits().wrapping_add(rounded.to_bits() << 23));
    if x > -87.0 { scaled } else { 0.0 }
}

/// The `count` largest values with their indices, largest first, ties to the lowest index.
pub(super) fn largest(values: &[f32], count: usize) -> Vec<(u32, f32)> {
    let mut found: Vec<(u32, f32)> = Vec::with_capacity(count.min(values.len()) + 1);
    if count == 0 {
        return found;
    }
    let mut least = f32::NEG_INFINITY;
    for (index, &value) in values.iter().enumerate() {
        if found.len() == count && value <= least {
            continue;
        }
        let at = found.partition_point(|&(_, v)| v >= value);
        found.insert(at, (index as u32, value));
        found.truncate(count);
        least = found.last().map_or(f32::NEG_INFINITY, |&(_, v)| v);
    }
    found
}
