//! Text outside calls and reasoning, and the search for what is not text.

use super::{Next, ParserOptions, State, body::Body, reasoning, reasoning::Thinking, sink::Sink};
use crate::{
    call_syntax::CallSyntax,
    parse::{llama_json, tagged},
};

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
    around: Around,
}

/// Where in a text we are. The grammar goes by the same rules, so that both see a call in the same place ([`crate::grammar`]).
#[derive(Debug)]
struct Around {
    /// Nothing but white space on this line so far.
    line_blank: bool,
    newlines: u8,
    /// Open brackets, of either sort.
    depth: u16,
    /// Back quotes in a row.
    ticks: u8,
    /// Inside fenced code, where calls are examples.
    fenced: bool,
}

impl Around {
    const START: Around = Around {
        line_blank: true,
        newlines: 0,
        depth: 0,
        ticks: 0,
        fenced: false,
    };

    /// A call without a marker may begin here.
    fn may_open(&self) -> bool {
        self.line_blank && self.depth == 0 && !self.fenced
    }

    fn push(&mut self, character: char) {
        match character {
            '\n' => {
                self.line_blank = true;
                self.newlines = self.newlines.saturating_add(1);
                if self.newlines > 1 {
                    // A paragraph ends whatever bracket was left open.
                    self.depth = 0;
                }
            }
            ' ' | '\t' | '\r' => {}
            _ => {
                self.line_blank = false;
                self.newlines = 0;
            }
        }
        match character {
            '{' | '[' => self.depth = self.depth.saturating_add(1),
            '}' | ']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        self.ticks = if character == '`' { self.ticks + 1 } else { 0 };
        if self.ticks == 3 {
            self.ticks = 0;
            self.fenced = !self.fenced;
        }
    }
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
            around: Around::START,
        }
    }

    /// After a call or reasoning: white space that comes next is layout.
    pub(super) fn after_layout() -> Prose {
        Prose {
            layout: true,
            ..Prose::at_start()
        }
    }

    /// After `text`, which looked like the head of a call and went out.
    pub(super) fn after(text: &str) -> Prose {
        let mut prose = Prose {
            spoke: true,
            ..Prose::at_start()
        };
        text.chars()
            .for_each(|character| prose.around.push(character));
        prose
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
                // The end of nothing; hidden. White space around it is layout, if there is nothing else.
                self.hold.clear();
                self.lead.clear();
                self.layout |= !self.spoke;
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
            if self.around.may_open() && llama_json::may_open(first, options) {
                let lead = std::mem::take(&mut self.lead);
                let layout = self.layout;
                let lead = (!layout).then_some((lead, self.lead_at));
                let body = Body::bare(first, first_at, lead, options.json_answer);
                return Next::Go(State::Body(Box::new(body)));
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
        self.around.push(character);
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
