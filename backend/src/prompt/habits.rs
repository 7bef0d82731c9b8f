//! What a chat template can say, found out by asking it: small conversations are rendered once, when the model is loaded, and the output is searched for
//! what went in. Templates that raise, that lose text and that print roles no model was trained on all show themselves this way.

use minijinja::Value;

use super::{PromptError, RenderOptions, messages::Message, template::Program};
use crate::call_syntax::CallSyntax;

/// A template's abilities. The defaults of a permissive template are `true`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Habits {
    pub(super) system: bool,
    /// A system turn after others stays where it is.
    pub(super) late_system: bool,
    pub(super) consecutive_users: bool,
    pub(super) consecutive_assistants: bool,
    /// `tools` reach the prompt, and calls are asked for in the model's syntax.
    pub(super) tools: bool,
    /// `tool_calls` reach the prompt in the model's syntax, with arguments in this form.
    pub(super) calls: Option<Arguments>,
    /// The role whose messages carry results.
    pub(super) result_role: Option<&'static str>,
    /// Two calls in one turn are possible.
    pub(super) parallel_calls: bool,
    /// The text of a turn with calls is not lost.
    pub(super) text_with_calls: bool,
    /// `reasoning_content` reaches the prompt, at least in the newest turns.
    pub(super) reasoning: bool,
    /// What opens the assistant's turn, where it is the same for every conversation.
    pub(super) opening: Option<String>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Arguments {
    Object,
    /// A string of JSON: templates that print it as it is.
    Text,
}

/// Words that no template says of itself.
const A: &str = "qzalpha";
const B: &str = "qzbravo";
const C: &str = "qzcharlie";
const D: &str = "qzdelta";

struct Probe<'a> {
    program: &'a Program,
}

impl Probe<'_> {
    /// The prompt of a small conversation; `None` if the template refuses it.
    fn render(&self, messages: &[Message<'_>], tools: bool) -> Option<String> {
        let declared = tools.then(probe_tool);
        self.program
            .run(messages, declared.as_ref(), &RenderOptions::default(), true)
            .ok()
    }

    fn shows(&self, messages: &[Message<'_>], words: &[&str]) -> bool {
        self.render(messages, false)
            .is_some_and(|text| in_order(&text, words))
    }
}

fn in_order(text: &str, words: &[&str]) -> bool {
    let mut rest = text;
    words.iter().all(|word| match rest.find(word) {
        Some(at) => {
            rest = &rest[at + word.len()..];
            true
        }
        None => false,
    })
}

fn probe_tool() -> Value {
    let property = Value::from_pairs([("type", Value::from("string"))]);
    let parameters = Value::from_pairs([
        ("type", Value::from("object")),
        ("properties", Value::from_pairs([(C, property)])),
    ]);
    let function = Value::from_pairs([
        ("name", Value::from(A)),
        ("description", Value::from(B)),
        ("parameters", parameters),
    ]);
    Value::from(vec![Value::from_pairs([
        ("type", Value::from("function")),
        ("function", function),
    ])])
}

impl Habits {
    /// `permissive`: the role of results to try where the template's text names none.
    pub(super) fn of(
        program: &Program,
        source: &str,
        syntax: CallSyntax,
        permissive: Option<&'static str>,
    ) -> Result<Habits, PromptError> {
        let probe = Probe { program };
        let user = |text: &'static str| Message::text("user", text);
        let assistant = |text: &'static str| Message::text("assistant", text);
        let system = |text: &'static str| Message::text("system", text);

        // A template that cannot say this is of no use, and its own words say best why.
        let plain = program.run(&[user(A)], None, &RenderOptions::default(), true)?;
        if !plain.contains(A) {
            return Err(PromptError::Template(
                "does not print the text of a user message".to_owned(),
            ));
        }
        let has_system = probe.shows(&[system(A), user(B)], &[A, B]);
        let first = if has_system {
            vec![system(D)]
        } else {
            Vec::new()
        };
        let after = |rest: Vec<Message<'static>>| {
            let mut messages = first.clone();
            messages.extend(rest);
            messages
        };
        let names_tool_role = ["'tool'", "\"tool\""]
            .iter()
            .any(|name| source.contains(name))
            || source.contains("ipython");
        let with_result = |role| {
            let calls = calls(1, Arguments::Object);
            after(vec![
                user(A),
                Message::calls("", calls),
                Message::result(role, "c1", A, D),
            ])
        };
        let result_role = match permissive {
            _ if names_tool_role && probe.shows(&with_result("tool"), &[D]) => Some("tool"),
            _ if names_tool_role
                && probe.shows(
                    &after(vec![
                        user(A),
                        assistant(B),
                        Message::result("tool", "c1", A, D),
                    ]),
                    &[A, B, D],
                ) =>
            {
                Some("tool")
            }
            Some(role)
                if probe.shows(
                    &after(vec![user(A), assistant(B), Message::text(role, D)]),
                    &[A, B, D],
                ) =>
            {
                Some(role)
            }
            _ => None,
        };
        let turn = |count: usize, form: Arguments, text: &'static str| {
            let mut messages = vec![user(A), Message::calls(text, calls(count, form))];
            for _ in 0..count {
                messages.extend(result_role.map(|role| Message::result(role, "c1", B, D)));
            }
            after(messages)
        };
        let calls = [(Arguments::Object, true), (Arguments::Text, false)]
            .into_iter()
            .find(|(form, is_object)| {
                probe
                    .render(&turn(1, *form, ""), false)
                    .is_some_and(|text| {
                        in_order(&text, &[B, C])
                            && (*is_object || !text.contains("\\\""))
                            && !is_escaped(&text)
                    })
            })
            .map(|(form, _)| form);
        // A template of another syntax (its family is not known here, or the configuration says otherwise) would show the model calls that the grammar
        // does not allow and the parser does not find. Then all of it is done in our words.
        let agrees = calls.is_none_or(|form| {
            probe
                .render(&turn(1, form, ""), false)
                .is_some_and(|text| is_written_in(&text, syntax))
        });
        let calls = calls.filter(|_| agrees);
        let form = calls.unwrap_or(Arguments::Object);
        let tools = agrees
            && probe
                .render(&after(vec![user(D)]), true)
                .is_some_and(|text| text.contains(A) && text.contains(C));
        let mut habits = Habits {
            system: has_system,
            late_system: has_system
                && probe.shows(
                    &[system(A), user(B), assistant(C), system(D), user(A)],
                    &[A, B, C, D, A],
                ),
            consecutive_users: probe.shows(&after(vec![user(A), user(B)]), &[A, B]),
            consecutive_assistants: probe.shows(
                &after(vec![user(A), assistant(B), assistant(C), user(A)]),
                &[A, B, C, A],
            ),
            tools,
            calls,
            result_role,
            parallel_calls: calls.is_some()
                && probe.render(&turn(2, form, ""), false).is_some_and(|text| {
                    text.matches(B).count() >= 2 && text.matches(C).count() >= 2
                }),
            text_with_calls: calls.is_some()
                && probe.shows(&turn(1, form, "qztext"), &["qztext", B]),
            reasoning: false,
            opening: None,
        };
        let thoughtful = Message {
            reasoning: Some(C.into()),
            ..assistant(B)
        };
        habits.reasoning = probe.shows(&after(vec![user(A), thoughtful]), &[A, C, B]);
        habits.opening = opening(program, &user(A));
        Ok(habits)
    }
}

/// Is the probe's call in `text` one of this syntax?
fn is_written_in(text: &str, syntax: CallSyntax) -> bool {
    let call = match syntax {
        CallSyntax::LlamaPythonic => return text.contains(&format!("{B}({C}=")),
        CallSyntax::SmolLm2 => "<tool_call>[",
        CallSyntax::Hermes => "<tool_call>",
        CallSyntax::LlamaJson => "",
    };
    let key = format!("\"{}\"", syntax.arguments_key());
    in_order(text, &[call, &format!("\"{B}\""), &key, C])
}

/// A template that knows no object prints `{\"…` when it is given one.
fn is_escaped(text: &str) -> bool {
    text.contains(&format!("\\\"{C}"))
}

fn calls(count: usize, form: Arguments) -> Vec<Value> {
    let arguments = match form {
        Arguments::Object => Value::from_pairs([(C, Value::from(1))]),
        Arguments::Text => Value::from(format!("{{\"{C}\": 1}}")),
    };
    (0..count)
        .map(|_| super::messages::call("c1", B, arguments.clone()))
        .collect()
}

fn opening(program: &Program, user: &Message<'_>) -> Option<String> {
    let options = RenderOptions::default();
    let messages = [user.clone()];
    let with = program.run(&messages, None, &options, true).ok()?;
    let without = program.run(&messages, None, &options, false).ok()?;
    with.strip_prefix(&without).map(str::to_owned)
}

#[cfg(test)]
mod tests;
