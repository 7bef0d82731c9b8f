//! Cutting text into the words that byte-pair merges stay inside of, and GPT-2's stand-in characters for bytes.
//!
//! The published rules are regular expressions with look-ahead. They are written out by hand here: one pass, no backtracking, so a megabyte of
//! blanks costs a megabyte of time. The expressions stand beside each rule, and the tests run both over the same texts.

use std::{ops::RangeInclusive, sync::OnceLock};

use regex_syntax::hir::{self, HirKind};

/// A rule for words.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Pre {
    /// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
    Gpt2,
    /// Every digit alone, then [`Pre::Gpt2`] between them: SmolLM, StarCoder.
    SmolLm,
    /// `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
    Llama3,
    /// As [`Pre::Llama3`] with `\p{N}` for `\p{N}{1,3}`.
    Qwen2,
}

impl Pre {
    pub(super) const GPT2_PATTERN: &'static str =
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
    pub(super) const LLAMA3_PATTERN: &'static str = concat!(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    );
    pub(super) const QWEN2_PATTERN: &'static str = concat!(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    );

    /// Gives every word of `text`, in order; together they are the text.
    pub(super) fn words<'a>(self, text: &'a str, mut each: impl FnMut(&'a str)) {
        let classes = classes();
        match self {
            Pre::Gpt2 => gpt2(text, classes, &mut each),
            Pre::Llama3 => llama3(text, 3, classes, &mut each),
            Pre::Qwen2 => llama3(text, 1, classes, &mut each),
            Pre::SmolLm => {
                let mut from = 0;
                for (at, character) in text.char_indices() {
                    if classes.of(character) == Class::Number {
                        gpt2(&text[from..at], classes, &mut each);
                        from = at + character.len_utf8();
                        each(&text[at..from]);
                    }
                }
                gpt2(&text[from..], classes, &mut each);
            }
        }
    }
}

fn gpt2<'a>(text: &'a str, classes: &Classes, each: &mut impl FnMut(&'a str)) {
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let len = if let Some(len) = contraction(rest, false) {
            len
        } else {
            let blank = usize::from(first == ' ');
            match rest[blank..].chars().next().map(|next| classes.of(next)) {
                Some(class) if class != Class::Blank => blank + classes.run(&rest[blank..], class),
                _ => blanks(rest, classes),
            }
        };
        each(&rest[..len]);
        at += len;
    }
}

fn llama3<'a>(text: &'a str, digits: usize, classes: &Classes, each: &mut impl FnMut(&'a str)) {
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let len = llama3_word(rest, first, digits, classes);
        each(&rest[..len]);
        at += len;
    }
}

fn llama3_word(rest: &str, first: char, digits: usize, classes: &Classes) -> usize {
    if let Some(len) = contraction(rest, true) {
        return len;
    }
    let class = classes.of(first);
    let after = &rest[first.len_utf8()..];
    let next = after.chars().next().map(|next| classes.of(next));
    if class == Class::Letter {
        return classes.run(rest, Class::Letter);
    }
    if class == Class::Number {
        return rest
            .chars()
            .take(digits)
            .take_while(|character| classes.of(*character) == Class::Number)
            .map(char::len_utf8)
            .sum();
    }
    if next == Some(Class::Letter) && !matches!(first, '\r' | '\n') {
        return first.len_utf8() + classes.run(after, Class::Letter);
    }
    let blank = usize::from(first == ' ' && next == Some(Class::Other));
    if class == Class::Other || blank == 1 {
        let marks = blank + classes.run(&rest[blank..], Class::Other);
        let ends = rest[marks..]
            .bytes()
            .take_while(|byte| matches!(byte, b'\r' | b'\n'))
            .count();
        return marks + ends;
    }
    let run = classes.run(rest, Class::Blank);
    match rest[..run].rfind(['\r', '\n']) {
        Some(last) => last + 1,
        None => blanks(rest, classes),
    }
}

/// `'s|'t|'re|'ve|'m|'ll|'d`. Without case, `ſ` is an `s` too (Unicode simple case folding).
fn contraction(rest: &str, any_case: bool) -> Option<usize> {
    let tail = rest.strip_prefix('\'')?;
    let fold = |character: char| match character {
        '\u{17F}' if any_case => 's',
        other if any_case => other.to_ascii_lowercase(),
        other => other,
    };
    let mut characters = tail.chars();
    let first = characters.next()?;
    match fold(first) {
        's' | 't' | 'm' | 'd' => Some(1 + first.len_utf8()),
        one @ ('r' | 'v' | 'l') => {
            let second = characters.next()?;
            let wanted = if one == 'l' { 'l' } else { 'e' };
            (fold(second) == wanted).then(|| 1 + first.len_utf8() + second.len_utf8())
        }
        _ => None,
    }
}

/// `\s+(?!\S)|\s+`: a run of blanks, without its last one if something follows it that it can lead.
fn blanks(rest: &str, classes: &Classes) -> usize {
    let run = classes.run(rest, Class::Blank);
    if run == rest.len() {
        return run;
    }
    match rest[..run].char_indices().next_back() {
        Some((last, _)) if last > 0 => last,
        _ => run,
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
enum Class {
    Other,
    /// `\p{L}`
    Letter,
    /// `\p{N}`
    Number,
    /// `\s`
    Blank,
}

/// The class of every character, one byte each.
#[derive(Debug)]
struct Classes(Box<[Class]>);

impl Classes {
    fn of(&self, character: char) -> Class {
        self.0[character as usize]
    }

    /// Bytes of the longest start of `text` that is of `class`.
    fn run(&self, text: &str, class: Class) -> usize {
        text.char_indices()
            .find(|(_, character)| self.of(*character) != class)
            .map_or(text.len(), |(at, _)| at)
    }
}

/// Makes the table now and not with the first prompt.
pub(super) fn prepare() {
    classes();
}

/// From the tables of the regex engine, so that the rules above and a regex agree on every character.
fn classes() -> &'static Classes {
    static CLASSES: OnceLock<Classes> = OnceLock::new();
    CLASSES.get_or_init(|| {
        let mut classes = vec![Class::Other; char::MAX as usize + 1];
        for (pattern, class) in [
            (r"\p{L}", Class::Letter),
            (r"\p{N}", Class::Number),
            (r"\s", Class::Blank),
        ] {
            for range in ranges(pattern) {
                classes[range].fill(class);
            }
        }
        Classes(classes.into_boxed_slice())
    })
}

/// The characters of a class.
#[expect(
    clippy::expect_used,
    reason = "the patterns are constants; `prepare` parses them before the first text"
)]
fn ranges(pattern: &str) -> Vec<RangeInclusive<usize>> {
    let hir = regex_syntax::parse(pattern).expect("a pattern that parses");
    let HirKind::Class(hir::Class::Unicode(class)) = hir.kind() else {
        unreachable!("{pattern} is a class of characters");
    };
    let ranges = class.ranges().iter();
    ranges
        .map(|range| range.start() as usize..=range.end() as usize)
        .collect()
}

/// GPT-2's stand-in character for each byte: printable Latin-1 stands for itself, the rest for `U+0100` and up, in order.
pub(super) fn character_of(byte: u8) -> char {
    table().0[byte as usize]
}

/// The inverse of [`character_of`].
pub(super) fn byte_of(character: char) -> Option<u8> {
    table().1.get(character as usize).copied().flatten()
}

type ByteTable = ([char; 256], [Option<u8>; 0x144]);

fn table() -> &'static ByteTable {
    static TABLE: OnceLock<ByteTable> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut characters = ['\0'; 256];
        let mut bytes = [None; 0x144];
        let mut next = 0x100;
        for byte in 0..=255u8 {
            let code = if matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF) {
                u32::from(byte)
            } else {
                next += 1;
                next - 1
            };
            characters[byte as usize] = char::from_u32(code).unwrap_or_default();
            bytes[code as usize] = Some(byte);
        }
        (characters, bytes)
    })
}

#[cfg(test)]
mod tests;
