//! English text of any length that no two seeds share: sentences about a code base, from a small grammar.
//!
//! Every word is common enough to be one token of its own, with the space before it, so the length is known without a tokenizer.

/// The same seed makes the same text.
#[derive(Debug)]
struct Choices(u64);

impl Choices {
    fn new(seed: u64) -> Self {
        // The seed's bits spread over the whole state (splitmix64).
        let mut state = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        state = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        Self((state ^ (state >> 31)) | 1)
    }

    /// xorshift64*
    fn one_of(&mut self, list: &[&'static str]) -> &'static str {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let draw = (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize;
        list[draw % list.len()]
    }
}

const OPENINGS: &[&str] = &[
    "When", "Before", "After", "If", "Although", "Because", "Where", "Unless",
];
const SUBJECTS: &[&str] = &[
    "server", "client", "parser", "test", "module", "user", "team", "build", "program", "function",
    "worker", "system", "engine", "editor", "service", "method",
];
const OBJECTS: &[&str] = &[
    "file", "message", "request", "table", "list", "error", "value", "path", "report", "change",
    "version", "result", "event", "record", "question", "answer", "queue", "page", "word", "line",
    "branch", "project", "document", "key",
];
const QUALITIES: &[&str] = &[
    "small", "old", "new", "large", "empty", "common", "long", "short", "simple", "open", "quick",
    "slow", "local", "remote", "first", "last", "clear", "full", "free", "strange",
];
const ACTIONS: &[&str] = &[
    "reads", "writes", "sends", "keeps", "needs", "finds", "makes", "gives", "takes", "shows",
    "holds", "adds", "uses", "sees", "changes", "returns", "creates", "follows",
];
const MANNERS: &[&str] = &[
    "again", "first", "later", "now", "often", "never", "always", "there", "here", "once",
];
const CLOSINGS: &[&str] = &["so", "and", "but", "while", "until", "since"];

/// One sentence, in pieces of a token each.
fn sentence(choices: &mut Choices) -> Vec<String> {
    let mut pieces = Vec::with_capacity(24);
    let mut say = |word: &str| pieces.push(format!(" {word}"));
    say(choices.one_of(OPENINGS));
    clause(choices, &mut say);
    pieces.push(",".to_owned());
    let mut say = |word: &str| pieces.push(format!(" {word}"));
    clause(choices, &mut say);
    say(choices.one_of(CLOSINGS));
    say("the");
    say(choices.one_of(SUBJECTS));
    say(choices.one_of(ACTIONS));
    say("it");
    say(choices.one_of(MANNERS));
    pieces.push(".".to_owned());
    pieces
}

fn clause(choices: &mut Choices, say: &mut impl FnMut(&str)) {
    say("the");
    say(choices.one_of(QUALITIES));
    say(choices.one_of(SUBJECTS));
    say(choices.one_of(ACTIONS));
    say("the");
    say(choices.one_of(QUALITIES));
    say(choices.one_of(OBJECTS));
}

/// Text of so many tokens; the last sentence may be cut.
pub fn text(seed: u64, tokens: usize) -> String {
    let mut choices = Choices::new(seed);
    let mut pieces = Vec::new();
    while pieces.len() < tokens {
        pieces.extend(sentence(&mut choices));
    }
    pieces.truncate(tokens);
    let text = pieces.concat();
    text.trim_start().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_text_and_shares_no_sentence_with_the_next() {
        let first = text(1, 600);
        assert_eq!(first, text(1, 600));
        let second = text(2, 600);
        let mut sentences: Vec<&str> = first.split(". ").collect();
        // It may be cut after a word or two.
        sentences.pop();
        assert!(sentences.len() > 20);
        for sentence in sentences {
            assert!(!second.contains(sentence), "{sentence}");
        }
    }

    #[test]
    fn the_length_is_that_of_words_and_marks() {
        let text = text(3, 500);
        let marks = text.matches([',', '.']).count();
        assert_eq!(text.split(' ').count() + marks, 500);
    }
}
