//! `<think> … </think>`: what the model tells itself. White space around the markers is layout.

use super::{Next, State, sink::Sink, text::Prose};

pub(super) const OPEN: &str = "<think>";
pub(super) const CLOSE: &str = "</think>";

/// Inside `<think>`. Holds back a beginning of the closing marker, and white space, which may be the last.
#[derive(Debug, Default)]
pub(super) struct Thinking {
    hold: String,
    space: String,
    spoke: bool,
}

impl Thinking {
    pub(super) fn push(&mut self, character: char, sink: &mut Sink) -> Next {
        self.hold.push(character);
        loop {
            if self.hold == CLOSE {
                return Next::Go(State::Prose(Prose::after_layout()));
            }
            if self.hold.is_empty() || CLOSE.starts_with(&self.hold) {
                return Next::Stay;
            }
            let first = self.hold.remove(0);
            self.emit(first, sink);
        }
    }

    pub(super) fn control(&mut self, name: &str, sink: &mut Sink) -> Next {
        self.release(sink);
        match name {
            CLOSE => Next::Go(State::Prose(Prose::after_layout())),
            _ => Next::Stay,
        }
    }

    pub(super) fn finish(mut self, sink: &mut Sink) {
        self.release(sink);
    }

    fn release(&mut self, sink: &mut Sink) {
        for character in std::mem::take(&mut self.hold).chars() {
            self.emit(character, sink);
        }
    }

    fn emit(&mut self, character: char, sink: &mut Sink) {
        if character.is_whitespace() {
            if self.spoke {
                self.space.push(character);
            }
            return;
        }
        self.spoke = true;
        sink.reasoning(&std::mem::take(&mut self.space));
        sink.reasoning(character.encode_utf8(&mut [0; 4]));
    }
}
