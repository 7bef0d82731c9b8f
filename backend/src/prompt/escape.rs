//! Text from a request on its way through a chat template. The template's output is searched for control tokens, so a control token that the text spells
//! must not look like one there: a mark is put inside. It is taken out again when the output has been cut.
//!
//! The mark goes behind every character that can begin a control token, not only into whole spellings, and before text that could end one: so nothing can
//! be pieced together from two strings, or from a string and the template around it.

use std::borrow::Cow;

/// Never part of text that people exchange (Unicode's noncharacters); text that has one all the same is escaped too.
const MARK: char = '\u{FDD0}';
/// `MARK LITERAL` stands for one `MARK` of the text.
const LITERAL: char = '\u{FDD1}';
/// `MARK BREAK` stands for nothing.
const BREAK: char = '\u{FDD2}';

/// Knows the spellings that text must not bring along.
#[derive(Debug)]
pub(super) struct Guard {
    /// First characters of spellings, and [`MARK`].
    firsts: Vec<char>,
    /// Every proper end of a spelling, sorted.
    ends: Vec<String>,
    /// Their last characters, and the length of the longest.
    lasts: Vec<char>,
    longest: usize,
}

impl Guard {
    pub(super) fn new<'a>(spellings: impl Iterator<Item = &'a str>) -> Guard {
        let mut firsts = vec![MARK];
        let (mut ends, mut lasts) = (Vec::new(), Vec::new());
        for text in spellings {
            // A mark behind a blank would keep templates from trimming; one further on breaks the spelling as well.
            let text = text.trim_start();
            let mut characters = text.char_indices();
            let Some((_, first)) = characters.next() else {
                continue;
            };
            firsts.push(first);
            lasts.extend(text.chars().next_back());
            ends.extend(characters.map(|(at, _)| text[at..].to_owned()));
        }
        firsts.sort_unstable();
        firsts.dedup();
        ends.sort_unstable();
        ends.dedup();
        lasts.sort_unstable();
        lasts.dedup();
        Guard {
            longest: ends.iter().map(String::len).max().unwrap_or(0),
            firsts,
            ends,
            lasts,
        }
    }

    /// `text` in a form that no control token can be found in, wherever it is put.
    pub(super) fn escape<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let ends_one = self.could_end_one(text.trim_start());
        if !ends_one && !text.contains(self.firsts.as_slice()) {
            return Cow::Borrowed(text);
        }
        let mut escaped = String::with_capacity(text.len() + text.len() / 8 + 8);
        let mut rest = text;
        if ends_one {
            let blanks = text.len() - text.trim_start().len();
            escaped.push_str(&text[..blanks]);
            escaped.extend([MARK, BREAK]);
            rest = &text[blanks..];
        }
        for character in rest.chars() {
            escaped.push(character);
            if character == MARK {
                escaped.push(LITERAL);
            } else if self.firsts.binary_search(&character).is_ok() {
                escaped.extend([MARK, BREAK]);
            }
        }
        Cow::Owned(escaped)
    }

    /// Does `text` start with the end of a spelling, or is all of it inside one?
    fn could_end_one(&self, text: &str) -> bool {
        if text.is_empty() {
            return false;
        }
        let inside = self.ends.partition_point(|end| end.as_str() < text);
        if self
            .ends
            .get(inside)
            .is_some_and(|end| end.starts_with(text))
        {
            return true;
        }
        text.char_indices()
            .take_while(|(at, _)| *at < self.longest)
            .filter(|(_, character)| self.lasts.contains(character))
            .map(|(at, character)| at + character.len_utf8())
            .any(|len| {
                self.ends
                    .binary_search_by(|end| end.as_str().cmp(&text[..len]))
                    .is_ok()
            })
    }
}

/// The text again.
pub(super) fn unescape(text: &str) -> Cow<'_, str> {
    let Some(first) = text.find(MARK) else {
        return Cow::Borrowed(text);
    };
    let mut plain = String::with_capacity(text.len());
    plain.push_str(&text[..first]);
    let mut characters = text[first..].chars().peekable();
    while let Some(character) = characters.next() {
        if character == MARK {
            if characters.next_if_eq(&BREAK).is_some() {
                continue;
            }
            characters.next_if_eq(&LITERAL);
        }
        plain.push(character);
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests;
