//! A call written as an object: `{"name": "f", "parameters": {…}}`, keys in any order, `arguments` as good as `parameters`.

use std::mem;

use super::{
    json_scan::{Scan, Scanned},
    sink::Sink,
};

/// What a call makes of a character.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Flow {
    /// Taken. `begun`: the tool is known and the call was given out.
    More { begun: bool },
    /// Taken, and the call is whole.
    Closed,
    /// Not taken: this is no call.
    Failed,
    /// Not taken: the call was given out already and goes no further.
    Broken,
}

/// How sure it is that an object is a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Sort {
    /// A marker said so; keys that no call has do not matter.
    Marked,
    /// The object itself must show it: a known tool's name, and before that nothing but keys of calls.
    Bare,
    /// As `Bare`, and the arguments must follow the name: the answer may be JSON with a name in it too.
    BesideAnswers,
}

/// Reads one object.
#[derive(Debug)]
pub(super) struct CallObject {
    sort: Sort,
    /// The tool, once it is known.
    name: Option<String>,
    begun: bool,
    step: Step,
    /// The key or the value being read, as far as it is wanted whole.
    raw: String,
    scan: Scan,
    /// Raw arguments that came before the name.
    early: Option<String>,
    arguments_given: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Step {
    KeyOrEnd,
    Key,
    InKey,
    Colon,
    Value(Field),
    InValue(Field),
    AfterValue,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Field {
    Name,
    /// Kept until whole.
    Arguments,
    /// Given out as they come.
    Streamed,
    Other,
}

impl CallObject {
    /// Behind the opening bracket.
    pub(super) fn opened(sort: Sort) -> CallObject {
        CallObject {
            sort,
            name: None,
            begun: false,
            step: Step::KeyOrEnd,
            raw: String::new(),
            scan: Scan::default(),
            early: None,
            arguments_given: false,
        }
    }

    pub(super) fn push(&mut self, character: char, tools: &[String], sink: &mut Sink) -> Flow {
        let more = self.more();
        match self.step {
            Step::InKey => {
                self.raw.push(character);
                if self.scan.push(character) == Scanned::Last {
                    self.step = Step::Colon;
                }
                more
            }
            Step::InValue(field) => self.in_value(field, character, tools, sink),
            _ if character.is_whitespace() => more,
            Step::KeyOrEnd if character == '}' => self.no(),
            Step::KeyOrEnd | Step::Key if character == '"' => {
                self.raw = "\"".to_owned();
                self.scan = Scan::default();
                self.scan.push(character);
                self.step = Step::InKey;
                more
            }
            Step::Colon if character == ':' => match self.field(sink) {
                Some(field) => {
                    self.step = Step::Value(field);
                    self.more()
                }
                None => self.no(),
            },
            Step::Value(field) => self.value(field, character, tools, sink),
            Step::AfterValue if character == ',' => {
                self.step = Step::Key;
                more
            }
            Step::AfterValue if character == '}' && self.begun => {
                if !self.arguments_given {
                    // A call without arguments; said in the form that every client reads.
                    sink.arguments("{}");
                }
                Flow::Closed
            }
            _ => self.no(),
        }
    }

    /// The text is over; gives out what is left of the arguments. Whether the call was given out at all.
    pub(super) fn finish(&mut self, sink: &mut Sink) -> bool {
        if self.begun
            && let Step::InValue(Field::Arguments | Field::Streamed) = self.step
        {
            sink.arguments(&mem::take(&mut self.raw));
        }
        self.begun
    }

    fn more(&self) -> Flow {
        Flow::More { begun: self.begun }
    }

    fn no(&self) -> Flow {
        match self.begun {
            true => Flow::Broken,
            false => Flow::Failed,
        }
    }

    /// Which field the key in `raw` is. `None`: this is no call.
    fn field(&mut self, sink: &mut Sink) -> Option<Field> {
        let key: String = serde_json::from_str(&mem::take(&mut self.raw)).ok()?;
        match key.as_str() {
            "name" if self.name.is_none() => Some(Field::Name),
            "parameters" | "arguments" if self.early.is_none() && !self.arguments_given => {
                self.begin(sink);
                Some(Field::Arguments)
            }
            _ if self.begun || self.sort == Sort::Marked => Some(Field::Other),
            "type" | "id" if self.name.is_none() => Some(Field::Other),
            _ => None,
        }
    }

    /// Gives the call out, if its tool is known.
    fn begin(&mut self, sink: &mut Sink) {
        if let Some(name) = &self.name
            && !self.begun
        {
            sink.call_start(name);
            self.begun = true;
        }
    }

    /// At the first character of a value.
    fn value(&mut self, field: Field, character: char, tools: &[String], sink: &mut Sink) -> Flow {
        let field = match (field, character) {
            (Field::Name, '"') => Field::Name,
            (Field::Name, _) => return self.no(),
            (Field::Arguments, '{' | '[') if self.begun => Field::Streamed,
            (field, _) => field,
        };
        self.scan = Scan::default();
        self.step = Step::InValue(field);
        self.in_value(field, character, tools, sink)
    }

    fn in_value(
        &mut self,
        field: Field,
        character: char,
        tools: &[String],
        sink: &mut Sink,
    ) -> Flow {
        let scanned = self.scan.push(character);
        if scanned != Scanned::Past && field != Field::Other {
            self.raw.push(character);
        }
        match scanned {
            Scanned::Inside => {
                if field == Field::Streamed && self.scan.may_cut() {
                    sink.arguments(&mem::take(&mut self.raw));
                }
                // A name that no tool begins with: not held any longer.
                let hopeless = field == Field::Name
                    && !self.raw.contains('\\')
                    && !tools.iter().any(|tool| tool.starts_with(&self.raw[1..]));
                match hopeless {
                    true => {
                        self.raw.pop();
                        self.no()
                    }
                    false => self.more(),
                }
            }
            Scanned::Last => match self.whole(field, tools, sink) {
                true => {
                    self.step = Step::AfterValue;
                    self.more()
                }
                false => self.no(),
            },
            Scanned::Past => {
                if !self.whole(field, tools, sink) {
                    return self.no();
                }
                self.step = Step::AfterValue;
                self.push(character, tools, sink)
            }
        }
    }

    /// A value is whole. `false`: this is no call.
    fn whole(&mut self, field: Field, tools: &[String], sink: &mut Sink) -> bool {
        let raw = mem::take(&mut self.raw);
        match field {
            Field::Name => {
                let Ok(name) = serde_json::from_str::<String>(&raw) else {
                    return false;
                };
                if !tools.contains(&name) {
                    return false;
                }
                self.name = Some(name);
                if self.sort != Sort::BesideAnswers || self.early.is_some() {
                    self.begin(sink);
                }
                if let Some(early) = self.early.take() {
                    self.give(&early, sink);
                }
            }
            Field::Arguments if self.begun => self.give(&raw, sink),
            Field::Arguments => self.early = Some(raw),
            Field::Streamed => {
                sink.arguments(&raw);
                self.arguments_given = true;
            }
            Field::Other => {}
        }
        true
    }

    /// Gives out whole arguments. A string that holds an object is that object, as older Llamas write it; anything else stays what it is.
    fn give(&mut self, raw: &str, sink: &mut Sink) {
        self.arguments_given = true;
        let inner = serde_json::from_str::<String>(raw).ok().filter(|inner| {
            inner.trim_start().starts_with('{')
                && serde_json::from_str::<serde::de::IgnoredAny>(inner).is_ok()
        });
        match inner {
            Some(inner) => sink.arguments(inner.trim()),
            None if raw == "null" => sink.arguments("{}"),
            None => sink.arguments(raw),
        }
    }
}
