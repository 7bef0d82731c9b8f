//! Text that says the same again and again. A small model that has fallen into a loop does not come out of it: it would fill the window, for a minute or
//! more, and its client would be told that the answer was cut. [`Repetition`] finds the loop while there is room left.

use std::collections::VecDeque;

/// The longest passage, in tokens, whose repetition is noticed.
const LONGEST: usize = 128;
/// A passage is a loop after this many tokens of nothing else. People ask for a line of dashes, and for the same line ten times.
const MOST_TOKENS: usize = 512;
/// A passage is said at least this often before it is a loop.
const MOST_TIMES: usize = 5;

/// Reads the tokens of a text.
#[derive(Debug)]
pub(super) struct Repetition {
    /// The last tokens, the latest first; up to [`LONGEST`].
    last: VecDeque<u32>,
    /// `same[n - 1]`: how many tokens up to the latest were each the one that came `n` before.
    same: [usize; LONGEST],
}

impl Repetition {
    pub(super) fn new() -> Repetition {
        Repetition {
            last: VecDeque::with_capacity(LONGEST),
            same: [0; LONGEST],
        }
    }

    /// Something else than text came.
    pub(super) fn clear(&mut self) {
        self.last.clear();
        self.same = [0; LONGEST];
    }

    /// Takes the next token; is the text in a loop with it?
    pub(super) fn push(&mut self, token: u32) -> bool {
        let mut is_loop = false;
        for (index, (same, earlier)) in self.same.iter_mut().zip(&self.last).enumerate() {
            *same = if *earlier == token { *same + 1 } else { 0 };
            // The first time it is said nothing is the same yet.
            let said = *same + index + 1;
            is_loop |= said >= MOST_TOKENS.max(MOST_TIMES * (index + 1));
        }
        self.last.truncate(LONGEST - 1);
        self.last.push_front(token);
        is_loop
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    /// How many of the tokens are read before a loop is seen.
    fn seen_after(tokens: impl IntoIterator<Item = u32>) -> Option<usize> {
        let mut repetition = Repetition::new();
        tokens
            .into_iter()
            .position(|token| repetition.push(token))
            .map(|at| at + 1)
    }

    #[test]
    fn a_loop_is_seen_whatever_the_length_of_what_is_repeated() {
        let start = 300..400;
        for length in [1, 2, 25, 100, 128] {
            let passage = (0..length as u32).cycle();
            let seen = seen_after(start.clone().chain(passage).take(2000));
            let expected = MOST_TOKENS.max(MOST_TIMES * length);
            assert_eq!(seen, Some(start.len() + expected), "{length}");
        }
        assert_eq!(seen_after((0..129).cycle().take(2000)), None);
    }

    #[test]
    fn text_that_varies_is_no_loop() {
        let mut random = Random(5);
        let words: Vec<u32> = (0..20_000).map(|_| random.below(3) as u32).collect();
        assert_eq!(seen_after(words), None);
        // A list whose lines differ in a number.
        let lines = (0..400).flat_map(|line| [1, 2, 3, 4, 1000 + line, 5]);
        assert_eq!(seen_after(lines), None);
        // Ten times the same line, and then something else.
        let line = (0..50).cycle().take(500);
        assert_eq!(seen_after(line.clone().chain([7]).chain(line)), None);
    }

    #[test]
    fn what_was_before_does_not_count() {
        let mut repetition = Repetition::new();
        assert!(!(0..MOST_TOKENS - 1).any(|_| repetition.push(1)));
        repetition.clear();
        assert!(!(0..MOST_TOKENS - 1).any(|_| repetition.push(1)));
        assert!(repetition.push(1));
    }
}
