//! What comes after the head of calls: one call after the other, in a list or with separators, until something else comes.
//!
//! Everything since the head is held until a call is certain: its tool is known. From then on nothing is held; what turns out not to be a call before
//! that goes out as text.

use super::{
    End, Next, ParserOptions, State,
    calls::{CallObject, Flow, Sort},
    llama_json,
    pythonic::PythonCall,
    sink::Sink,
    tagged,
    text::Prose,
};

#[derive(Debug)]
pub(super) struct Body {
    opening: Opening,
    /// White space before a head without a marker, and where it stands.
    lead: Option<(String, usize)>,
    /// Characters that were not given out, and where they stand.
    held: String,
    held_at: usize,
    /// A beginning of a marker between calls; a part of `held` too.
    mark: String,
    /// Inside `[ … ]`.
    list: bool,
    /// A call was given out, or there was an empty list: separators are layout.
    called: bool,
    sort: Sort,
    form: Form,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Opening {
    /// `<tool_call>`
    Tag,
    /// `<|python_tag|>`, `<|python_start|>`
    Python,
    /// The first bracket itself.
    Bare,
}

#[derive(Debug)]
enum Form {
    /// Before a call, or between two.
    Open,
    Object(CallObject),
    Python(PythonCall),
}

impl Body {
    /// Behind the marker `marker`, which ends at `end`. A marker that was a control token never becomes text, nor do those of Llama.
    pub(super) fn marked(marker: &str, end: usize, control: bool) -> Body {
        let opening = match marker {
            tagged::OPEN => Opening::Tag,
            _ => Opening::Python,
        };
        let held = match opening {
            Opening::Tag if !control => marker,
            _ => "",
        };
        Body {
            opening,
            lead: None,
            held: held.to_owned(),
            held_at: end - held.len(),
            mark: String::new(),
            list: false,
            called: false,
            sort: Sort::Marked,
            form: Form::Open,
        }
    }

    /// At `first`, a bracket at `at` that may open a call, after the white space `lead`.
    /// `json_answer`: the answer may be JSON too, so that a tool's name alone is no proof.
    pub(super) fn bare(
        first: char,
        at: usize,
        lead: Option<(String, usize)>,
        json_answer: bool,
    ) -> Body {
        let sort = match json_answer {
            true => Sort::BesideAnswers,
            false => Sort::Bare,
        };
        Body {
            opening: Opening::Bare,
            lead,
            held: first.to_string(),
            held_at: at,
            mark: String::new(),
            list: first == '[',
            called: false,
            sort,
            form: match first {
                '{' => Form::Object(CallObject::opened(sort)),
                _ => Form::Open,
            },
        }
    }

    pub(super) fn push(
        &mut self,
        character: char,
        at: usize,
        options: &ParserOptions,
        sink: &mut Sink,
    ) -> Next {
        let flow = match &mut self.form {
            Form::Open => return self.open(character, at, options, sink),
            Form::Object(object) => object.push(character, &options.tools, sink),
            Form::Python(call) => call.push(character, &options.tools, sink),
        };
        match flow {
            Flow::More { begun: false } => self.hold(character, at),
            Flow::More { begun: true } => self.release(),
            Flow::Closed => {
                sink.call_end();
                self.release();
                self.form = Form::Open;
            }
            Flow::Failed => return self.fail(sink),
            Flow::Broken => {
                sink.call_end();
                return Next::Again(State::Prose(Prose::after_layout()));
            }
        }
        Next::Stay
    }

    pub(super) fn control(&mut self, name: &str, at: usize, sink: &mut Sink) -> Next {
        let state = match name {
            tagged::CLOSE | llama_json::END => State::Prose(Prose::after_layout()),
            tagged::OPEN | llama_json::TAG | llama_json::START => {
                State::Body(Box::new(Body::marked(name, at, true)))
            }
            _ => return Next::Stay,
        };
        self.close(End::Stop, sink);
        Next::Go(state)
    }

    pub(super) fn finish(mut self, end: End, sink: &mut Sink) {
        self.close(end, sink);
    }

    /// Before a call, or between two.
    fn open(
        &mut self,
        character: char,
        at: usize,
        options: &ParserOptions,
        sink: &mut Sink,
    ) -> Next {
        if !self.mark.is_empty() || character == '<' {
            return self.marker(character, at, sink);
        }
        let tools = &options.tools;
        match character {
            '{' => self.form = Form::Object(CallObject::opened(self.sort)),
            '[' if !self.list => self.list = true,
            ']' if self.list && (self.called || self.opening == Opening::Tag) => {
                self.list = false;
                if !self.called {
                    // An empty list says that no tool is needed; it is no text.
                    self.called = true;
                }
                self.release();
                return Next::Stay;
            }
            ',' | ';' if self.called => {}
            space if space.is_whitespace() => {}
            letter
                if (self.list || self.opening != Opening::Bare)
                    && (letter.is_ascii_alphabetic() || letter == '_') =>
            {
                let mut call = PythonCall::default();
                let Flow::More { begun: false } = call.push(letter, tools, sink) else {
                    return self.fail(sink);
                };
                self.form = Form::Python(call);
            }
            _ => return self.fail(sink),
        }
        self.hold(character, at);
        Next::Stay
    }

    /// At a marker between calls, or what may become one.
    fn marker(&mut self, character: char, at: usize, sink: &mut Sink) -> Next {
        self.mark.push(character);
        let markers: &[&str] = match self.opening {
            Opening::Tag => &[tagged::CLOSE, tagged::OPEN],
            Opening::Python | Opening::Bare => &llama_json::MARKERS,
        };
        if !markers.iter().any(|marker| marker.starts_with(&self.mark)) {
            return self.fail(sink);
        }
        self.hold(character, at);
        if !markers.contains(&self.mark.as_str()) {
            return Next::Stay;
        }
        Next::Go(match self.mark.as_str() {
            tagged::CLOSE | llama_json::END => State::Prose(Prose::after_layout()),
            marker => {
                let end = at + character.len_utf8();
                State::Body(Box::new(Body::marked(marker, end, false)))
            }
        })
    }

    fn hold(&mut self, character: char, at: usize) {
        if self.held.is_empty() {
            self.held_at = at;
        }
        self.held.push(character);
    }

    /// What is held is part of a call.
    fn release(&mut self) {
        self.called = true;
        self.lead = None;
        self.held.clear();
    }

    /// What is held is text, and so is the character at hand.
    fn fail(&mut self, sink: &mut Sink) -> Next {
        let text = self.held_as_text(sink);
        Next::Again(State::Prose(match text.is_empty() {
            true => Prose::after_layout(),
            false => Prose::after(text),
        }))
    }

    /// Gives out what is held, layout apart.
    fn held_as_text(&mut self, sink: &mut Sink) -> &str {
        if let Some((lead, at)) = self.lead.take() {
            sink.text(&lead, at);
        }
        let text = match self.called || self.opening == Opening::Python {
            true => self.held.trim_start(),
            false => &self.held,
        };
        sink.text(text, self.held_at + self.held.len() - text.len());
        text
    }

    fn close(&mut self, end: End, sink: &mut Sink) {
        let begun = match &mut self.form {
            Form::Open if self.called => return,
            Form::Open => false,
            Form::Object(object) => object.finish(sink),
            Form::Python(call) => call.begun(),
        };
        match (begun, end) {
            (false, _) => {
                self.held_as_text(sink);
            }
            (true, End::Stop) => sink.call_end(),
            (true, End::Cut) => {}
        }
    }
}
