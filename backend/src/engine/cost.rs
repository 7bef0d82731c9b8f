//! How long a step takes, learned from the steps so far, so that prompts can be cut into chunks that keep running streams flowing and drafts are only
//! tried where they win.
//!
//! `seconds = start + each · tokens + pair · Σ (tokens of a span · its mean past)`: reading the weights, multiplying by them, attention.

/// Tokens of the first chunk, when nothing is known.
const FIRST: usize = 64;
/// Weight of a step after one more step.
const MEMORY: f64 = 0.95;
/// Pairs are counted in thousands, so that the three terms are of similar size.
const PAIRS: f64 = 1e-3;

/// What a step has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Work {
    tokens: f64,
    pairs: f64,
}

impl Work {
    pub(super) fn add(&mut self, past: usize, tokens: usize) {
        let tokens = tokens as f64;
        self.tokens += tokens;
        self.pairs += PAIRS * tokens * (past as f64 + tokens / 2.0);
    }

    fn features(self) -> [f64; 3] {
        [1.0, self.tokens, self.pairs]
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Cost {
    /// Normal equations of least squares: `Σ x xᵀ` and `Σ x · seconds`, older steps weighing less.
    moments: [[f64; 3]; 3],
    targets: [f64; 3],
    /// `start`, `each`, `pair`; never negative.
    weights: [f64; 3],
    /// Most tokens of a measured step.
    largest: usize,
}

impl Cost {
    pub(super) fn observe(&mut self, work: Work, seconds: f64) {
        let x = work.features();
        for i in 0..3 {
            for j in 0..3 {
                self.moments[i][j] = self.moments[i][j] * MEMORY + x[i] * x[j];
            }
            self.targets[i] = self.targets[i] * MEMORY + x[i] * seconds;
        }
        self.largest = self.largest.max(work.tokens as usize);
        // Coordinate descent from the last solution; a term that would be negative is 0.
        for _ in 0..100 {
            for i in 0..3 {
                let others: f64 = (0..3)
                    .filter(|&j| j != i)
                    .map(|j| self.moments[i][j] * self.weights[j])
                    .sum();
                if self.moments[i][i] > 0.0 {
                    self.weights[i] = ((self.targets[i] - others) / self.moments[i][i]).max(0.0);
                }
            }
        }
    }

    pub(super) fn seconds(&self, work: Work) -> f64 {
        let x = work.features();
        (0..3).map(|i| self.weights[i] * x[i]).sum()
    }

    /// Seconds of `tokens` more tokens of a sequence, in a step that runs anyway.
    pub(super) fn more(&self, past: usize, tokens: usize) -> f64 {
        let mut work = Work::default();
        work.add(past, tokens);
        self.weights[1] * work.tokens + self.weights[2] * work.pairs
    }

    /// Tokens after `past` that take `seconds` in a step that runs anyway.
    pub(super) fn tokens_within(&self, past: usize, seconds: f64) -> usize {
        let quadratic = self.weights[2] * PAIRS / 2.0;
        let linear = self.weights[1] + self.weights[2] * PAIRS * past as f64;
        let seconds = seconds.max(0.0);
        let tokens = if quadratic > 0.0 {
            // The root of q n² + l n = s, in the form that stays exact for small q.
            2.0 * seconds / (linear + (linear * linear + 4.0 * quadratic * seconds).sqrt())
        } else {
            seconds / linear
        };
        // Not a number: nothing costs anything.
        if tokens.is_finite() {
            tokens as usize
        } else {
            usize::MAX
        }
    }

    /// Most prompt tokens of the next step, whatever the clock allows: what is measured is trusted to twice its size.
    pub(super) fn trusted(&self) -> usize {
        FIRST.max(2 * self.largest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(spans: &[(usize, usize)]) -> Work {
        let mut work = Work::default();
        for &(past, tokens) in spans {
            work.add(past, tokens);
        }
        work
    }

    #[test]
    fn a_linear_device_is_predicted_within_a_tenth_after_a_few_steps() {
        let truth = |work: Work| 0.004 + 0.0006 * work.tokens + 0.000_3 * work.pairs;
        let mut cost = Cost::default();
        for step in 0..12 {
            let work = work(&[(500 * step, 40 + 30 * step), (100, 1)]);
            cost.observe(work, truth(work));
        }
        for spans in [
            &[(0, 200), (100, 1)][..],
            &[(6000, 100)],
            &[(3000, 300), (10, 1)],
        ] {
            let work = work(spans);
            let (ours, exact) = (cost.seconds(work), truth(work));
            assert!(
                (ours / exact - 1.0).abs() < 0.1,
                "{spans:?}: {ours} is not {exact}"
            );
        }
    }

    #[test]
    fn the_tokens_that_fit_take_the_time_asked_for() {
        let mut cost = Cost::default();
        for (past, tokens) in [(0, 64), (64, 128), (4000, 100), (4000, 200), (8000, 50)] {
            let work = work(&[(past, tokens)]);
            cost.observe(work, 0.01 + 0.001 * work.tokens + 0.0005 * work.pairs);
        }
        for past in [0, 1000, 10_000] {
            let tokens = cost.tokens_within(past, 0.3);
            assert!(
                (cost.more(past, tokens) - 0.3).abs() < 0.02,
                "{past}: {tokens}"
            );
        }
    }

    #[test]
    fn what_was_never_measured_is_approached_by_doubling() {
        let mut cost = Cost::default();
        assert_eq!(cost.trusted(), 64);
        cost.observe(work(&[(0, 64)]), 0.0);
        assert_eq!(
            (cost.trusted(), cost.tokens_within(0, 0.1)),
            (128, usize::MAX)
        );
    }
}
