//! Text outside calls and reasoning: characters out of bytes, and the search for what is not text.

use super::{Next, ParserOptions, State, body::Body, reasoning, reasoning::Thinking, sink::Sink};
use crate::{
    call_syntax::CallSyntax,
    parse::{llama_json, tagged},
};

/// Characters out of bytes that may end anywhere. Bytes that can be no character become one replacement character a sequence, as everywhere
/// (Unicode 16, section 3.9, "substitution of maximal subparts"); a sequence that was never finished is dropped.
#[derive(Debug, Default)]
pub(super) struct Utf8 {
    pending: Vec<u8>,
}

impl Utf8 {
    pub(super) fn push(&mut self, bytes: &[u8], mut take: impl FnMut(char)) {
        self.pending.extend_from_slice(bytes);
        let mut rest = self.pending.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    text.chars().for_each(&mut take);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (valid, bad) = rest.split_at(error.valid_up_to());
                    String::from_utf8_lossy(valid).chars().for_each(&mut take);
                    rest = bad;
                    let Some(length) = error.error_len() else {
                        break;
                    };
                    take(char::REPLACEMENT_CHARACTER);
                    rest = &rest[length..];
                }
            }
        }
        self.pending = rest.to_vec();
    }
}

/// Text. Holds back a beginning of a marker, and the white space before the first word.
#[derive(Debug)]
pub(super) struct Prose {
    /// White space that nothing has followed yet, and where it stands.
    lead: String,
    lead_at: usize,
    /// The lead is layout around a call or reasoning, and dropped.
    layout: bool,
    /// A beginning of a marker, and where it stands. At most one marker long.
    hold: String,
    hold_at: usize,
    spoke: bool,
    /// Nothing but white space on this line so far.
    line_blank: bool,
    /// Back quotes at the start of the line, so far.
    ticks: u8,
    /// Inside a fenced code block, where calls are examples.
    fenced: bool,
}

impl Prose {
    pub(super) fn at_start() -> Prose {
        Prose {
            lead: String::new(),
            lead_at: 0,
            layout: false,
            hold: String::new(),
            hold_at: 0,
            spoke: false,
            line_blank: true,
            ticks: 0,
            fenced: false,
        }
    }

    /// After a call or reasoning: white space that comes next is layout.
    pub(super) fn after_layout() -> Prose {
        Prose {
            layout: true,
            ..Prose::at_start()
        }
    }

    /// After something that looked like the head of a call: it went out as text, and its line is no place for a call.
    pub(super) fn in_line() -> Prose {
        Prose {
            spoke: true,
            line_blank: false,
            ..Prose::at_start()
        }
    }

    pub(super) fn spoke(&self) -> bool {
        self.spoke
    }

    pub(super) fn push(
        &mut self,
        character: char,
        at: usize,
        spoke: bool,
        options: &ParserOptions,
        sink: &mut Sink,
    ) -> Next {
        if self.hold.is_empty() {
            self.hold_at = at;
        }
        self.hold.push(character);
        let markers = Markers {
            syntax: options.syntax,
            thinking: !spoke && !self.spoke,
        };
        loop {
            if self.hold == llama_json::END && markers.begin_with(&self.hold) {
                // The end of nothing; hidden.
                self.hold.clear();
                return Next::Stay;
            }
            if let Some(state) = markers.whole(&self.hold, at + character.len_utf8(), false) {
                return Next::Go(state);
            }
            if self.hold.is_empty() || markers.begin_with(&self.hold) {
                return Next::Stay;
            }
            let first = self.hold.remove(0);
            let first_at = self.hold_at;
            self.hold_at += first.len_utf8();
            // Only the newest character can open a call: the others are in a marker, and no marker holds a bracket.
            if self.line_blank
                && !self.fenced
                && options.untagged
                && llama_json::may_open(first, options)
            {
                let lead = std::mem::take(&mut self.lead);
                let layout = self.layout;
                return Next::Go(State::Body(Box::new(Body::bare(
                    first,
                    first_at,
                    (!layout).then_some((lead, self.lead_at)),
                ))));
            }
            self.emit(first, first_at, sink);
        }
    }

    pub(super) fn control(
        &mut self,
        name: &str,
        at: usize,
        options: &ParserOptions,
        sink: &mut Sink,
    ) -> Next {
        let hold = std::mem::take(&mut self.hold);
        let mut hold_at = self.hold_at;
        for character in hold.chars() {
            self.emit(character, hold_at, sink);
            hold_at += character.len_utf8();
        }
        let markers = Markers {
            syntax: options.syntax,
            thinking: true,
        };
        markers.whole(name, at, true).map_or(Next::Stay, Next::Go)
    }

    pub(super) fn finish(mut self, sink: &mut Sink) {
        let (hold, mut at) = (std::mem::take(&mut self.hold), self.hold_at);
        for character in hold.chars() {
            self.emit(character, at, sink);
            at += character.len_utf8();
        }
    }

    fn emit(&mut self, character: char, at: usize, sink: &mut Sink) {
        if character == '\n' {
            self.line_blank = true;
            self.ticks = 0;
        } else if character == '`' && (self.line_blank || self.ticks > 0) {
            self.line_blank = false;
            self.ticks += 1;
            if self.ticks == 3 {
                self.fenced = !self.fenced;
                self.ticks = 0;
            }
        } else if !character.is_whitespace() {
            self.line_blank = false;
            self.ticks = 0;
        }
        if !self.spoke && character.is_whitespace() {
            if self.lead.is_empty() {
                self.lead_at = at;
            }
            self.lead.push(character);
            return;
        }
        if !self.spoke {
            self.spoke = true;
            if !self.layout {
                sink.text(&self.lead, self.lead_at);
            }
            self.lead = String::new();
        }
        sink.text(character.encode_utf8(&mut [0; 4]), at);
    }
}

/// What is looked for in text.
struct Markers {
    syntax: CallSyntax,
    /// Nothing was said yet.
    thinking: bool,
}

impl Markers {
    fn all(&self) -> impl Iterator<Item = &'static str> {
        let calls: &[&str] = match self.syntax {
            CallSyntax::LlamaJson | CallSyntax::LlamaPythonic => &llama_json::MARKERS,
            CallSyntax::Hermes | CallSyntax::SmolLm2 => &tagged::MARKERS,
        };
        let thinking = self.thinking.then_some(reasoning::OPEN);
        calls.iter().copied().chain(thinking)
    }

    fn begin_with(&self, hold: &str) -> bool {
        self.all().any(|marker| marker.starts_with(hold))
    }

    /// The state behind the marker `hold`, which ends at `end`, if it is one.
    fn whole(&self, hold: &str, end: usize, control: bool) -> Option<State> {
        let marker = self.all().find(|marker| *marker == hold)?;
        Some(match marker {
            reasoning::OPEN => State::Thinking(Thinking::default()),
            llama_json::END => return None,
            marker => State::Body(Box::new(Body::marked(marker, end, control))),
        })
    }
}
