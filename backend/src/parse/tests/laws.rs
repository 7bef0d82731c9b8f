//! Laws of the parser, on generated answers.

use pretty_assertions::assert_eq;
use proptest::prelude::*;

use super::{
    super::{End, Parser, Piece, Segment},
    cases, merged, options, parse, pieces,
};
use crate::call_syntax::CallSyntax;

const SYNTAXES: [CallSyntax; 4] = [
    CallSyntax::LlamaJson,
    CallSyntax::LlamaPythonic,
    CallSyntax::Hermes,
    CallSyntax::SmolLm2,
];

/// Bits of what models write, whole and broken.
const BITS: [&str; 48] = [
    "<tool_call>",
    "</tool_call>",
    "<tool_",
    "<think>",
    "</think>",
    "<|python_tag|>",
    "<|python_start|>",
    "<|python_end|>",
    "\u{1}<|python_tag|>\u{2}",
    "\u{1}<tool_call>\u{2}",
    "\u{1}</tool_call>\u{2}",
    "\u{1}<|eom|>\u{2}",
    "{\"name\": \"find\", \"parameters\": {\"q\": \"x\"}}",
    "{\"name\":\"g\",\"arguments\":{}}",
    "{\"name\": \"rm\"",
    "{\"parameters\": {\"a\": [1]}, ",
    "\"name\": \"light\"",
    "[find(q='x', n=[1, 2]), g()]",
    "[g(",
    "a=1",
    ")",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "'",
    "\\",
    "\\ud83d\\ude00",
    "\\u00",
    ",",
    "; ",
    ":",
    "\n",
    " ",
    "find",
    "g.call(",
    "true",
    "zażółć 😀",
    "中文",
    "```",
    "\n```\n",
    "I will look.",
    "arguments",
    "parameters",
    "\u{fffd}",
    "1.5",
    "\t",
];

fn answers() -> impl Strategy<Value = String> {
    let bit = prop_oneof![
        9 => prop::sample::select(&BITS[..]).prop_map(str::to_owned),
        1 => any::<char>().prop_filter("marks control tokens", |any| !"\u{1}\u{2}".contains(*any)).prop_map(String::from),
    ];
    prop::collection::vec(bit, 0..12).prop_map(|bits| bits.concat())
}

/// Feeds `answer` in pieces of the given lengths in characters, over and over.
fn parse_in(
    options: super::ParserOptions,
    answer: &str,
    lengths: &[usize],
    end: End,
) -> Vec<Segment> {
    let mut parser = Parser::new(options);
    let mut out = Vec::new();
    let mut lengths = lengths.iter().copied().cycle();
    for piece in pieces(answer) {
        let Piece::Text(mut rest) = piece else {
            parser.push(piece, &mut out);
            continue;
        };
        while !rest.is_empty() {
            let length = lengths.next().unwrap_or(1);
            let cut = rest
                .char_indices()
                .nth(length)
                .map_or(rest.len(), |(at, _)| at);
            let (now, later) = rest.split_at(cut);
            parser.push(Piece::Text(now), &mut out);
            rest = later;
        }
    }
    parser.finish(end, &mut out);
    out
}

fn ends() -> impl Strategy<Value = End> {
    prop::sample::select(&[End::Stop, End::Cut][..])
}

/// Calls come in order: started, arguments, ended; only the last may lack its end, and only when the answer was cut.
fn well_formed(segments: &[Segment], end: End) {
    let mut open = false;
    for segment in segments {
        match segment {
            Segment::CallStart { .. } => {
                assert!(!open);
                open = true;
            }
            Segment::CallArguments(_) => assert!(open),
            Segment::CallEnd => {
                assert!(open);
                open = false;
            }
            Segment::Text { .. } | Segment::Reasoning(_) => assert!(!open),
        }
    }
    assert!(!open || end == End::Cut);
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn any_cut_into_tokens_gives_the_same_segments(
        answer in answers(), syntax in prop::sample::select(&SYNTAXES[..]), lengths in prop::collection::vec(1usize..40, 1..8), end in ends(), thinking: bool, json_answer: bool,
    ) {
        let options = super::ParserOptions { thinking, json_answer, ..options(syntax) };
        let whole = parse(options.clone(), &answer, end);
        well_formed(&whole, end);
        let cut = parse_in(options, &answer, &lengths, end);
        assert_eq!(merged(cut), whole);
    }

    #[test]
    fn text_stands_where_its_position_says(
        answer in answers(), syntax in prop::sample::select(&SYNTAXES[..]), lengths in prop::collection::vec(1usize..40, 1..8)
    ) {
        let decoded: String = pieces(&answer)
            .iter()
            .filter_map(|piece| match piece {
                Piece::Text(text) => Some(*text),
                Piece::Control(_) => None,
            })
            .collect();
        let mut last = 0;
        for segment in parse_in(options(syntax), &answer, &lengths, End::Stop) {
            if let Segment::Text { text, at } = segment {
                prop_assert!(at >= last);
                prop_assert_eq!(&decoded[at..at + text.len()], text);
                last = at + decoded[at..].len().min(1);
            }
        }
    }

    #[test]
    fn a_text_without_calls_and_markers_comes_out_whole(answer in "[a-z <>{}\\[\\]\",:\n;|/_😀ł]{0,60}", syntax in prop::sample::select(&SYNTAXES[..])) {
        let said: String = parse(options(syntax), &answer, End::Stop)
            .iter()
            .map(|segment| match segment {
                Segment::Text { text, .. } => text.as_str(),
                other => panic!("{other:?}"),
            })
            .collect();
        // White space alone is no message.
        let expected = if answer.trim().is_empty() { "" } else { answer.as_str() };
        assert_eq!(said, expected);
    }

    #[test]
    fn argument_deltas_never_cut_an_escape(
        value in prop::collection::vec(prop::sample::select(&["\\n", "\\\\", "\\\"", "\\u0142", "\\ud83d\\ude00", "\\ud83d", "a", "ł", "😀", "}"][..]), 0..12),
        lengths in prop::collection::vec(1usize..4, 1..8)
    ) {
        let arguments = format!("{{\"q\": \"{}\"}}", value.concat());
        let answer = format!("{{\"name\": \"find\", \"parameters\": {arguments}}}");
        let mut whole = String::new();
        for segment in parse_in(options(CallSyntax::LlamaJson), &answer, &lengths, End::Stop) {
            let Segment::CallArguments(delta) = segment else { continue };
            // A cut inside an escape would leave an odd number of backslashes, or a high surrogate or part of its digits, at the end.
            let slashes = delta.len() - delta.trim_end_matches('\\').len();
            prop_assert!(slashes % 2 == 0, "{:?}", delta);
            let tail = delta.rfind("\\u").map(|start| &delta[start..]);
            if let Some(tail) = tail
                && delta[..delta.len() - tail.len()].chars().rev().take_while(|c| *c == '\\').count() % 2 == 0
            {
                prop_assert!(tail.len() >= 6, "{:?}", delta);
            }
            whole.push_str(&delta);
        }
        prop_assert_eq!(whole, arguments);
    }
}
