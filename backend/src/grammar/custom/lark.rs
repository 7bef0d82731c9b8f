//! Reads Lark: rules and terminals with literals, regular expressions, groups, repetitions, `%import common.X` and `%ignore`. What else Lark can do
//! (templates, `%declare`, `%extend`, …) is named and not supported.

mod common;
mod tokens;

use std::collections::HashMap;

use common::common;
use tokens::{Token, tokens};

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
                        Some(Token::Name(name)) => self.definition(&name)?,
                        _ => return Err(self.wrong("the name of a rule is missing")),
                    }
                }
                Token::Name(name) => self.definition(&name)?,
                _ => return Err(self.wrong("a rule, a terminal or a directive must begin here")),
            }
            if self.peek().is_some() && !self.takes(&Token::Newline) {
                return Err(self.wrong("the end of the line was expected"));
            }
        }
    }

    fn definition(&mut self, name: &str) -> Result<(), Fault> {
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
        match self.lark.definitions.insert(name.to_owned(), expr) {
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
