//! A small vocabulary, a seeded dice, and walks that draw from the masks.

use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::{
    call_syntax::CallSyntax,
    engine::constraint::{Constraint, Next},
    grammar::{Choice, Grammars, Relaxed, TextFormat, ToolSet, Vocabulary},
    testing::recordings,
};

pub(super) const SYNTAXES: [CallSyntax; 3] = [
    CallSyntax::LlamaJson,
    CallSyntax::Hermes,
    CallSyntax::SmolLm2,
];

/// Every byte, pieces that straddle the borders of a call's parts, and control tokens.
pub(super) fn vocabulary() -> Vocabulary {
    let pieces = [
        "{\"",
        "\": \"",
        "\", \"",
        "\",",
        "\"}",
        "\"}}",
        "}}",
        "}, ",
        "; ",
        "\": ",
        ": ",
        ", ",
        "name",
        "parameters",
        "arguments",
        "{\"name\": \"",
        "true",
        "false",
        "null",
        "12",
        "0.5",
        "\\n",
        "\\\"",
        "*** ",
        "*** End",
        "Patch",
        " File",
        "@@",
        "\\n+",
        "<tool",
        "_call",
        ">\n",
        "</",
        "tool_call",
        "><",
        "the ",
        " a",
        "in",
        "put",
        "get",
        "_weather",
        "é",
        "漢",
        "\n\n",
        "{\"f",
        "f\"",
        "`",
        "```",
        "[{",
        "[{\"",
        ">[",
        "~~",
        "\\\\",
        "\\u00",
        "1f",
    ];
    let control = ["<|end|>", "<|eot_id|>", "<|python_tag|>"];
    let mut bytes: Vec<Vec<u8>> = (0..=255u8).map(|byte| vec![byte]).collect();
    for piece in pieces {
        if piece.len() > 1 {
            bytes.push(piece.as_bytes().to_vec());
        }
    }
    let texts = bytes.len();
    bytes.extend(control.iter().map(|name| name.as_bytes().to_vec()));
    let flags = (0..bytes.len()).map(|token| token >= texts).collect();
    let ends = vec![texts as u32, texts as u32 + 1];
    let words = bytes[..texts].to_vec();
    Vocabulary {
        bytes,
        control: flags,
        end_tokens: ends,
        encode: Arc::new(move |text| greedy(&words, text.as_bytes())),
    }
}

/// The longest piece each time.
fn greedy(words: &[Vec<u8>], mut text: &[u8]) -> Vec<u32> {
    let mut tokens = Vec::new();
    while !text.is_empty() {
        let fits = words
            .iter()
            .enumerate()
            .filter(|(_, word)| text.starts_with(word));
        let (token, word) = fits.max_by_key(|(_, word)| word.len()).unwrap();
        tokens.push(token as u32);
        text = &text[word.len()..];
    }
    tokens
}

pub(super) fn encode(text: &str) -> Vec<u32> {
    (vocabulary().encode)(text)
}

pub(super) fn grammars() -> &'static Grammars {
    static GRAMMARS: OnceLock<Grammars> = OnceLock::new();
    GRAMMARS.get_or_init(|| Grammars::new(vocabulary()).unwrap())
}

pub(super) fn control(name: &str) -> u32 {
    vocabulary().control_token(name).unwrap()
}

/// xorshift64*.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 33) as usize % bound
    }

    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(super) fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}

pub(super) fn tools(list: Value) -> ToolSet {
    ToolSet::from_request(list.as_array().unwrap()).unwrap()
}

pub(super) fn function(name: &str, parameters: &Value) -> Value {
    serde_json::json!({"type": "function", "name": name, "parameters": parameters})
}

pub(super) fn lark_tool(name: &str, definition: &str) -> Value {
    custom_tool(name, "lark", definition)
}

pub(super) fn custom_tool(name: &str, syntax: &str, definition: &str) -> Value {
    serde_json::json!({
        "type": "function", "name": name,
        "parameters": {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"], "additionalProperties": false},
        "x_grammar": {"type": "grammar", "syntax": syntax, "definition": definition},
    })
}

pub(super) type Built = (Option<Box<dyn Constraint>>, Vec<Relaxed>);

pub(super) fn constraint(tools: &ToolSet, choice: &Choice, syntax: CallSyntax) -> Built {
    grammars()
        .constraint(tools, choice, true, &TextFormat::Text, syntax)
        .unwrap()
}

/// How a walk ended.
#[derive(Debug, PartialEq)]
pub(super) enum Walked {
    /// With an end token or because nothing more may come.
    Ended(String),
    /// Still going after the last step.
    Cut(String),
}

impl Walked {
    pub(super) fn text(&self) -> &str {
        match self {
            Walked::Ended(text) | Walked::Cut(text) => text,
        }
    }

    pub(super) fn ended(self) -> Option<String> {
        match self {
            Walked::Ended(text) => Some(text),
            Walked::Cut(_) => None,
        }
    }
}

/// Draws tokens until the end, and from `steps` on those that lead there. `start`: tokens the model draws first, whatever the dice says.
pub(super) fn walk(
    constraint: &mut dyn Constraint,
    dice: &mut Dice,
    steps: usize,
    start: &[u32],
) -> Walked {
    walk_out(constraint, dice, steps, start, &[])
}

/// As [`walk`]; late in the walk the first of the texts `out` that may come does.
pub(super) fn walk_out(
    constraint: &mut dyn Constraint,
    dice: &mut Dice,
    steps: usize,
    start: &[u32],
    out: &[&str],
) -> Walked {
    let vocabulary = vocabulary();
    let mut bytes = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut queue: Vec<u32> = start.iter().rev().copied().collect();
    for step in 0..steps * 3 {
        let hurry = step >= steps;
        if hurry && queue.is_empty() {
            let way = out
                .iter()
                .map(|way| encode(way))
                .find(|way| constraint.would_accept(way) == way.len());
            queue.extend(way.into_iter().flatten().rev());
        }
        let token = match constraint.next().unwrap() {
            Next::End => return Walked::Ended(text(&bytes)),
            Next::Forced(tokens) if queue.is_empty() => {
                assert!(!tokens.is_empty());
                for token in tokens {
                    assert!(!vocabulary.control[token as usize]);
                    constraint.accept(token).unwrap();
                    bytes.extend_from_slice(&vocabulary.bytes[token as usize]);
                }
                continue;
            }
            Next::Forced(_) => queue.pop().unwrap(),
            Next::Free => match queue.pop() {
                Some(token) => token,
                None if dice.chance(5) => vocabulary.end_tokens[0],
                None => dice.below(vocabulary.bytes.len() - 3) as u32,
            },
            Next::Mask(mask) => match queue.pop() {
                Some(token) => {
                    assert!(mask.allows(token), "{} after {}", token, text(&bytes));
                    token
                }
                None => draw(&mask, dice, hurry && out.is_empty(), &vocabulary),
            },
        };
        if !vocabulary.end_tokens.contains(&token) {
            assert_eq!(constraint.would_accept(&[token]), 1);
        }
        constraint.accept(token).unwrap();
        if vocabulary.end_tokens.contains(&token) {
            assert_eq!(constraint.next().unwrap(), Next::End);
            return Walked::Ended(text(&bytes));
        }
        if !vocabulary.control[token as usize] {
            bytes.extend_from_slice(&vocabulary.bytes[token as usize]);
        }
    }
    Walked::Cut(text(&bytes))
}

fn draw(
    mask: &crate::device::TokenMask,
    dice: &mut Dice,
    hurry: bool,
    vocabulary: &Vocabulary,
) -> u32 {
    let count = vocabulary.bytes.len() as u32;
    let allowed: Vec<u32> = (0..count).filter(|token| mask.allows(*token)).collect();
    assert!(!allowed.is_empty());
    if hurry || dice.chance(20) {
        let ways_out = [
            "\"",
            "}",
            "]",
            "\"",
            "</",
            "</tool_call>",
            "\"}}",
            "}}",
            ", ",
            ": ",
        ];
        let end = vocabulary.end_tokens[0];
        if mask.allows(end) {
            return end;
        }
        for way in ways_out {
            let found = allowed
                .iter()
                .find(|token| vocabulary.bytes[**token as usize] == way.as_bytes());
            if let Some(token) = found {
                return *token;
            }
        }
    }
    let likely = *dice.pick(b"1x/@.-:Z") as u32;
    if hurry && mask.allows(likely) && dice.chance(80) {
        return likely;
    }
    *dice.pick(&allowed)
}

/// The calls in a text that is nothing but calls, by a parser that knows nothing of the grammar; `None` where it is anything else.
pub(super) fn calls(text: &str, syntax: CallSyntax) -> Option<Vec<(String, String)>> {
    match syntax {
        CallSyntax::LlamaJson | CallSyntax::LlamaPythonic => {
            let mut calls = Vec::new();
            let mut rest = text;
            loop {
                let (call, length) = first_call(rest, syntax)?;
                calls.push(call);
                rest = &rest[length..];
                match rest.strip_prefix("; ") {
                    Some(more) => rest = more,
                    None => return rest.is_empty().then_some(calls),
                }
            }
        }
        CallSyntax::Hermes => {
            let mut calls = Vec::new();
            for part in text.split("\n<tool_call>") {
                let part = part.strip_prefix("<tool_call>").unwrap_or(part);
                let body = part.strip_prefix('\n')?.strip_suffix("\n</tool_call>")?;
                let (call, length) = first_call(body, syntax)?;
                calls.push(call);
                (length == body.len()).then_some(())?;
            }
            Some(calls)
        }
        CallSyntax::SmolLm2 => {
            let mut rest = text
                .strip_prefix("<tool_call>[")?
                .strip_suffix("]</tool_call>")?;
            let mut calls = Vec::new();
            while !rest.is_empty() {
                let (call, length) = first_call(rest, syntax)?;
                calls.push(call);
                rest = &rest[length..];
                if !rest.is_empty() {
                    rest = rest.strip_prefix(", ")?;
                }
            }
            Some(calls)
        }
    }
}

/// The call a text begins with, and its length.
fn first_call(text: &str, syntax: CallSyntax) -> Option<((String, String), usize)> {
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let call = stream.next()?.ok()?;
    let length = stream.byte_offset();
    let object = call.as_object()?;
    let keys: Vec<&str> = object.keys().map(String::as_str).collect();
    if keys != ["name", syntax.arguments_key()] {
        return None;
    }
    let name = object["name"].as_str()?.to_owned();
    Some(((name, object[syntax.arguments_key()].to_string()), length))
}

/// A recorded file of the real Codex, when the fixtures are there.
pub(super) fn fixture(name: &str) -> Option<Value> {
    let Some(folder) = recordings() else {
        eprintln!("skipped: no recorded fixture {name} beside the checkout");
        return None;
    };
    let text = std::fs::read_to_string(folder.join(name)).unwrap();
    Some(serde_json::from_str(&text).unwrap())
}
