//! Stop strings. They end text, never a call: a call's arguments are JSON whose strings may well contain one.

/// Looks for stop strings in text that comes in pieces; holds back what may be the beginning of one.
#[derive(Debug)]
pub(super) struct Stops {
    stops: Vec<String>,
    held: String,
    held_at: usize,
}

/// Text that is certain, and where it stands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Certain {
    pub(super) text: String,
    pub(super) at: usize,
    /// A stop string followed; nothing more comes.
    pub(super) stopped: bool,
}

impl Stops {
    pub(super) fn new(stops: Vec<String>) -> Stops {
        Stops {
            stops,
            held: String::new(),
            held_at: 0,
        }
    }

    /// Text at byte `at`, which follows the text before it or stands apart from it.
    pub(super) fn push(&mut self, text: String, at: usize) -> Certain {
        if self.stops.is_empty() {
            return Certain {
                text,
                at,
                stopped: false,
            };
        }
        if self.held.is_empty() {
            self.held_at = at;
        }
        self.held.push_str(&text);
        // The one that is whole first, so that it does not matter how the text came; of two that end together, the longer.
        let found = self.stops.iter().filter_map(|stop| {
            let start = self.held.find(stop)?;
            Some((start + stop.len(), start))
        });
        match found.min() {
            Some((_, end)) => {
                let certain = self.cut(end, true);
                self.held.clear();
                certain
            }
            None => self.cut(self.held.len() - self.beginning(), false),
        }
    }

    /// What is held is no stop string: something else came.
    pub(super) fn release(&mut self) -> Certain {
        self.cut(self.held.len(), false)
    }

    fn cut(&mut self, end: usize, stopped: bool) -> Certain {
        let text: String = self.held.drain(..end).collect();
        let at = self.held_at;
        self.held_at += end;
        Certain { text, at, stopped }
    }

    /// Bytes at the end of `held` that may be the beginning of a stop string.
    fn beginning(&self) -> usize {
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let earliest = (self.held.len() + 1).saturating_sub(longest);
        let mut starts = (earliest..self.held.len()).filter(|at| self.held.is_char_boundary(*at));
        let start = starts.find(|at| {
            let end = &self.held[*at..];
            self.stops.iter().any(|stop| stop.starts_with(end))
        });
        start.map_or(0, |start| self.held.len() - start)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::parse::tests::cases;

    fn run(stops: &[&str], pieces: &[String]) -> (String, bool) {
        let mut filter = Stops::new(stops.iter().map(|stop| (*stop).to_owned()).collect());
        let (mut said, mut at) = (String::new(), 0);
        for piece in pieces {
            let certain = filter.push(piece.clone(), at);
            assert_eq!(certain.at, said.len());
            at += piece.len();
            said.push_str(&certain.text);
            if certain.stopped {
                return (said, true);
            }
        }
        said.push_str(&filter.release().text);
        (said, false)
    }

    #[test]
    fn the_first_whole_stop_string_ends_the_text_wherever_it_is_cut() {
        let pieces = ["a\nO", "bserv", "ation: b"].map(str::to_owned);
        assert_eq!(
            run(&["zzz", "Observation:"], &pieces),
            ("a\n".to_owned(), true)
        );
        assert_eq!(
            run(&["nothing"], &pieces),
            ("a\nObservation: b".to_owned(), false)
        );
    }

    #[test]
    fn only_what_may_be_a_beginning_is_held_back() {
        let mut filter = Stops::new(vec!["END".to_owned(), "ł😀".to_owned()]);
        assert_eq!(filter.push("the EN".to_owned(), 0).text, "the ");
        assert_eq!(filter.push("TITY ł".to_owned(), 6).text, "ENTITY ");
        assert_eq!(filter.release().text, "ł");
    }

    proptest! {
        #![proptest_config(cases(1_000))]

        #[test]
        fn pieces_do_not_matter(text in "[abł]{0,24}", cuts in prop::collection::vec(1usize..5, 1..9), stops in prop::collection::vec("[abł]{1,3}", 0..4)) {
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let mut pieces = Vec::new();
            let mut characters = text.chars().peekable();
            for cut in cuts.iter().cycle() {
                if characters.peek().is_none() {
                    break;
                }
                pieces.push(characters.by_ref().take(*cut).collect::<String>());
            }
            let found = stops.iter().filter_map(|stop| text.find(stop).map(|start| (start + stop.len(), start)));
            let found = found.min().map(|(_, start)| start);
            let expected = (text[..found.unwrap_or(text.len())].to_owned(), found.is_some());
            prop_assert_eq!(run(&stops, &pieces), expected);
        }
    }
}
