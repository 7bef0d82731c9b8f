//! Reads Lark: rules and terminals with literals, regular expressions, groups, repetitions, `%import common.X` and `%ignore`. What else Lark can do
//! (templates, `%declare`, `%extend`, …) is named and not supported.

use std::collections::HashMap;

use crate::grammar::limits::{MAX_GRAMMAR_BYTES, MAX_GRAMMAR_DEPTH, MAX_REPEAT};

/// Why a grammar cannot be used.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Fault {
    /// It is no grammar, or too large a one: the client's mistake.
    Malformed(String),
    /// It may be fine, and is more than can be enforced.
    Unsupported(String),
}

/// The right side of a rule or terminal.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expr {
    /// Text, and whether case does not count.
    Literal(String, bool),
    /// Source and flags of a regular expression.
    Regex(String, String),
    /// A rule or terminal.
    Name(String),
    Sequence(Vec<Expr>),
    Choice(Vec<Expr>),
    Repeat(Box<Expr>, u32, Option<u32>),
}

/// A grammar: what each name stands for, and what may stand between terminals.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Lark {
    pub(crate) definitions: HashMap<String, Expr>,
    pub(crate) ignore: Vec<Expr>,
}

/// Is it the name of a terminal?
pub(crate) fn is_terminal(name: &str) -> bool {
    name.trim_start_matches('_')
        .starts_with(|first: char| first.is_ascii_uppercase())
}

pub(crate) fn parse(source: &str) -> Result<Lark, Fault> {
    if source.len() > MAX_GRAMMAR_BYTES {
        return Err(Fault::Malformed(format!(
            "has {} bytes, more than the {MAX_GRAMMAR_BYTES} allowed",
            source.len()
        )));
    }
    let tokens = tokens(source)?;
    let mut parser = Parser {
        tokens,
        at: 0,
        depth: 0,
        lark: Lark::default(),
    };
    parser.statements()?;
    Ok(parser.lark)
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
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

fn tokens(source: &str) -> Result<Vec<(Token, usize)>, Fault> {
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

fn malformed(line: usize, problem: &str) -> Fault {
    Fault::Malformed(format!("line {line}: {problem}"))
}

fn unsupported(line: usize, what: &str) -> Fault {
    Fault::Unsupported(format!("line {line}: {what} cannot be enforced"))
}

struct Parser {
    tokens: Vec<(Token, usize)>,
    at: usize,
    depth: usize,
    lark: Lark,
}

impl Parser {
    fn statements(&mut self) -> Result<(), Fault> {
        loop {
            while self.takes(&Token::Newline) {}
            let Some(token) = self.next() else {
                return Ok(());
            };
            match token {
                Token::Directive(name) => self.directive(&name)?,
                Token::Sign("?" | "!") => {
                    self.takes(&Token::Sign("!"));
                    match self.next() {
                        Some(Token::Name(name)) => self.definition(name)?,
                        _ => return Err(self.wrong("the name of a rule is missing")),
                    }
                }
                Token::Name(name) => self.definition(name)?,
                _ => return Err(self.wrong("a rule, a terminal or a directive must begin here")),
            }
            if self.peek().is_some() && !self.takes(&Token::Newline) {
                return Err(self.wrong("the end of the line was expected"));
            }
        }
    }

    fn definition(&mut self, name: String) -> Result<(), Fault> {
        if self.peek() == Some(&Token::Sign("{")) {
            return Err(unsupported(self.line(), "a template"));
        }
        if self.peek() == Some(&Token::Sign("[")) {
            return Err(unsupported(self.line(), "an attribute of a rule"));
        }
        // `name.2: …` is a priority, which says nothing about the language.
        if self.takes(&Token::Sign(".")) && !matches!(self.next(), Some(Token::Number(_))) {
            return Err(self.wrong("a priority is a number"));
        }
        if !self.takes(&Token::Sign(":")) {
            return Err(self.wrong(&format!("\":\" is missing after {name}")));
        }
        let expr = self.choice()?;
        match self.lark.definitions.insert(name.clone(), expr) {
            None => Ok(()),
            Some(_) => Err(self.wrong(&format!("{name} is defined twice"))),
        }
    }

    fn directive(&mut self, name: &str) -> Result<(), Fault> {
        match name {
            "import" => self.import(),
            "ignore" => {
                let expr = self.choice()?;
                self.lark.ignore.push(expr);
                Ok(())
            }
            other => Err(unsupported(self.line(), &format!("%{other}"))),
        }
    }

    /// `%import common.X`, `%import common.X -> Y`, `%import common (X, Y)`.
    fn import(&mut self) -> Result<(), Fault> {
        if self.next() != Some(Token::Name("common".to_owned())) {
            return Err(unsupported(
                self.line(),
                "an import of anything but \"common\"",
            ));
        }
        let several = self.takes(&Token::Sign("("));
        if !several && !self.takes(&Token::Sign(".")) {
            return Err(self.wrong("a terminal of \"common\" must be named"));
        }
        loop {
            let Some(Token::Name(name)) = self.next() else {
                return Err(self.wrong("a terminal of \"common\" must be named"));
            };
            let Some(source) = common(&name) else {
                return Err(unsupported(self.line(), &format!("common.{name}")));
            };
            let alias = if !several && self.takes(&Token::Sign("->")) {
                match self.next() {
                    Some(Token::Name(alias)) => alias,
                    _ => return Err(self.wrong("a name is missing after \"->\"")),
                }
            } else {
                name
            };
            let expr = Expr::Regex(source.to_owned(), String::new());
            self.lark.definitions.entry(alias).or_insert(expr);
            if !several || self.takes(&Token::Sign(")")) {
                return Ok(());
            }
            if !self.takes(&Token::Sign(",")) {
                return Err(self.wrong("\",\" or \")\" was expected"));
            }
        }
    }

    fn choice(&mut self) -> Result<Expr, Fault> {
        self.depth += 1;
        if self.depth > MAX_GRAMMAR_DEPTH {
            return Err(self.wrong(&format!(
                "groups are nested deeper than the {MAX_GRAMMAR_DEPTH} levels allowed"
            )));
        }
        let mut options = vec![self.sequence()?];
        while self.takes_bar() {
            options.push(self.sequence()?);
        }
        self.depth -= 1;
        Ok(match options.len() {
            1 => options.swap_remove(0),
            _ => Expr::Choice(options),
        })
    }

    /// `|`, also on a later line.
    fn takes_bar(&mut self) -> bool {
        let before = self.at;
        while self.takes(&Token::Newline) {}
        if self.takes(&Token::Sign("|")) {
            return true;
        }
        self.at = before;
        false
    }

    fn sequence(&mut self) -> Result<Expr, Fault> {
        let mut parts = Vec::new();
        loop {
            match self.peek() {
                Some(
                    Token::Name(_)
                    | Token::Literal(..)
                    | Token::Regex(..)
                    | Token::Sign("(" | "[" | "~" | "!"),
                ) => parts.push(self.repeated()?),
                Some(Token::Sign("->")) => {
                    // The name of a node in a tree nobody builds.
                    self.next();
                    if !matches!(self.next(), Some(Token::Name(_))) {
                        return Err(self.wrong("a name is missing after \"->\""));
                    }
                    break;
                }
                Some(Token::Directive(name)) => {
                    return Err(unsupported(self.line(), &format!("%{name}")));
                }
                _ => break,
            }
        }
        Ok(match parts.len() {
            1 => parts.swap_remove(0),
            _ => Expr::Sequence(parts),
        })
    }

    fn repeated(&mut self) -> Result<Expr, Fault> {
        let expr = self.atom()?;
        let (least, most) = if self.takes(&Token::Sign("*")) {
            (0, None)
        } else if self.takes(&Token::Sign("+")) {
            (1, None)
        } else if self.takes(&Token::Sign("?")) {
            (0, Some(1))
        } else if self.takes(&Token::Sign("~")) {
            let least = self.number()?;
            let most = if self.takes(&Token::Sign("..")) {
                self.number()?
            } else {
                least
            };
            if most < least {
                return Err(self.wrong(&format!("{least}..{most} is no range")));
            }
            (least, Some(most))
        } else {
            return Ok(expr);
        };
        Ok(Expr::Repeat(Box::new(expr), least, most))
    }

    fn atom(&mut self) -> Result<Expr, Fault> {
        match self.next() {
            Some(Token::Name(name)) => match self.peek() {
                Some(Token::Sign("{")) => Err(unsupported(self.line(), "a template")),
                _ => Ok(Expr::Name(name)),
            },
            Some(Token::Literal(from, ignore_case)) => {
                if !self.takes(&Token::Sign("..")) {
                    return Ok(Expr::Literal(from, ignore_case));
                }
                let Some(Token::Literal(to, _)) = self.next() else {
                    return Err(self.wrong("a range ends with a string"));
                };
                self.range(&from, &to)
            }
            Some(Token::Regex(source, flags)) => Ok(Expr::Regex(source, flags)),
            Some(Token::Sign("(")) => self.group(")"),
            Some(Token::Sign("[")) => {
                let expr = self.group("]")?;
                Ok(Expr::Repeat(Box::new(expr), 0, Some(1)))
            }
            Some(Token::Sign("~")) => Err(unsupported(self.line(), "a complement")),
            _ => Err(self.wrong("a value is missing")),
        }
    }

    fn group(&mut self, end: &'static str) -> Result<Expr, Fault> {
        while self.takes(&Token::Newline) {}
        let expr = self.choice()?;
        while self.takes(&Token::Newline) {}
        if self.takes(&Token::Sign(end)) {
            return Ok(expr);
        }
        Err(self.wrong(&format!("\"{end}\" is missing")))
    }

    fn range(&self, from: &str, to: &str) -> Result<Expr, Fault> {
        match (one(from), one(to)) {
            (Some(from), Some(to)) if from <= to => {
                let source = format!("[\\x{{{:x}}}-\\x{{{:x}}}]", from as u32, to as u32);
                Ok(Expr::Regex(source, String::new()))
            }
            _ => Err(self.wrong("a range goes from one character to one that is not before it")),
        }
    }

    fn number(&mut self) -> Result<u32, Fault> {
        match self.next() {
            Some(Token::Number(digits)) => match digits.parse() {
                Ok(number) if number <= MAX_REPEAT => Ok(number),
                _ => Err(self.wrong(&format!("a repetition is a number up to {MAX_REPEAT}"))),
            },
            _ => Err(self.wrong("a number is missing")),
        }
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(token, _)| token)
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.peek().cloned()?;
        self.at += 1;
        Some(token)
    }

    fn takes(&mut self, token: &Token) -> bool {
        let found = self.peek() == Some(token);
        self.at += usize::from(found);
        found
    }

    fn line(&self) -> usize {
        let last = self.at.saturating_sub(1).min(self.tokens.len() - 1);
        self.tokens[last].1
    }

    fn wrong(&self, problem: &str) -> Fault {
        malformed(self.line(), problem)
    }
}

fn one(text: &str) -> Option<char> {
    let mut chars = text.chars();
    let first = chars.next()?;
    chars.next().is_none().then_some(first)
}

/// Lark's library of terminals, as documented in its `grammars/common.lark`.
fn common(name: &str) -> Option<&'static str> {
    Some(match name {
        "DIGIT" => "[0-9]",
        "HEXDIGIT" => "[a-fA-F0-9]",
        "INT" => "[0-9]+",
        "SIGNED_INT" => "[+-]?[0-9]+",
        "DECIMAL" => r"[0-9]+\.[0-9]*|\.[0-9]+",
        "FLOAT" => r"[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?",
        "SIGNED_FLOAT" => {
            r"[+-]?(?:[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
        }
        "NUMBER" => r"[0-9]+|[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?",
        "SIGNED_NUMBER" => {
            r"[+-]?(?:[0-9]+|[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
        }
        "ESCAPED_STRING" => r#""(?:[^"\\\n]|\\.)*""#,
        "LCASE_LETTER" => "[a-z]",
        "UCASE_LETTER" => "[A-Z]",
        "LETTER" => "[A-Za-z]",
        "WORD" => "[A-Za-z]+",
        "CNAME" => "[_A-Za-z][_A-Za-z0-9]*",
        "WS_INLINE" => r"[ \t]+",
        "WS" => r"[ \t\f\r\n]+",
        "CR" => r"\r",
        "LF" => r"\n",
        "NEWLINE" => r"(?:\r?\n)+",
        "SH_COMMENT" => r"#[^\n]*",
        "CPP_COMMENT" => r"//[^\n]*",
        "C_COMMENT" => r"/\*[^*]*\*+(?:[^/*][^*]*\*+)*/",
        "SQL_COMMENT" => r"--[^\n]*",
        _ => return None,
    })
}
