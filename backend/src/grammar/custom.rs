//! A custom tool's grammar, made into the grammar of the JSON string that carries the text: `{"input": "…"}`.
//!
//! Spelled in JSON, two characters can begin with the same byte (`\n` and `\"`), which a lexer that looks one byte ahead cannot take apart at the border
//! of two terminals. So there are no borders: where no rule refers to itself, the whole grammar is one regular expression; otherwise each spelled
//! character is a terminal and rules do all the work. Either way the language is that of the rules read without a lexer: what Lark's longest match would
//! forbid is allowed.

mod lark;
mod write;

use std::collections::{HashMap, HashSet};

pub(crate) use lark::Fault;
use lark::{Expr, Lark};
use regex_syntax::hir::{Hir, HirKind};
use write::Writer;

use super::{
    escape,
    limits::{
        self, Level, MAX_EXPRESSION_DEPTH, MAX_EXPRESSION_PARTS, MAX_GRAMMAR_BYTES, MAX_RULE_DEPTH,
        MAX_RULE_PARTS,
    },
    tools::Syntax,
};

/// The grammar of the text between the quotes, in the compiler's Lark, from rule `start`.
pub(crate) fn escaped_grammar(syntax: Syntax, definition: &str) -> Result<String, Fault> {
    match syntax {
        Syntax::Lark => Grammar::new(&lark::parse(definition)?)?.write(),
        Syntax::Regex if definition.len() > MAX_GRAMMAR_BYTES => Err(Fault::Malformed(format!(
            "has {} bytes, more than the {MAX_GRAMMAR_BYTES} allowed",
            definition.len()
        ))),
        Syntax::Regex => {
            let leaf = Node::Leaf(escape::parse(definition, "")?);
            Grammar {
                names: vec!["the expression".to_owned()],
                definitions: vec![leaf],
                rules: vec![false],
                ignore: None,
            }
            .write()
        }
    }
}

/// An [`Expr`] with its names looked up and its expressions parsed.
#[derive(Debug)]
enum Node {
    Leaf(Hir),
    Name(usize),
    Sequence(Vec<Node>),
    Choice(Vec<Node>),
    Repeat(Box<Node>, u32, Option<u32>),
}

/// What `start` (definition 0) needs, and no more.
#[derive(Debug)]
struct Grammar {
    names: Vec<String>,
    definitions: Vec<Node>,
    /// Is it a rule? Ignored text may stand between the terminals of a rule, not inside a terminal.
    rules: Vec<bool>,
    /// What may stand between terminals: a definition.
    ignore: Option<usize>,
}

impl Grammar {
    fn new(lark: &Lark) -> Result<Self, Fault> {
        let mut reader = Reader {
            lark,
            index: HashMap::new(),
            names: Vec::new(),
        };
        let mut grammar = Grammar {
            names: Vec::new(),
            definitions: Vec::new(),
            rules: Vec::new(),
            ignore: None,
        };
        reader.number("start")?;
        while grammar.definitions.len() < reader.names.len() {
            let name = reader.names[grammar.definitions.len()].clone();
            let node = reader.node(&lark.definitions[&name])?;
            grammar.rules.push(!lark::is_terminal(&name));
            grammar.definitions.push(node);
        }
        if !lark.ignore.is_empty() {
            // Its terminals come behind what `start` needs; they are not rules, so nothing is ignored inside of them.
            let options = lark.ignore.iter().map(|expr| reader.node(expr));
            let options = options.collect::<Result<_, _>>()?;
            while grammar.definitions.len() < reader.names.len() {
                let name = reader.names[grammar.definitions.len()].clone();
                let node = reader.node(&lark.definitions[&name])?;
                grammar.rules.push(false);
                grammar.definitions.push(node);
            }
            grammar.ignore = Some(grammar.definitions.len());
            let ignored = Node::Repeat(Box::new(Node::Choice(options)), 0, None);
            grammar.definitions.push(ignored);
            grammar.rules.push(false);
            reader.names.push("%ignore".to_owned());
        }
        grammar.names = reader.names;
        Ok(grammar)
    }

    fn write(&self) -> Result<String, Fault> {
        let order = self.order();
        match &order {
            Some(order) => self.check_size(order)?,
            None => self.check_rules()?,
        }
        self.check_depth(match &order {
            Some(_) => MAX_EXPRESSION_DEPTH,
            None => MAX_RULE_DEPTH,
        })?;
        let mut writer = Writer {
            grammar: self,
            productive: self.productive(),
            one_expression: order.is_some(),
            units: HashMap::new(),
            out: String::new(),
        };
        if !writer.productive[0] {
            return Err(Fault::Malformed(format!(
                "no text can ever match {}",
                self.names[0]
            )));
        }
        writer.write()?;
        Ok(writer.out)
    }

    /// Which definitions match some finite text.
    fn productive(&self) -> Vec<bool> {
        self.fixpoint(false, is_productive)
    }

    /// Starts with the same for all definitions and asks again until nothing changes.
    fn fixpoint(&self, start: bool, ask: impl Fn(&Node, &[bool]) -> bool) -> Vec<bool> {
        let mut known = vec![start; self.definitions.len()];
        loop {
            let mut changed = false;
            // From the back: what is referred to mostly comes later.
            for index in (0..known.len()).rev() {
                if known[index] == start && ask(&self.definitions[index], &known) != start {
                    known[index] = !start;
                    changed = true;
                }
            }
            if !changed {
                return known;
            }
        }
    }

    /// The definitions, each after all that it refers to; none if one refers to itself, by whatever way.
    fn order(&self) -> Option<Vec<usize>> {
        let mut users: Vec<Vec<usize>> = vec![Vec::new(); self.definitions.len()];
        let mut open: Vec<usize> = vec![0; self.definitions.len()];
        for (index, node) in self.definitions.iter().enumerate() {
            let mut names = HashSet::new();
            collect_names(node, &mut names);
            open[index] = names.len();
            for name in names {
                users[name].push(index);
            }
        }
        let mut order: Vec<usize> = (0..open.len()).filter(|index| open[*index] == 0).collect();
        let mut next = 0;
        while let Some(&index) = order.get(next) {
            next += 1;
            for &user in &users[index] {
                open[user] -= 1;
                if open[user] == 0 {
                    order.push(user);
                }
            }
        }
        (order.len() == self.definitions.len()).then_some(order)
    }

    /// Are groups, with the names in them written out, no deeper inside each other than the compiler can go? It recurses.
    fn check_depth(&self, most: usize) -> Result<(), Fault> {
        let levels: Vec<Level> = self.definitions.iter().map(level).collect();
        let depth = limits::depth(&levels);
        if depth > most {
            return Err(Fault::Malformed(format!(
                "is {depth} levels deep, written out, more than the {most} allowed"
            )));
        }
        Ok(())
    }

    /// Is it small enough for rules over single characters?
    fn check_rules(&self) -> Result<(), Fault> {
        let size: usize = self.definitions.iter().map(rule_size).sum();
        if size > MAX_RULE_PARTS {
            return Err(Fault::Malformed(format!(
                "refers to itself and has {size} characters, more than the {MAX_RULE_PARTS} allowed"
            )));
        }
        Ok(())
    }

    /// Is it small enough with every name written out? A few lines can be astronomically large: `a: b b`, `b: c c`, …
    fn check_size(&self, order: &[usize]) -> Result<(), Fault> {
        let mut sizes = vec![0usize; self.definitions.len()];
        for &index in order {
            sizes[index] = size(&self.definitions[index], &sizes);
            if sizes[index] > MAX_EXPRESSION_PARTS {
                return Err(Fault::Malformed(format!(
                    "has more than the {MAX_EXPRESSION_PARTS} parts allowed, written out from {}",
                    self.names[index]
                )));
            }
        }
        Ok(())
    }
}

/// How deep a node is, and what it refers to where.
fn level(node: &Node) -> Level {
    let mut level = Level::default();
    let mut open = vec![(node, 1)];
    while let Some((node, depth)) = open.pop() {
        level.depth = level.depth.max(depth);
        match node {
            Node::Leaf(_) => {}
            Node::Name(name) => level.references.push((*name, depth)),
            Node::Sequence(list) | Node::Choice(list) => {
                open.extend(list.iter().map(|node| (node, depth + 1)));
            }
            Node::Repeat(node, ..) => open.push((node, depth + 1)),
        }
    }
    level
}

/// Characters and references of a node as rules over single characters.
fn rule_size(node: &Node) -> usize {
    match node {
        Node::Leaf(hir) => hir.properties().maximum_len().unwrap_or(64).min(1 << 16),
        Node::Name(_) => 1,
        Node::Sequence(list) | Node::Choice(list) => list.iter().map(rule_size).sum(),
        Node::Repeat(node, ..) => rule_size(node),
    }
}

/// Parts of a node with the definitions it refers to written out.
fn size(node: &Node, sizes: &[usize]) -> usize {
    let sum = |list: &[Node]| {
        list.iter()
            .fold(1usize, |sum, node| sum.saturating_add(size(node, sizes)))
    };
    match node {
        Node::Leaf(_) => 1,
        Node::Name(name) => sizes[*name].max(1),
        Node::Sequence(list) | Node::Choice(list) => sum(list),
        Node::Repeat(node, ..) => size(node, sizes),
    }
}

struct Reader<'a> {
    lark: &'a Lark,
    index: HashMap<String, usize>,
    names: Vec<String>,
}

impl Reader<'_> {
    fn number(&mut self, name: &str) -> Result<usize, Fault> {
        if let Some(number) = self.index.get(name) {
            return Ok(*number);
        }
        if !self.lark.definitions.contains_key(name) {
            return Err(Fault::Malformed(format!("{name} is not defined")));
        }
        self.names.push(name.to_owned());
        self.index.insert(name.to_owned(), self.names.len() - 1);
        Ok(self.names.len() - 1)
    }

    fn node(&mut self, expr: &Expr) -> Result<Node, Fault> {
        let all = |reader: &mut Self, list: &[Expr]| {
            list.iter()
                .map(|expr| reader.node(expr))
                .collect::<Result<Vec<_>, _>>()
        };
        Ok(match expr {
            Expr::Literal(text, ignore_case) => Node::Leaf(escape::literal(text, *ignore_case)?),
            Expr::Regex(source, flags) => Node::Leaf(escape::parse(source, flags)?),
            Expr::Name(name) => Node::Name(self.number(name)?),
            Expr::Sequence(list) => Node::Sequence(all(self, list)?),
            Expr::Choice(list) => Node::Choice(all(self, list)?),
            Expr::Repeat(expr, least, most) => {
                Node::Repeat(Box::new(self.node(expr)?), *least, *most)
            }
        })
    }
}

fn collect_names(node: &Node, names: &mut HashSet<usize>) {
    match node {
        Node::Leaf(_) => {}
        Node::Name(name) => {
            names.insert(*name);
        }
        Node::Sequence(list) | Node::Choice(list) => {
            list.iter().for_each(|node| collect_names(node, names));
        }
        Node::Repeat(node, ..) => collect_names(node, names),
    }
}

fn is_productive(node: &Node, known: &[bool]) -> bool {
    match node {
        Node::Leaf(hir) => matches_something(hir),
        Node::Name(name) => known[*name],
        Node::Sequence(list) => list.iter().all(|node| is_productive(node, known)),
        Node::Choice(list) => list.iter().any(|node| is_productive(node, known)),
        Node::Repeat(node, least, _) => *least == 0 || is_productive(node, known),
    }
}

/// Can it match the empty text?
fn is_nullable(node: &Node, known: &[bool]) -> bool {
    match node {
        Node::Leaf(hir) => hir.properties().minimum_len() == Some(0),
        Node::Name(name) => known[*name],
        Node::Sequence(list) => list.iter().all(|node| is_nullable(node, known)),
        Node::Choice(list) => list.iter().any(|node| is_nullable(node, known)),
        Node::Repeat(node, least, _) => *least == 0 || is_nullable(node, known),
    }
}

/// Can it match nothing but the empty text?
fn is_empty(node: &Node, known: &[bool]) -> bool {
    match node {
        Node::Leaf(hir) => hir.properties().maximum_len() == Some(0),
        Node::Name(name) => known[*name],
        Node::Sequence(list) | Node::Choice(list) => list.iter().all(|node| is_empty(node, known)),
        Node::Repeat(node, _, most) => *most == Some(0) || is_empty(node, known),
    }
}

fn matches_something(hir: &Hir) -> bool {
    match hir.kind() {
        HirKind::Empty | HirKind::Literal(_) | HirKind::Look(_) => true,
        HirKind::Class(class) => escape::characters(class).is_ok_and(|class| {
            // Classes hold no surrogates, so any range has a character.
            class.iter().next().is_some()
        }),
        HirKind::Repetition(repetition) => {
            repetition.min == 0 || matches_something(&repetition.sub)
        }
        HirKind::Capture(capture) => matches_something(&capture.sub),
        HirKind::Concat(list) => list.iter().all(matches_something),
        HirKind::Alternation(list) => list.iter().any(matches_something),
    }
}
