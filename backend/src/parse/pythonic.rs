//! A call written as Python: `f(a='x', b=True)`, keyword arguments only. Each value is converted to JSON when it is whole, and given out then.

use std::mem;

use super::{
    calls::Flow,
    python_value::{self, Scan},
    sink::Sink,
};

/// Reads one call, from the first letter of its name.
#[derive(Debug, Default)]
pub(super) struct PythonCall {
    step: Step,
    begun: bool,
    name: String,
    key: String,
    /// The value being read.
    raw: String,
    scan: Scan,
    /// An argument was given out.
    some: bool,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Step {
    #[default]
    Name,
    /// After the name: the bracket.
    Bracket,
    /// At a keyword, or the end.
    KeyOrEnd,
    Key,
    Equals,
    /// At the first character of a value.
    Value,
    InValue,
}

/// How Llama 3.1 writes calls of its built-in tools: `brave_search.call(query="…")`.
const BUILT_IN: &str = ".call";

impl PythonCall {
    pub(super) fn push(&mut self, character: char, tools: &[String], sink: &mut Sink) -> Flow {
        let more = Flow::More { begun: self.begun };
        match self.step {
            Step::Name if character.is_ascii_alphanumeric() || "_-.".contains(character) => {
                self.name.push(character);
                match tools.iter().any(|tool| may_become(&self.name, tool)) {
                    true => more,
                    false => Flow::Failed,
                }
            }
            Step::Name => {
                self.step = Step::Bracket;
                self.push(character, tools, sink)
            }
            Step::InValue => self.in_value(character, tools, sink),
            Step::Key if character.is_whitespace() => {
                self.step = Step::Equals;
                more
            }
            _ if character.is_whitespace() => more,
            Step::Bracket if character == '(' => {
                if !tools.contains(&self.name) {
                    match self.name.strip_suffix(BUILT_IN) {
                        Some(name) if tools.iter().any(|tool| *tool == *name) => {
                            self.name.truncate(name.len());
                        }
                        _ => return Flow::Failed,
                    }
                }
                self.step = Step::KeyOrEnd;
                more
            }
            Step::KeyOrEnd if character == ')' => self.close(sink),
            Step::KeyOrEnd if character.is_alphabetic() || character == '_' => {
                self.key = character.to_string();
                self.step = Step::Key;
                more
            }
            Step::Key if character.is_alphanumeric() || "_-".contains(character) => {
                self.key.push(character);
                more
            }
            Step::Key | Step::Equals if character == '=' => {
                self.step = Step::Value;
                more
            }
            Step::Value => {
                self.raw.clear();
                self.scan = Scan::default();
                self.step = Step::InValue;
                self.in_value(character, tools, sink)
            }
            _ => self.no(),
        }
    }

    /// Whether the call was given out. Of a value that was cut off nothing was, since it was never converted.
    pub(super) fn begun(&self) -> bool {
        self.begun
    }

    fn no(&self) -> Flow {
        match self.begun {
            true => Flow::Broken,
            false => Flow::Failed,
        }
    }

    fn in_value(&mut self, character: char, tools: &[String], sink: &mut Sink) -> Flow {
        if !self.scan.ends_before(character) {
            self.raw.push(character);
            return Flow::More { begun: self.begun };
        }
        let Some(json) = python_value::to_json(self.raw.trim()) else {
            return self.no();
        };
        self.begin(sink);
        sink.arguments(if self.some { "," } else { "{" });
        sink.arguments(&serde_json::Value::from(mem::take(&mut self.key)).to_string());
        sink.arguments(":");
        sink.arguments(&json);
        self.some = true;
        self.step = Step::KeyOrEnd;
        match character {
            ',' => Flow::More { begun: true },
            _ => self.push(character, tools, sink),
        }
    }

    fn close(&mut self, sink: &mut Sink) -> Flow {
        self.begin(sink);
        sink.arguments(if self.some { "}" } else { "{}" });
        Flow::Closed
    }

    fn begin(&mut self, sink: &mut Sink) {
        if !self.begun {
            sink.call_start(&self.name);
            self.begun = true;
        }
    }
}

/// Whether `name` can still become a call of `tool`.
fn may_become(name: &str, tool: &str) -> bool {
    tool.starts_with(name)
        || name
            .strip_prefix(tool)
            .is_some_and(|rest| BUILT_IN.starts_with(rest))
}
