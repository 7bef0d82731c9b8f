//! Free text with an eye on it: [`Watch`] notices the moment when an answer's text turns into a call, so that the grammar can take over there.
//!
//! With a marker (`<tool_call>`) that is behind the marker, wherever it stands. Llama's calls have none: there a call has begun when a line, outside of
//! code fences and of other brackets, reads `{"name": "f"` with `f` one of the request's tools, spaces as one likes, `"type": "function", ` possibly
//! first; any other JSON is text. The parser of the output should take for calls what is seen here, and no more. Where calls are forbidden, the token
//! that would complete such a beginning is not allowed.

use super::{calls, tools::ToolSet, vocabulary::Vocabulary};
use crate::call_syntax::CallSyntax;

/// What a request's text is watched for.
#[derive(Debug)]
pub(crate) struct WatchFor {
    syntax: CallSyntax,
    /// As JSON spells them, without quotes, sorted; and whether each may be called.
    names: Vec<(Vec<u8>, bool)>,
    /// May a call come after the marker?
    marker_allowed: bool,
    /// The control token that begins a call, if the model has one.
    call_token: Option<u32>,
    /// Tokens that can complete the beginning of a call, with their bytes.
    closing: Vec<u32>,
    /// Of `closing`, those that can hold all of it.
    whole: Vec<u32>,
}

/// Where in a text we are. Small, so that trying a token out is cheap.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Watch {
    /// Bytes of the marker seen.
    marker: usize,
    line_start: bool,
    newlines: u8,
    /// Open brackets.
    depth: u16,
    /// Backticks in a row.
    ticks: u8,
    fenced: bool,
    /// How far each of [`PATTERNS`] has come.
    at: [Option<Place>; 3],
}

/// How far a pattern has matched.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Place {
    part: usize,
    /// Bytes of this part seen.
    seen: usize,
    /// The names that begin with what was seen, in a part that is a name.
    low: usize,
    high: usize,
}

/// A call has begun.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Begun {
    /// The tool, as an index to [`WatchFor::name`], where its name is what showed it.
    pub(crate) tool: Option<usize>,
    pub(crate) allowed: bool,
}

#[derive(Clone, Copy)]
enum Part {
    Text(&'static [u8]),
    Space,
    /// One of the names, and the byte behind it.
    Name(u8),
}

const JSON_CALL: &[Part] = &[
    Part::Text(b"{"),
    Part::Space,
    Part::Text(b"\"name\""),
    Part::Space,
    Part::Text(b":"),
    Part::Space,
    Part::Text(b"\""),
    Part::Name(b'"'),
];
const TYPED_JSON_CALL: &[Part] = &[
    Part::Text(b"{"),
    Part::Space,
    Part::Text(b"\"type\""),
    Part::Space,
    Part::Text(b":"),
    Part::Space,
    Part::Text(b"\"function\""),
    Part::Space,
    Part::Text(b","),
    Part::Space,
    Part::Text(b"\"name\""),
    Part::Space,
    Part::Text(b":"),
    Part::Space,
    Part::Text(b"\""),
    Part::Name(b'"'),
];
/// Never forced, and forbidden where calls are.
const PYTHONIC_CALL: &[Part] = &[Part::Text(b"["), Part::Space, Part::Name(b'(')];
const PATTERNS: [&[Part]; 3] = [JSON_CALL, TYPED_JSON_CALL, PYTHONIC_CALL];

impl Watch {
    pub(crate) const START: Watch = Watch {
        marker: 0,
        line_start: true,
        newlines: 0,
        depth: 0,
        ticks: 0,
        fenced: false,
        at: [None; 3],
    };
}

impl WatchFor {
    /// `tools`: all of the request, known to the parser; `allowed`: those that may be called.
    pub(crate) fn new(
        syntax: CallSyntax,
        tools: &ToolSet,
        allowed: impl Fn(&str) -> bool,
        vocabulary: &Vocabulary,
    ) -> Self {
        let spelled = |name: &str| {
            let quoted = serde_json::Value::from(name).to_string();
            quoted.as_bytes()[1..quoted.len() - 1].to_vec()
        };
        let mut names: Vec<(Vec<u8>, bool)> = tools
            .iter()
            .map(|tool| (spelled(&tool.name), allowed(&tool.name)))
            .collect();
        names.sort();
        let (first, last): (u8, &[u8]) = match syntax.marker() {
            Some(_) => (b'<', b">"),
            None if syntax == CallSyntax::LlamaPythonic => (b'{', b"\"("),
            None => (b'{', b"\""),
        };
        let ends = |bytes: &[u8]| bytes.iter().any(|byte| last.contains(byte));
        let closing: Vec<u32> = (0u32..)
            .zip(vocabulary.bytes.iter().zip(&vocabulary.control))
            .filter(|(_, (bytes, control))| !**control && ends(bytes))
            .map(|(token, _)| token)
            .collect();
        let begins = |token: &u32| {
            let bytes = &vocabulary.bytes[*token as usize];
            bytes.contains(&first) || bytes.contains(&b'[')
        };
        WatchFor {
            syntax,
            marker_allowed: names.iter().any(|(_, allowed)| *allowed),
            names,
            call_token: vocabulary.control_token(syntax.marker().unwrap_or("<|python_tag|>")),
            whole: closing.iter().copied().filter(begins).collect(),
            closing,
        }
    }

    /// The control token after which a call comes; and may one come?
    pub(crate) fn call_token(&self) -> Option<(u32, bool)> {
        self.call_token.map(|token| (token, self.marker_allowed))
    }

    /// The name of a tool that [`Begun`] told, as JSON spells it.
    pub(crate) fn name(&self, tool: usize) -> &[u8] {
        &self.names[tool].0
    }

    /// Goes over a token's bytes. `Some`: a call has begun, and these bytes of the token are already part of it.
    pub(crate) fn read<'a>(&self, watch: &mut Watch, bytes: &'a [u8]) -> Option<(Begun, &'a [u8])> {
        for (index, &byte) in bytes.iter().enumerate() {
            if let Some(begun) = self.step(watch, byte) {
                return Some((begun, &bytes[index + 1..]));
            }
        }
        None
    }

    /// Tokens that may not come now: they would begin a call that is not allowed, or begin one and go on in a way no call does.
    pub(crate) fn forbidden(&self, watch: &Watch, vocabulary: &Vocabulary) -> Vec<u32> {
        let waiting = watch.marker > 0 || watch.at.iter().any(Option::is_some);
        let candidates = if waiting { &self.closing } else { &self.whole };
        let continuations = calls::continuations(self.syntax);
        let wrong = |token: &u32| {
            let mut watch = *watch;
            match self.read(&mut watch, &vocabulary.bytes[*token as usize]) {
                None => false,
                Some((begun, rest)) => {
                    let goes_on = |text: &&str| text.as_bytes().starts_with(rest);
                    !begun.allowed || !continuations.iter().any(goes_on)
                }
            }
        };
        let mut forbidden: Vec<u32> = candidates.iter().copied().filter(wrong).collect();
        if let Some((token, false)) = self.call_token() {
            forbidden.push(token);
        }
        forbidden
    }

    fn step(&self, watch: &mut Watch, byte: u8) -> Option<Begun> {
        if let Some(marker) = self.syntax.marker() {
            watch.marker = advance_marker(marker.as_bytes(), watch.marker, byte);
            if watch.marker < marker.len() {
                return None;
            }
            watch.marker = 0;
            return Some(Begun {
                tool: None,
                allowed: self.marker_allowed,
            });
        }
        let mut begun = None;
        for (pattern, place) in PATTERNS.into_iter().zip(&mut watch.at) {
            if let Some(at) = *place {
                match self.advance(pattern, at, byte) {
                    Advanced::Lost => *place = None,
                    Advanced::To(at) => *place = Some(at),
                    Advanced::Name(tool) => {
                        *place = None;
                        begun = Some(tool);
                    }
                }
            }
        }
        if watch.line_start && watch.depth == 0 && !watch.fenced {
            self.open(watch, byte);
        }
        look_around(watch, byte);
        let tool = begun?;
        let allowed = self.names[tool].1;
        // Where calls may come, one in the pythonic way is the parser's to read.
        let pythonic = byte == b'(';
        (!allowed || !pythonic).then_some(Begun {
            tool: Some(tool),
            allowed,
        })
    }

    /// Starts the patterns that this byte begins.
    fn open(&self, watch: &mut Watch, byte: u8) {
        let begin = Some(Place {
            part: 1,
            seen: 0,
            low: 0,
            high: self.names.len(),
        });
        match byte {
            b'{' => (watch.at[0], watch.at[1]) = (begin, begin),
            b'[' if self.syntax == CallSyntax::LlamaPythonic => watch.at[2] = begin,
            _ => {}
        }
    }

    fn advance(&self, pattern: &[Part], mut place: Place, byte: u8) -> Advanced {
        loop {
            match pattern[place.part] {
                Part::Space if byte.is_ascii_whitespace() => return Advanced::To(place),
                Part::Space => place.part += 1,
                Part::Text(text) => {
                    if text[place.seen] != byte {
                        return Advanced::Lost;
                    }
                    place.seen += 1;
                    if place.seen == text.len() {
                        (place.part, place.seen) = (place.part + 1, 0);
                    }
                    return Advanced::To(place);
                }
                Part::Name(end) => return self.advance_name(place, end, byte),
            }
        }
    }

    /// Narrows the names down to those that go on with `byte`.
    fn advance_name(&self, mut place: Place, end: u8, byte: u8) -> Advanced {
        let names = &self.names[place.low..place.high];
        if byte == end {
            // Sorted, so the name that ends here is the first.
            return match names.first() {
                Some((name, _)) if name.len() == place.seen => Advanced::Name(place.low),
                _ => Advanced::Lost,
            };
        }
        let at = |name: &(Vec<u8>, bool)| name.0.get(place.seen).copied();
        let low = names.partition_point(|name| at(name) < Some(byte));
        let high = names.partition_point(|name| at(name) <= Some(byte));
        if low == high {
            return Advanced::Lost;
        }
        (place.low, place.high) = (place.low + low, place.low + high);
        place.seen += 1;
        Advanced::To(place)
    }
}

enum Advanced {
    Lost,
    To(Place),
    Name(usize),
}

/// How much of the marker the text ends with after `byte`, having ended with `seen` bytes of it. Markers begin with a byte that comes only once in them.
fn advance_marker(marker: &[u8], seen: usize, byte: u8) -> usize {
    if marker[seen] == byte {
        seen + 1
    } else {
        usize::from(marker[0] == byte)
    }
}

/// Keeps track of lines, brackets and code fences.
fn look_around(watch: &mut Watch, byte: u8) {
    match byte {
        b'\n' => {
            watch.line_start = true;
            watch.newlines = watch.newlines.saturating_add(1);
            if watch.newlines > 1 {
                // A paragraph ends whatever bracket was left open.
                watch.depth = 0;
            }
        }
        b' ' | b'\t' | b'\r' => {}
        _ => {
            watch.line_start = false;
            watch.newlines = 0;
        }
    }
    match byte {
        b'{' | b'[' => watch.depth = watch.depth.saturating_add(1),
        b'}' | b']' => watch.depth = watch.depth.saturating_sub(1),
        _ => {}
    }
    if byte == b'`' {
        watch.ticks += 1;
        if watch.ticks == 3 {
            watch.ticks = 0;
            watch.fenced = !watch.fenced;
        }
    } else {
        watch.ticks = 0;
    }
}
