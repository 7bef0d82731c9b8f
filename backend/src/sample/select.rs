//! The candidates of a draw: who may take part, who is cut off, and who stands at a random place. Selection instead of sorting: only what survives is
//! ever put in order.

use std::cmp::Ordering;

use super::scan;
use crate::device::TokenMask;

/// A token with its logit, or once weighed with its weight: `exp((logit - largest) / temperature)`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) value: f32,
    pub(super) token: u32,
}

/// Calls `each` with every allowed token and its logit, lowest token first.
pub(super) fn allowed(logits: &[f32], mask: Option<&TokenMask>, mut each: impl FnMut(u32, f32)) {
    let Some(mask) = mask else {
        for (token, &logit) in logits.iter().enumerate() {
            each(token as u32, logit);
        }
        return;
    };
    for (&word, (index, chunk)) in mask.0.iter().zip(logits.chunks(32).enumerate()) {
        let mut bits = word;
        while bits != 0 {
            let bit = bits.trailing_zeros();
            bits &= bits - 1;
            if let Some(&logit) = chunk.get(bit as usize) {
                each(index as u32 * 32 + bit, logit);
            }
        }
    }
}

/// Likeliest first, ties to the lowest token: a total order, so that what is kept never depends on how it was selected.
fn order(a: &Candidate, b: &Candidate) -> Ordering {
    b.value.total_cmp(&a.value).then(a.token.cmp(&b.token))
}

pub(super) fn keep_top_k(candidates: &mut Vec<Candidate>, k: usize) {
    if k >= candidates.len() {
        return;
    }
    // The best k and up to as many new ones at the front; whenever it is full, the worse half leaves and the bar rises.
    let mut kept = 0;
    let mut bar = f32::NEG_INFINITY;
    for index in 0..candidates.len() {
        let candidate = candidates[index];
        // Tokens ascend, so one equal to the bar comes after k that are better.
        if kept >= k && candidate.value <= bar {
            continue;
        }
        candidates[kept] = candidate;
        kept += 1;
        if kept == 2 * k {
            bar = candidates[..kept]
                .select_nth_unstable_by(k - 1, order)
                .1
                .value;
            kept = k;
        }
    }
    candidates.truncate(kept);
    candidates.sort_unstable_by(order);
    candidates.truncate(k);
}

/// Turns logits into weights; the largest becomes 1.
pub(super) fn weigh(candidates: &mut [Candidate], temperature: f32) {
    let max = candidates
        .iter()
        .fold(f32::NEG_INFINITY, |m, c| m.max(c.value));
    for candidate in candidates {
        candidate.value = scan::exp((candidate.value - max) / temperature);
    }
}

/// Keeps the fewest of the likeliest candidates whose weights reach `p` of the total; at least one.
pub(super) fn keep_top_p(candidates: &mut Vec<Candidate>, p: f64) {
    // Weights by size, eight bins an octave: only the bin in which the bound lies is sorted. Weights are 0 to 1.
    const BINS: usize = (1f32.to_bits() >> 20) as usize + 1;
    let bin = |c: &Candidate| (c.value.to_bits() >> 20) as usize;
    let mut sums = [0f64; BINS];
    for candidate in &*candidates {
        sums[bin(candidate)] += f64::from(candidate.value);
    }
    let wanted = p * sums.iter().rev().sum::<f64>();
    let mut sum = 0f64;
    let mut last = BINS - 1;
    while last > 0 && sum + sums[last] < wanted {
        sum += sums[last];
        last -= 1;
    }
    candidates.retain(|c| bin(c) >= last);
    candidates.sort_by_key(|c| bin(c) == last);
    let above = candidates.partition_point(|c| bin(c) > last);
    candidates[above..].sort_unstable_by(order);
    let reached = candidates[above..].iter().position(|c| {
        sum += f64::from(c.value);
        sum >= wanted
    });
    if let Some(reached) = reached {
        candidates.truncate(above + reached + 1);
    }
}

/// The token at `place` in `[0, 1)` of the total weight. `None` without candidates.
pub(super) fn at(candidates: &[Candidate], place: f64) -> Option<u32> {
    let total: f64 = candidates.iter().map(|c| f64::from(c.value)).sum();
    let target = place * total;
    let mut sum = 0f64;
    let found = candidates.iter().find(|c| {
        sum += f64::from(c.value);
        sum > target
    });
    // Rounding may leave the target at the very end: then it is the last that can be drawn at all.
    let last = || candidates.iter().rfind(|c| c.value > 0.0);
    found.or_else(last).map(|c| c.token)
}
