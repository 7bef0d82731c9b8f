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
    if k < candidates.len() {
        candidates.select_nth_unstable_by(k - 1, order);
        candidates.truncate(k);
        candidates.sort_unstable_by(order);
    }
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
    let wanted = p * candidates.iter().map(|c| f64::from(c.value)).sum::<f64>();
    // Most nuclei are small: look among the first few, and go on to more only if those don't reach.
    let mut head = 64;
    loop {
        if head < candidates.len() {
            candidates.select_nth_unstable_by(head - 1, order);
        }
        head = head.min(candidates.len());
        candidates[..head].sort_unstable_by(order);
        let mut sum = 0f64;
        let reached = candidates[..head].iter().position(|c| {
            sum += f64::from(c.value);
            sum >= wanted
        });
        match reached {
            Some(last) => return candidates.truncate(last + 1),
            None if head == candidates.len() => return,
            None => head *= 8,
        }
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
