//! Lark, cut into tokens with their lines.

use super::{Fault, malformed};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Name(String),
    Literal(String, bool),
    Regex(String, String),
    Number(String),
    Directive(String),
    /// One of `: | ( ) [ ] * + ? ~ , . -> .. { }`.
    Sign(&'static str),
    Newline,
}

const SIGNS: [&str; 18] = [
    "->", "..", ":", "|", "(", ")", "[", "]", "*", "+", "?", "~", ",", ".", "{", "}", "!", "=",
];

pub(super) fn tokens(source: &str) -> Result<Vec<(Token, usize)>, Fault> {
    let mut tokens = Vec::new();
    let mut line = 1;
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\n' => {
                tokens.push((Token::Newline, line));
                line += 1;
                1
            }
            ' ' | '\t' | '\r' => 1,
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' => {
                let (token, length) = regex(rest, line)?;
                tokens.push((token, line));
                length
            }
            '"' => {
                let (token, length) = literal(rest, line)?;
                tokens.push((token, line));
                length
            }
            '%' => {
                let length = 1 + name_length(&rest[1..]);
                tokens.push((Token::Directive(rest[1..length].to_owned()), line));
                length
            }
            first if first.is_ascii_alphabetic() || first == '_' => {
                let length = name_length(rest);
                tokens.push((Token::Name(rest[..length].to_owned()), line));
                length
            }
            first if first.is_ascii_digit() || is_negative(rest) => {
                let digits = rest[1..].find(|c: char| !c.is_ascii_digit());
                let length = digits.map_or(rest.len(), |digits| digits + 1);
                tokens.push((Token::Number(rest[..length].to_owned()), line));
                length
            }
            _ => match SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
                Some(sign) => {
                    tokens.push((Token::Sign(sign), line));
                    sign.len()
                }
                None => return Err(malformed(line, &format!("\"{first}\" means nothing here"))),
            },
        };
        rest = &rest[length..];
    }
    tokens.push((Token::Newline, line));
    Ok(tokens)
}

fn is_negative(rest: &str) -> bool {
    let mut chars = rest.chars();
    chars.next() == Some('-') && chars.next().is_some_and(|next| next.is_ascii_digit())
}

fn name_length(rest: &str) -> usize {
    rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .unwrap_or(rest.len())
}

/// `/…/flags`: a slash ends it unless a backslash stands before it.
fn regex(rest: &str, line: usize) -> Result<(Token, usize), Fault> {
    let mut escaped = false;
    for (index, c) in rest.char_indices().skip(1) {
        match c {
            '\n' => break,
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '/' => {
                let flags = &rest[index + 1..];
                let length = flags
                    .find(|c: char| !"imslux".contains(c))
                    .unwrap_or(flags.len());
                // An escaped slash is a slash, and some parsers of regular expressions know no such escape.
                let source = rest[1..index].replace("\\/", "/");
                let token = Token::Regex(source, flags[..length].to_owned());
                return Ok((token, index + 1 + length));
            }
            _ => {}
        }
    }
    Err(malformed(line, "a regular expression has no end"))
}

/// `"…"` with the escapes of Python that Lark grammars use, and an optional `i` behind it.
fn literal(rest: &str, line: usize) -> Result<(Token, usize), Fault> {
    let mut text = String::new();
    let mut chars = rest.char_indices().skip(1);
    while let Some((index, c)) = chars.next() {
        match c {
            '\n' => break,
            '"' => {
                let ignore_case = rest[index + 1..].starts_with('i');
                let length = index + 1 + usize::from(ignore_case);
                return Ok((Token::Literal(text, ignore_case), length));
            }
            '\\' => {
                let Some((_, escape)) = chars.next() else {
                    break;
                };
                let digits = match escape {
                    'n' => '\n'.into(),
                    't' => '\t'.into(),
                    'r' => '\r'.into(),
                    'b' => '\u{8}'.into(),
                    'f' => '\u{c}'.into(),
                    '0' => '\0'.into(),
                    '\\' | '"' | '\'' | '/' => escape.into(),
                    'x' => code(&mut chars, 2),
                    'u' => code(&mut chars, 4),
                    'U' => code(&mut chars, 8),
                    _ => None,
                };
                match digits {
                    Some(c) => text.push(c),
                    None => {
                        return Err(malformed(
                            line,
                            &format!("\"\\{escape}\" is no escape of a character"),
                        ));
                    }
                }
            }
            c => text.push(c),
        }
    }
    Err(malformed(line, "a string has no end"))
}

fn code(chars: &mut impl Iterator<Item = (usize, char)>, digits: usize) -> Option<char> {
    let mut value = 0;
    for _ in 0..digits {
        value = value << 4 | chars.next()?.1.to_digit(16)?;
    }
    char::from_u32(value)
}
