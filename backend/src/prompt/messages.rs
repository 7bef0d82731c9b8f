//! Turns as the messages a template gets, shaped by its [`Habits`]. Every string of the request passes the [`Guard`] here and nowhere else.

use std::borrow::Cow;

use minijinja::Value;

use super::{
    PromptError,
    conversation::{Call, Conversation, Turn},
    escape::Guard,
    families::{self, NO_RESULT},
    habits::{Arguments, Habits},
    python,
};
use crate::call_syntax::CallSyntax;

/// One message of a template's `messages`.
#[derive(Clone, Debug)]
pub(super) struct Message<'a> {
    pub(super) role: &'static str,
    /// Guarded where it is the request's, bare where it is ours.
    pub(super) content: Cow<'a, str>,
    pub(super) reasoning: Option<Cow<'a, str>>,
    /// Entries of `tool_calls`; none: no such key, for templates take an empty list for a call.
    pub(super) calls: Vec<Value>,
    /// Of a result: the call's id and name.
    pub(super) answers: Option<(Cow<'a, str>, Cow<'a, str>)>,
    /// Bytes of the arguments in `calls`.
    pub(super) arguments: usize,
}

/// An entry of `tool_calls`.
pub(super) fn call(id: &str, name: &str, arguments: Value) -> Value {
    let function = Value::from_pairs([("name", Value::from(name)), ("arguments", arguments)]);
    Value::from_pairs([
        ("id", Value::from(id)),
        ("type", Value::from("function")),
        ("function", function),
    ])
}

impl<'a> Message<'a> {
    pub(super) fn text(role: &'static str, content: impl Into<Cow<'a, str>>) -> Message<'a> {
        Message {
            role,
            content: content.into(),
            reasoning: None,
            calls: Vec::new(),
            answers: None,
            arguments: 0,
        }
    }

    pub(super) fn calls(content: impl Into<Cow<'a, str>>, calls: Vec<Value>) -> Message<'a> {
        Message {
            calls,
            ..Message::text("assistant", content)
        }
    }

    pub(super) fn result(
        role: &'static str,
        id: impl Into<Cow<'a, str>>,
        name: impl Into<Cow<'a, str>>,
        content: impl Into<Cow<'a, str>>,
    ) -> Message<'a> {
        Message {
            answers: Some((id.into(), name.into())),
            ..Message::text(role, content)
        }
    }

    pub(super) fn value(&self) -> Value {
        let mut fields = vec![
            ("role", Value::from(self.role)),
            ("content", Value::from(self.content.as_ref())),
        ];
        if let Some(reasoning) = &self.reasoning {
            fields.push(("reasoning_content", Value::from(reasoning.as_ref())));
        }
        if !self.calls.is_empty() {
            fields.push(("tool_calls", Value::from(self.calls.clone())));
        }
        if let Some((id, name)) = &self.answers {
            fields.push(("tool_call_id", Value::from(id.as_ref())));
            fields.push(("name", Value::from(name.as_ref())));
        }
        Value::from_pairs(fields)
    }

    /// Bytes that go into the template.
    pub(super) fn len(&self) -> usize {
        let reasoning = self.reasoning.as_ref().map_or(0, |text| text.len());
        64 + self.content.len() + reasoning + self.calls.len() * 256 + self.arguments
    }
}

/// Makes messages of turns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape<'a> {
    pub(super) habits: &'a Habits,
    pub(super) guard: &'a Guard,
    pub(super) syntax: CallSyntax,
}

impl Shape<'_> {
    /// `more`: our own addition to the system turn.
    pub(super) fn messages<'a>(
        &self,
        conversation: &'a Conversation,
        more: Option<&str>,
    ) -> Result<Vec<Message<'a>>, PromptError> {
        let mut turns = conversation.turns.as_slice();
        let mut system = String::new();
        if let [Turn::System(text), rest @ ..] = turns {
            system.push_str(&self.guard.escape(text));
            turns = rest;
        }
        if let Some(more) = more {
            if !system.is_empty() {
                system.push_str("\n\n");
            }
            system.push_str(more);
        }
        let mut messages = Vec::with_capacity(turns.len() + 1);
        if !system.is_empty() {
            let role = if self.habits.system { "system" } else { "user" };
            messages.push(Message::text(role, system));
        }
        for turn in turns {
            match turn {
                Turn::System(text) if self.habits.late_system => {
                    messages.push(Message::text("system", self.guard.escape(text)));
                }
                Turn::System(text) | Turn::User(text) => {
                    messages.push(Message::text("user", self.guard.escape(text)));
                }
                Turn::Assistant {
                    reasoning,
                    text,
                    calls,
                } => self.assistant(reasoning, text, calls, &mut messages)?,
            }
        }
        Ok(self.alternate(messages))
    }

    fn assistant<'a>(
        &self,
        reasoning: &'a str,
        text: &'a str,
        calls: &'a [Call],
        messages: &mut Vec<Message<'a>>,
    ) -> Result<(), PromptError> {
        let mut reasoning =
            (self.habits.reasoning && !reasoning.is_empty()).then(|| self.guard.escape(reasoning));
        let text = self.guard.escape(text);
        if calls.is_empty() {
            if !text.is_empty() || reasoning.is_some() {
                messages.push(Message {
                    reasoning,
                    ..Message::text("assistant", text)
                });
            }
            return Ok(());
        }
        let Some(form) = self.habits.calls else {
            let guarded = |text: &str| self.guard.escape(text).into_owned();
            let mut content = text.into_owned();
            if !content.is_empty() {
                content.push('\n');
            }
            content.push_str(&families::write_calls(calls, self.syntax, &guarded)?);
            messages.push(Message {
                reasoning,
                ..Message::text("assistant", content)
            });
            self.results(calls, messages);
            return Ok(());
        };
        let mut text = Some(text).filter(|text| !text.is_empty());
        if !self.habits.text_with_calls
            && let Some(text) = text.take()
        {
            messages.push(Message {
                reasoning: reasoning.take(),
                ..Message::text("assistant", text)
            });
        }
        let group = if self.habits.parallel_calls {
            calls.len()
        } else {
            1
        };
        for calls in calls.chunks(group) {
            let values = calls.iter().map(|call| self.call(call, form));
            let values = values.collect::<Result<_, _>>()?;
            let arguments = calls
                .iter()
                .map(|call| call.arguments.to_string().len())
                .sum();
            messages.push(Message {
                reasoning: reasoning.take(),
                arguments,
                ..Message::calls(text.take().unwrap_or_default(), values)
            });
            self.results(calls, messages);
        }
        Ok(())
    }

    fn call(&self, call: &Call, form: Arguments) -> Result<Value, PromptError> {
        let guarded = |text: &str| self.guard.escape(text).into_owned();
        let arguments = python::value(&families::object_of(&call.arguments), &guarded);
        let arguments = match form {
            Arguments::Object => arguments,
            Arguments::Text => Value::from(families::json(&arguments)?),
        };
        Ok(self::call(
            &guarded(&call.id),
            &guarded(&call.name),
            arguments,
        ))
    }

    fn results<'a>(&self, calls: &'a [Call], messages: &mut Vec<Message<'a>>) {
        let output = |call: &'a Call| call.output.as_deref().unwrap_or(NO_RESULT);
        match self.habits.result_role {
            Some(role) => messages.extend(calls.iter().map(|call| {
                let (id, name) = (self.guard.escape(&call.id), self.guard.escape(&call.name));
                Message::result(role, id, name, self.guard.escape(output(call)))
            })),
            None => {
                let guarded = |text: &str| self.guard.escape(text).into_owned();
                let text = families::write_results(calls.iter().map(output), &guarded);
                messages.push(Message::text("user", text));
            }
        }
    }

    /// Joins neighbours of a role where the template takes only one.
    fn alternate<'a>(&self, messages: Vec<Message<'a>>) -> Vec<Message<'a>> {
        let mut joined: Vec<Message<'a>> = Vec::with_capacity(messages.len());
        for message in messages {
            let joins = match message.role {
                "user" => !self.habits.consecutive_users,
                "assistant" => !self.habits.consecutive_assistants && message.calls.is_empty(),
                _ => false,
            };
            match joined.last_mut() {
                Some(last) if joins && last.role == message.role && last.calls.is_empty() => {
                    let content = last.content.to_mut();
                    content.push_str("\n\n");
                    content.push_str(&message.content);
                }
                _ => joined.push(message),
            }
        }
        joined
    }
}

#[cfg(test)]
mod tests;
