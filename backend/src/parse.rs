//! What a model writes, taken apart as it comes: text for the user, reasoning, and calls with their arguments.
//!
//! ```text
//! tokens → characters ─┬─ text (text), held back only while it may still be a marker or the head of a call
//!                      ├─ <think> … </think>            (reasoning)
//!                      └─ <tool_call> … , {"name": …} , [f(a=1)] (tagged, llama_json, pythonic; calls)
//! ```
//!
//! Invariants: every character is looked at once, so that the segments do not depend on how the text was cut into tokens; what turns out not to be a
//! call is text, as it was written; arguments are the model's own bytes, cut neither inside a character nor inside a JSON escape, and no bracket is
//! ever added to a call that was cut off; a control token never becomes text.
//!
//! Sources of the syntaxes: see [`CallSyntax`]. Tools that are not offered are not called: their text stays text.

mod body;
mod calls;
mod json_scan;
mod llama_json;
mod python_value;
mod pythonic;
mod reasoning;
mod sink;
mod tagged;
#[cfg(test)]
pub(crate) mod tests;
mod text;

use std::sync::Arc;

pub use self::sink::Segment;
use self::{body::Body, reasoning::Thinking, sink::Sink, text::Prose};
use crate::call_syntax::CallSyntax;

/// What a parser must know of the request and the model.
#[derive(Clone, Debug)]
pub struct ParserOptions {
    pub syntax: CallSyntax,
    /// Names of the tools that may be called.
    pub tools: Arc<[String]>,
    /// The answer is JSON by `text.format`: what looks like a call without a marker is one only from its arguments on.
    pub json_answer: bool,
    /// The prompt ends inside `<think>`.
    pub thinking: bool,
}

/// One token, as text.
#[derive(Clone, Copy, Debug)]
pub enum Piece<'a> {
    /// Text of ordinary tokens, whole characters: what [`crate::tokenizer::Detokenizer`] gives out.
    Text(&'a str),
    /// A control token, by its name: `<|python_tag|>`.
    Control(&'a str),
}

/// How the text ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// The model was done.
    Stop,
    /// A limit cut it: what is open stays open.
    Cut,
}

/// The parser of one answer.
#[derive(Debug)]
pub struct Parser {
    options: ParserOptions,
    state: State,
    /// Something was said already; `<think>` is only a marker before that.
    spoke: bool,
    /// Decoded bytes so far: where the next character stands.
    at: usize,
    sink: Sink,
}

#[derive(Debug)]
enum State {
    Prose(Prose),
    Thinking(Thinking),
    Body(Box<Body>),
}

/// What a state makes of a character.
#[derive(Debug)]
enum Next {
    Stay,
    /// A marker was read, and belongs to nobody.
    Go(State),
    /// The state is over and did not take the character.
    Again(State),
}

impl Parser {
    pub fn new(options: ParserOptions) -> Parser {
        let state = match options.thinking {
            true => State::Thinking(Thinking::default()),
            false => State::Prose(Prose::at_start()),
        };
        Parser {
            options,
            state,
            spoke: false,
            at: 0,
            sink: Sink::default(),
        }
    }

    /// Inside `<think>`: tokens are reasoning.
    pub fn is_thinking(&self) -> bool {
        matches!(self.state, State::Thinking(_))
    }

    /// Decoded bytes so far: where the text of the next token begins, in the terms of [`Segment::Text`].
    pub fn position(&self) -> usize {
        self.at
    }

    /// Takes what a token says; appends to `out` what is certain now.
    pub fn push(&mut self, piece: Piece<'_>, out: &mut Vec<Segment>) {
        match piece {
            Piece::Text(text) => text.chars().for_each(|character| self.character(character)),
            Piece::Control(name) => self.control(name),
        }
        self.sink.drain(out);
    }

    /// The text is over. A call is closed by [`Segment::CallEnd`] unless it was cut.
    pub fn finish(&mut self, end: End, out: &mut Vec<Segment>) {
        let state = std::mem::replace(&mut self.state, State::Prose(Prose::at_start()));
        match state {
            State::Prose(prose) => prose.finish(&mut self.sink),
            State::Thinking(thinking) => thinking.finish(&mut self.sink),
            State::Body(body) => body.finish(end, &mut self.sink),
        }
        self.sink.drain(out);
    }

    fn character(&mut self, character: char) {
        let at = self.at;
        self.at += character.len_utf8();
        loop {
            let next = match &mut self.state {
                State::Prose(prose) => {
                    let next = prose.push(character, at, self.spoke, &self.options, &mut self.sink);
                    self.spoke |= prose.spoke();
                    next
                }
                State::Thinking(thinking) => thinking.push(character, &mut self.sink),
                State::Body(body) => body.push(character, at, &self.options, &mut self.sink),
            };
            match next {
                Next::Stay => return,
                Next::Go(state) => {
                    self.state = state;
                    return;
                }
                // Ends: a state gives up a character only to prose, and prose takes every character.
                Next::Again(state) => self.state = state,
            }
        }
    }

    fn control(&mut self, name: &str) {
        let next = match &mut self.state {
            State::Prose(prose) => prose.control(name, self.at, &self.options, &mut self.sink),
            State::Thinking(thinking) => thinking.control(name, &mut self.sink),
            State::Body(body) => body.control(name, self.at, &mut self.sink),
        };
        match next {
            Next::Stay => {}
            Next::Go(state) => self.state = state,
            Next::Again(state) => {
                self.state = state;
                self.control(name);
            }
        }
    }
}
