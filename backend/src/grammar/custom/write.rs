//! Writes a [`Grammar`] in the compiler's Lark, for the spelled text: one expression, or rules over single characters.

use std::{collections::HashMap, fmt::Write};

use regex_syntax::hir::{Dot, Hir, HirKind, Look};

use super::{Fault, Grammar, Node, is_empty, is_nullable, is_productive, matches_something};
use crate::grammar::escape;

pub(super) struct Writer<'a> {
    pub(super) grammar: &'a Grammar,
    pub(super) productive: Vec<bool>,
    pub(super) one_expression: bool,
    /// Terminals of single characters, by their source.
    pub(super) units: HashMap<String, usize>,
    pub(super) out: String,
}

impl Writer<'_> {
    pub(super) fn write(&mut self) -> Result<(), Fault> {
        let grammar = self.grammar;
        // In front of the first terminal nothing is ignored, though it might be: readers differ.
        let start = self.name(0);
        let nullable = grammar.fixpoint(false, is_nullable)[0];
        let empty = grammar.ignore.is_none() && grammar.fixpoint(true, is_empty)[0];
        if empty {
            self.out.push_str("start: \"\"\n");
            return Ok(());
        }
        if !self.one_expression {
            let _ = writeln!(self.out, "start: {start}");
        } else if nullable {
            // A terminal must match something; nothing at all is the rule's business.
            let _ = writeln!(
                self.out,
                "start: TEXT?\nTEXT: ({start}) & /(?:.|\\x{{a}})+/"
            );
        } else {
            let _ = writeln!(self.out, "start: TEXT\nTEXT: {start}");
        }
        for (index, node) in grammar.definitions.iter().enumerate() {
            if !self.productive[index] {
                continue;
            }
            let mut line = format!("{}: ", self.name(index));
            self.expr(node, grammar.rules[index], &mut line)?;
            self.out.push_str(&line);
            self.out.push('\n');
        }
        let mut units: Vec<(&String, &usize)> = self.units.iter().collect();
        units.sort_by_key(|(_, number)| **number);
        for (source, number) in units {
            let _ = writeln!(self.out, "U{number}: /{source}/");
        }
        Ok(())
    }

    fn name(&self, index: usize) -> String {
        let prefix = if self.one_expression { 'T' } else { 'r' };
        format!("{prefix}{index}")
    }

    /// Writes a node in brackets; `rule`: ignored text may follow its terminals.
    fn expr(&mut self, node: &Node, rule: bool, out: &mut String) -> Result<(), Fault> {
        match node {
            Node::Leaf(hir) => {
                out.push('(');
                if self.one_expression {
                    let source = escape::escaped(hir)?;
                    let _ = write!(out, "/{source}/");
                } else {
                    self.spelled(hir, true, true, out)?;
                }
                self.ignored(rule, out);
                out.push(')');
            }
            Node::Name(name) => {
                out.push('(');
                out.push_str(&self.name(*name));
                self.ignored(rule && !self.grammar.rules[*name], out);
                out.push(')');
            }
            Node::Sequence(list) => {
                out.push('(');
                if list.is_empty() {
                    out.push_str("\"\"");
                }
                for node in list {
                    self.expr(node, rule, out)?;
                    out.push(' ');
                }
                out.push(')');
            }
            Node::Choice(list) => {
                // An option that never ends is no option.
                let productive = &self.productive;
                let list: Vec<&Node> = list
                    .iter()
                    .filter(|node| is_productive(node, productive))
                    .collect();
                out.push('(');
                for (index, node) in list.into_iter().enumerate() {
                    if index > 0 {
                        out.push_str(" | ");
                    }
                    self.expr(node, rule, out)?;
                }
                out.push(')');
            }
            Node::Repeat(node, least, most) => {
                if *most == Some(0) || !is_productive(node, &self.productive) {
                    out.push_str("\"\"");
                    return Ok(());
                }
                let mut inner = String::new();
                self.expr(node, rule, &mut inner)?;
                repeat(&inner, *least, *most, out);
            }
        }
        Ok(())
    }

    fn ignored(&self, rule: bool, out: &mut String) {
        if let (true, Some(ignore)) = (rule, self.grammar.ignore) {
            out.push(' ');
            out.push_str(&self.name(ignore));
        }
    }

    /// A regular expression as rules over single characters.
    fn spelled(
        &mut self,
        hir: &Hir,
        first: bool,
        last: bool,
        out: &mut String,
    ) -> Result<(), Fault> {
        match hir.kind() {
            HirKind::Empty => out.push_str("\"\""),
            HirKind::Look(Look::Start | Look::StartLF) if first => out.push_str("\"\""),
            HirKind::Look(Look::End | Look::EndLF) if last => out.push_str("\"\""),
            HirKind::Look(_) => {
                escape::escaped(&Hir::concat(vec![
                    Hir::dot(Dot::AnyChar),
                    hir.clone(),
                    Hir::dot(Dot::AnyChar),
                ]))?;
            }
            HirKind::Literal(literal) => {
                for c in String::from_utf8_lossy(&literal.0).chars() {
                    let source = escape::escaped(&Hir::literal(c.to_string().into_bytes()))?;
                    self.unit(source, out);
                }
            }
            HirKind::Class(_) => {
                let source = escape::escaped(hir)?;
                self.unit(source, out);
            }
            HirKind::Repetition(repetition) => {
                let mut inner = "(".to_owned();
                self.spelled(&repetition.sub, false, false, &mut inner)?;
                inner.push(')');
                repeat(&inner, repetition.min, repetition.max, out);
            }
            HirKind::Capture(capture) => self.spelled(&capture.sub, first, last, out)?,
            HirKind::Concat(parts) => {
                let end = parts.len() - 1;
                for (index, part) in parts.iter().enumerate() {
                    self.spelled(part, first && index == 0, last && index == end, out)?;
                    out.push(' ');
                }
            }
            HirKind::Alternation(options) => {
                out.push('(');
                let options = options.iter().filter(|option| matches_something(option));
                for (index, option) in options.enumerate() {
                    if index > 0 {
                        out.push_str(" | ");
                    }
                    self.spelled(option, first, last, out)?;
                }
                out.push(')');
            }
        }
        Ok(())
    }

    fn unit(&mut self, source: String, out: &mut String) {
        let next = self.units.len();
        let number = self.units.entry(source).or_insert(next);
        let _ = write!(out, "U{number} ");
    }
}

fn repeat(inner: &str, least: u32, most: Option<u32>, out: &mut String) {
    let _ = match (least, most) {
        (_, Some(0)) => write!(out, "\"\""),
        (0, None) => write!(out, "({inner})*"),
        (1, None) => write!(out, "({inner})+"),
        (0, Some(1)) => write!(out, "({inner})?"),
        (least, None) => write!(out, "(({inner}){{{least},{least}}} ({inner})*)"),
        (least, Some(most)) => write!(out, "({inner}){{{least},{most}}}"),
    };
}
