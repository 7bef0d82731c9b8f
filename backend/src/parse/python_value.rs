//! Python literals as JSON: strings of every sort, numbers, `True`, `False`, `None`, lists, tuples and dictionaries.
//!
//! [`Scan`] finds the end of a literal as it comes; [`to_json`] then converts it whole. Source: The Python Language Reference 3.13, sections 2.4.1
//! (string literals) and 2.4.5 (numbers).

use serde_json::Value;

/// Deepest nesting that is converted.
const DEEPEST: usize = 64;

/// Finds where a literal ends: before a `,` or `)` outside brackets and strings.
#[derive(Debug, Default)]
pub(super) struct Scan {
    depth: usize,
    quote: Quote,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Quote {
    #[default]
    No,
    /// After one opening quote, then after two: an empty string, or three are to come.
    First(char),
    Second(char),
    One {
        quote: char,
        escaped: bool,
    },
    Three {
        quote: char,
        escaped: bool,
        closing: u8,
    },
}

impl Scan {
    pub(super) fn ends_before(&mut self, character: char) -> bool {
        self.quote = match self.quote {
            Quote::No => return self.outside(character),
            Quote::First(quote) if character == quote => Quote::Second(quote),
            Quote::First(quote) => Quote::One {
                quote,
                escaped: character == '\\',
            },
            Quote::Second(quote) if character == quote => Quote::Three {
                quote,
                escaped: false,
                closing: 0,
            },
            Quote::Second(_) => {
                self.quote = Quote::No;
                return self.outside(character);
            }
            Quote::One {
                quote,
                escaped: false,
            } if character == quote => Quote::No,
            Quote::One { quote, escaped } => Quote::One {
                quote,
                escaped: !escaped && character == '\\',
            },
            Quote::Three {
                quote,
                escaped: false,
                closing,
            } if character == quote => match closing {
                2 => Quote::No,
                _ => Quote::Three {
                    quote,
                    escaped: false,
                    closing: closing + 1,
                },
            },
            Quote::Three { quote, escaped, .. } => Quote::Three {
                quote,
                escaped: !escaped && character == '\\',
                closing: 0,
            },
        };
        false
    }

    fn outside(&mut self, character: char) -> bool {
        match character {
            '\'' | '"' => self.quote = Quote::First(character),
            '(' | '[' | '{' => self.depth += 1,
            ')' | ']' | '}' if self.depth > 0 => self.depth -= 1,
            ',' | ')' if self.depth == 0 => return true,
            _ => {}
        }
        false
    }
}

/// The literal as JSON, compact. `None`: it is not one.
pub(super) fn to_json(literal: &str) -> Option<String> {
    let mut reader = Reader { rest: literal };
    let mut out = String::new();
    reader.value(&mut out, 0)?;
    reader.space();
    reader.rest.is_empty().then_some(out)
}

enum Strings {
    None,
    Text(String),
    Broken,
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.rest = &self.rest[next.len_utf8()..];
        Some(next)
    }

    fn take(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn value(&mut self, out: &mut String, depth: usize) -> Option<()> {
        if depth > DEEPEST {
            return None;
        }
        self.space();
        match self.peek()? {
            '[' => self.list(out, ']', depth),
            '(' => self.list(out, ')', depth),
            '{' => self.dictionary(out, depth),
            '+' | '-' | '.' | '0'..='9' => self.number(out),
            _ => match self.string() {
                Strings::Text(text) => {
                    out.push_str(&Value::from(text).to_string());
                    Some(())
                }
                Strings::None => self.word(out),
                Strings::Broken => None,
            },
        }
    }

    fn list(&mut self, out: &mut String, close: char, depth: usize) -> Option<()> {
        self.next();
        out.push('[');
        let mut first = true;
        loop {
            self.space();
            if self.peek()? == close {
                self.next();
                out.push(']');
                return Some(());
            }
            if !std::mem::take(&mut first) {
                out.push(',');
            }
            self.value(out, depth + 1)?;
            self.separator(close)?;
        }
    }

    fn dictionary(&mut self, out: &mut String, depth: usize) -> Option<()> {
        self.next();
        out.push('{');
        let mut first = true;
        loop {
            self.space();
            if self.take("}") {
                out.push('}');
                return Some(());
            }
            if !std::mem::take(&mut first) {
                out.push(',');
            }
            let mut key = String::new();
            self.value(&mut key, depth + 1)?;
            match key.starts_with('"') {
                true => out.push_str(&key),
                // A key of JSON is a string, so the key is the text of it.
                false => out.push_str(&Value::from(key).to_string()),
            }
            self.space();
            if !self.take(":") {
                return None;
            }
            out.push(':');
            self.value(out, depth + 1)?;
            self.separator('}')?;
        }
    }

    /// A comma, or the closing bracket, which stays.
    fn separator(&mut self, close: char) -> Option<()> {
        self.space();
        (self.take(",") || self.peek()? == close).then_some(())
    }

    fn word(&mut self, out: &mut String) -> Option<()> {
        let words = [
            ("True", "true"),
            ("False", "false"),
            ("None", "null"),
            ("true", "true"),
            ("false", "false"),
            ("null", "null"),
        ];
        let (word, json) = words.iter().find(|(word, _)| self.rest.starts_with(word))?;
        self.rest = &self.rest[word.len()..];
        out.push_str(json);
        let joined = |next: char| next.is_alphanumeric() || next == '_';
        (!self.peek().is_some_and(joined)).then_some(())
    }

    fn number(&mut self, out: &mut String) -> Option<()> {
        let end = self
            .rest
            .find(|c: char| c.is_whitespace() || ",)]}:".contains(c))
            .unwrap_or(self.rest.len());
        let (number, rest) = self.rest.split_at(end);
        self.rest = rest;
        let digits = number.replace('_', "");
        let (sign, digits) = match digits.strip_prefix('-') {
            Some(digits) => ("-", digits),
            None => ("", digits.strip_prefix('+').unwrap_or(&digits)),
        };
        let digits = match digits.get(..2).map(str::to_ascii_lowercase).as_deref() {
            Some("0x") => u128::from_str_radix(&digits[2..], 16).ok()?.to_string(),
            Some("0o") => u128::from_str_radix(&digits[2..], 8).ok()?.to_string(),
            Some("0b") => u128::from_str_radix(&digits[2..], 2).ok()?.to_string(),
            _ => decimal(digits),
        };
        let json = format!("{sign}{digits}");
        serde_json::from_str::<serde_json::Number>(&json).ok()?;
        out.push_str(&json);
        Some(())
    }

    /// One string, or several that stand next to each other and are one.
    fn string(&mut self) -> Strings {
        const PREFIXES: [&str; 9] = ["", "r", "u", "b", "f", "rb", "br", "fr", "rf"];
        let mut found = Strings::None;
        loop {
            self.space();
            let prefix = self
                .rest
                .find(['\'', '"'])
                .filter(|length| *length <= 2)
                .map(|length| self.rest[..length].to_ascii_lowercase())
                .filter(|prefix| PREFIXES.contains(&prefix.as_str()));
            let Some(prefix) = prefix else {
                return found;
            };
            self.rest = &self.rest[prefix.len()..];
            let Some(text) = self.quoted(prefix.contains('r')) else {
                return Strings::Broken;
            };
            found = match found {
                Strings::Text(before) => Strings::Text(before + &text),
                _ => Strings::Text(text),
            };
        }
    }

    fn quoted(&mut self, raw: bool) -> Option<String> {
        let quote = self.next()?;
        let mut close = quote.to_string();
        let triple = close.repeat(3);
        if self.rest.starts_with(&triple[..2]) {
            self.rest = &self.rest[2..];
            close = triple;
        }
        let mut units = Units::default();
        loop {
            if self.take(&close) {
                return Some(units.text());
            }
            match self.next()? {
                '\\' if raw => {
                    units.push('\\');
                    units.push(self.next()?);
                }
                '\\' => self.escape(&mut units)?,
                character => units.push(character),
            }
        }
    }

    fn escape(&mut self, out: &mut Units) -> Option<()> {
        match self.next()? {
            '\n' => {}
            character @ ('\\' | '\'' | '"') => out.push(character),
            'a' => out.push('\x07'),
            'b' => out.push('\x08'),
            'f' => out.push('\x0c'),
            'n' => out.push('\n'),
            'r' => out.push('\r'),
            't' => out.push('\t'),
            'v' => out.push('\x0b'),
            'x' => out.code(self.hex(2)?),
            'u' => out.code(self.hex(4)?),
            'U' => out.code(self.hex(8)?),
            first @ '0'..='7' => {
                let more = self.rest.bytes().take(2);
                let more = more
                    .take_while(|digit| (b'0'..=b'7').contains(digit))
                    .count();
                let digits = format!("{first}{}", &self.rest[..more]);
                self.rest = &self.rest[more..];
                out.code(u32::from_str_radix(&digits, 8).ok()?);
            }
            other => {
                out.push('\\');
                out.push(other);
            }
        }
        Some(())
    }

    fn hex(&mut self, digits: usize) -> Option<u32> {
        let (text, rest) = (self.rest.get(..digits)?, self.rest.get(digits..)?);
        self.rest = rest;
        text.bytes()
            .all(|digit| digit.is_ascii_hexdigit())
            .then_some(())?;
        u32::from_str_radix(text, 16).ok()
    }
}

/// Text made of characters and of the code points of escapes, where a pair of surrogates is one character and a lone one is none.
#[derive(Debug, Default)]
struct Units {
    text: String,
    high: Option<u32>,
}

impl Units {
    fn push(&mut self, character: char) {
        self.lone();
        self.text.push(character);
    }

    fn code(&mut self, code: u32) {
        match (self.high.take(), code) {
            (Some(high), 0xdc00..=0xdfff) => {
                let pair = 0x10000 + ((high - 0xd800) << 10) + (code - 0xdc00);
                self.text
                    .push(char::from_u32(pair).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            (before, code) => {
                self.high = before;
                self.lone();
                match code {
                    0xd800..=0xdbff => self.high = Some(code),
                    _ => self
                        .text
                        .push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)),
                }
            }
        }
    }

    fn lone(&mut self) {
        if self.high.take().is_some() {
            self.text.push(char::REPLACEMENT_CHARACTER);
        }
    }

    fn text(mut self) -> String {
        self.lone();
        self.text
    }
}

/// A decimal number of Python in the form that JSON asks for: `.5` and `1.` get their zero.
fn decimal(digits: &str) -> String {
    let digits = match digits.starts_with('.') {
        true => format!("0{digits}"),
        false => digits.to_owned(),
    };
    match digits.split_once('.') {
        Some((whole, part)) if !part.starts_with(|digit: char| digit.is_ascii_digit()) => {
            format!("{whole}.0{part}")
        }
        _ => digits,
    }
}
