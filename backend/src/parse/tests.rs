//! The segments of whole answers, and the laws: any cut into tokens gives the same, and nothing of a text without calls is lost.

#![allow(
    clippy::needless_pass_by_value,
    reason = "helpers of tests take what the test has just made"
)]

mod laws;
mod python;
mod syntaxes;

use std::sync::Arc;

use proptest::test_runner::{Config, RngSeed};

use super::{End, Parser, ParserOptions, Piece, Segment};
use crate::call_syntax::CallSyntax;

/// The same cases every time, `few` of them; `CODEX_BRIDGE_FUZZ_RUNS` asks for more.
pub(crate) fn cases(few: u32) -> Config {
    Config {
        cases: u32::try_from(crate::testing::fuzz_runs(few.into())).unwrap(),
        rng_seed: RngSeed::Fixed(20_261_130),
        failure_persistence: None,
        ..Config::default()
    }
}

pub(super) const TOOLS: [&str; 8] = [
    "exec_command",
    "light",
    "fan",
    "find",
    "read_note",
    "g",
    "mcp__tiny__echo",
    "żółć",
];

pub(super) fn options(syntax: CallSyntax) -> ParserOptions {
    ParserOptions {
        syntax,
        tools: TOOLS
            .map(str::to_owned)
            .into_iter()
            .collect::<Arc<[String]>>(),
        json_answer: false,
        thinking: false,
    }
}

/// Parses `answer`, one character a token; a `\u{1}name\u{2}` in it is the control token `name`.
pub(super) fn parse(options: ParserOptions, answer: &str, end: End) -> Vec<Segment> {
    let mut parser = Parser::new(options);
    let mut out = Vec::new();
    for piece in pieces(answer) {
        match piece {
            Piece::Text(text) => {
                for character in text.chars() {
                    parser.push(Piece::Text(character.encode_utf8(&mut [0; 4])), &mut out);
                }
            }
            control => parser.push(control, &mut out),
        }
    }
    parser.finish(end, &mut out);
    merged(out)
}

pub(super) fn pieces(answer: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    for part in answer.split_inclusive('\u{2}') {
        let (text, control) = match part
            .strip_suffix('\u{2}')
            .and_then(|part| part.split_once('\u{1}'))
        {
            Some((text, control)) => (text, Some(control)),
            None => (part, None),
        };
        pieces.push(Piece::Text(text));
        pieces.extend(control.map(Piece::Control));
    }
    pieces
}

/// Neighbours of one kind joined, positions left out of the comparison.
pub(super) fn merged(segments: Vec<Segment>) -> Vec<Segment> {
    let mut out: Vec<Segment> = Vec::new();
    for segment in segments {
        match (out.last_mut(), segment) {
            (Some(Segment::Text { text, .. }), Segment::Text { text: more, .. }) => {
                text.push_str(&more);
            }
            (Some(Segment::Reasoning(text)), Segment::Reasoning(more)) => text.push_str(&more),
            (Some(Segment::CallArguments(text)), Segment::CallArguments(more)) => {
                text.push_str(&more);
            }
            (_, Segment::Text { text, .. }) => out.push(Segment::Text { text, at: 0 }),
            (_, segment) => out.push(segment),
        }
    }
    out
}

pub(super) fn text(text: &str) -> Segment {
    Segment::Text {
        text: text.to_owned(),
        at: 0,
    }
}

pub(super) fn reasoning(text: &str) -> Segment {
    Segment::Reasoning(text.to_owned())
}

/// A whole call.
pub(super) fn call(name: &str, arguments: &str) -> Vec<Segment> {
    let mut segments = cut_call(name, arguments);
    segments.push(Segment::CallEnd);
    segments
}

/// A call that was cut.
pub(super) fn cut_call(name: &str, arguments: &str) -> Vec<Segment> {
    let start = Segment::CallStart {
        name: name.to_owned(),
    };
    let arguments = (!arguments.is_empty()).then(|| Segment::CallArguments(arguments.to_owned()));
    [start].into_iter().chain(arguments).collect()
}
