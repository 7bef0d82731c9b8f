//! Prompt lookup: what followed the last few tokens when they came before is a guess at what follows now. Code that is quoted, edited or repeated is
//! guessed well, prose is not; so how much is guessed follows how well the guesses did.
//!
//! Guesses change the speed and never the text: a guessed token counts only if it is the very token that is drawn at its place.

use std::collections::HashMap;

/// Fewest tokens that must have come before.
const SHORTEST: usize = 3;
/// More than this many equal tokens are not counted.
const LONGEST: usize = 8;
/// Earlier places looked at, latest first.
const TRIES: usize = 16;
/// Guessed at least, when at all.
const FEWEST: usize = 4;
/// Guessed at most.
pub(super) const MOST: usize = 16;
/// Share of right guesses taken for granted before there are any.
const HOPE: f64 = 0.5;

#[derive(Debug)]
pub(super) struct Drafter {
    /// The latest place after each run of three tokens.
    places: HashMap<[u32; SHORTEST], u32>,
    /// For each place the one before it after the same three tokens; 0: none.
    earlier: Vec<u32>,
    /// Moving share of guessed tokens that were right.
    right: f64,
}

impl Drafter {
    pub(super) fn new() -> Drafter {
        Drafter {
            places: HashMap::new(),
            earlier: Vec::new(),
            right: HOPE,
        }
    }

    /// Takes up the tokens that came since; `tokens` only ever grows.
    fn catch_up(&mut self, tokens: &[u32]) {
        // The run before the end itself is what is looked up, so it isn't known yet.
        while self.earlier.len() < tokens.len() {
            let place = self.earlier.len();
            let before = place
                .checked_sub(SHORTEST)
                .and_then(|start| tokens[start..place].try_into().ok())
                .and_then(|run: [u32; SHORTEST]| self.places.insert(run, place as u32));
            self.earlier.push(before.unwrap_or(0));
        }
    }

    /// Up to [`MOST`] tokens that may follow `tokens`; none if nothing like their end came before.
    pub(super) fn propose(&mut self, tokens: &[u32]) -> Vec<u32> {
        self.catch_up(tokens);
        let end = tokens.len();
        let run = end
            .checked_sub(SHORTEST)
            .and_then(|start| tokens[start..].try_into().ok());
        let Some(mut place) = run
            .and_then(|run: [u32; SHORTEST]| self.places.get(&run))
            .copied()
        else {
            return Vec::new();
        };
        let mut best = (0, 0);
        for _ in 0..TRIES {
            let at = place as usize;
            let same = tokens[..at].iter().rev().zip(tokens.iter().rev());
            let length = same.take(LONGEST).take_while(|(a, b)| a == b).count();
            if length > best.0 {
                best = (length, at);
            }
            place = self.earlier[at];
            if place == 0 || best.0 == LONGEST {
                break;
            }
        }
        // What repeats with a short period goes on into the guess itself.
        let mut guess: Vec<u32> = Vec::with_capacity(MOST);
        for from in best.1..best.1 + MOST {
            let token = tokens.get(from).or_else(|| guess.get(from - end));
            guess.extend(token.copied());
        }
        guess
    }

    /// How many of `most` guessed tokens to try: those that bring the most tokens a second, 0 if guessing loses.
    ///
    /// `step` are the seconds of the step without the guess, `each` those of a guessed token, `others` the tokens that other sequences get from the step.
    pub(super) fn worthwhile(&mut self, most: usize, step: f64, each: f64, others: usize) -> usize {
        let rate = |guessed: usize| {
            // 1 + p + p² + … + pⁿ
            let expected = (1.0 - self.right.powi(guessed as i32 + 1)) / (1.0 - self.right);
            (others as f64 + expected) / (step + each * guessed as f64)
        };
        let mut best = (0, rate(0));
        for guessed in [FEWEST, 6, 8, 12, MOST].map(|n| n.min(most)) {
            if guessed > 0 && rate(guessed) > best.1 {
                best = (guessed, rate(guessed));
            }
        }
        if best.0 == 0 {
            // A text can become repetitive: hope comes back slowly, and with it another try.
            self.right += (HOPE - self.right) * 0.02;
        }
        best.0
    }

    /// Of `guessed` tokens the first `right` were right.
    pub(super) fn learn(&mut self, guessed: usize, right: usize) {
        let checked = guessed.min(right + 1);
        for index in 0..checked {
            let one = if index < right { 0.98 } else { 0.0 };
            self.right += (one - self.right) * 0.1;
        }
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn the_longest_run_that_came_before_is_continued() {
        let mut drafter = Drafter::new();
        // After `2 3 4` came 50 first and 60 later; only the first had the same 1 before it.
        let tokens = [1, 2, 3, 4, 50, 51, 9, 2, 3, 4, 60, 61, 1, 2, 3, 4];
        assert_eq!(drafter.propose(&tokens)[..4], [50, 51, 9, 2]);
        assert_eq!(
            drafter.propose(&[tokens.as_slice(), &[50]].concat())[..2],
            [51, 9]
        );
    }

    #[test]
    fn a_short_period_is_continued_beyond_the_end() {
        let mut drafter = Drafter::new();
        let tokens = [7, 1, 2, 1, 2, 1, 2];
        assert_eq!(drafter.propose(&tokens), [1, 2].repeat(MOST / 2));
    }

    #[test]
    fn nothing_is_guessed_without_a_run_of_three() {
        let mut drafter = Drafter::new();
        assert_eq!(drafter.propose(&[]), Vec::<u32>::new());
        assert_eq!(drafter.propose(&[1, 1]), Vec::<u32>::new());
        assert_eq!(drafter.propose(&[1, 2, 3, 4, 5, 2, 3]), Vec::<u32>::new());
    }

    #[test]
    fn wrong_guesses_end_guessing_and_it_is_tried_again_later() {
        let mut drafter = Drafter::new();
        let (step, each) = (1.0, 0.1);
        assert!(drafter.worthwhile(16, step, each, 0) >= FEWEST);
        for _ in 0..20 {
            drafter.learn(8, 0);
        }
        assert_eq!(drafter.worthwhile(16, step, each, 0), 0);
        let again = (0..100).position(|_| drafter.worthwhile(16, step, each, 0) > 0);
        assert!(again.is_some_and(|steps| steps > 3), "{again:?}");
        for _ in 0..40 {
            drafter.learn(16, 16);
        }
        assert_eq!(drafter.worthwhile(16, step, each, 0), 16);
    }

    #[test]
    fn guesses_that_cost_a_full_step_each_are_not_made_in_a_crowd() {
        let mut drafter = Drafter::new();
        assert_eq!(drafter.worthwhile(16, 1.0, 0.5, 15), 0);
    }
}
