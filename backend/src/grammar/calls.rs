//! The grammar of an answer: calls in the model's syntax, the JSON that `text.format` asks for, or either.
//!
//! One layout of JSON only, that of Python's `json.dumps` and of the chat templates: `, ` and `: ` between, no other space. So nothing is left to a small
//! model that likes to end its budget in line breaks, and most of a call's frame is forced.

use llguidance::{
    JsonCompileOptions,
    api::{GrammarWithLexer, TopLevelGrammar},
};
use serde_json::Value;

use super::vocabulary::Vocabulary;
use crate::call_syntax::CallSyntax;

/// What a tool's arguments are compiled from.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// A schema as [`super::schema::normalize`] leaves it.
    Schema(Value),
    /// Lark for the escaped text of `{"input": "…"}`.
    Text(String),
}

/// A tool that may be called.
#[derive(Clone, Debug)]
pub(crate) struct Callable {
    pub(crate) name: String,
    pub(crate) body: Body,
}

/// How many calls, and what else.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Shape {
    pub(crate) syntax: CallSyntax,
    /// Several calls may come.
    pub(crate) parallel: bool,
    /// The output so far has shown that a call begins: the marker of a syntax with a marker is behind.
    pub(crate) after_marker: bool,
    /// SmolLM2 says "no call" with an empty list.
    pub(crate) may_be_empty: bool,
}

/// The grammar of calls of `tools`, or of an `answer`, or of either. One of them there is.
pub(crate) fn grammar(
    tools: &[Callable],
    shape: Shape,
    answer: Option<&Value>,
    vocabulary: &Vocabulary,
) -> TopLevelGrammar {
    let mut options = Vec::new();
    let mut rules = String::new();
    if !tools.is_empty() {
        options.push("calls");
        write_calls(tools, shape, vocabulary, &mut rules);
    }
    if answer.is_some() {
        options.push("@answer");
    }
    let lark = format!("start: {}\n{rules}", options.join(" | "));
    let mut grammars = vec![lark_grammar("top", lark)];
    for (index, tool) in tools.iter().enumerate() {
        let name = format!("t{index}");
        grammars.push(match &tool.body {
            Body::Schema(schema) => json_grammar(&name, schema),
            Body::Text(lark) => lark_grammar(&name, lark.clone()),
        });
    }
    grammars.extend(answer.map(|schema| json_grammar("answer", schema)));
    TopLevelGrammar {
        grammars,
        max_tokens: None,
    }
}

/// What follows the marker, or a tool's name and its closing quote, at the least: a token that goes on beyond it must go on so.
pub(crate) fn continuations(syntax: CallSyntax) -> &'static [&'static str] {
    match syntax {
        CallSyntax::LlamaJson | CallSyntax::LlamaPythonic => &[", \"parameters\": {"],
        CallSyntax::Hermes => &["\n{\"name\": \""],
        CallSyntax::SmolLm2 => &["[{\"name\": \"", "[]</tool_call>"],
    }
}

fn write_calls(tools: &[Callable], shape: Shape, vocabulary: &Vocabulary, rules: &mut String) {
    let mut put = |line: String| {
        rules.push_str(&line);
        rules.push('\n');
    };
    let key = shape.syntax.arguments_key();
    let options: Vec<String> = (0..tools.len()).map(|index| format!("c{index}")).collect();
    put(format!(
        "call: {} ({})",
        quoted("{\"name\": \""),
        options.join(" | ")
    ));
    for (index, tool) in tools.iter().enumerate() {
        let name = Value::from(tool.name.as_str()).to_string();
        // The name without its first quote.
        let head = format!("{}, \"{key}\": ", &name[1..]);
        put(match &tool.body {
            Body::Schema(_) => format!("c{index}: {} @t{index} \"}}\"", quoted(&head)),
            Body::Text(_) => {
                let head = format!("{head}{{\"input\": \"");
                format!("c{index}: {} @t{index} {}", quoted(&head), quoted("\"}}"))
            }
        });
    }
    let open = || tag(vocabulary, "<tool_call>");
    let close = tag(vocabulary, "</tool_call>");
    let several = |separator: &str| {
        if shape.parallel {
            format!(" ({} call)*", quoted(separator))
        } else {
            String::new()
        }
    };
    match shape.syntax {
        CallSyntax::LlamaJson | CallSyntax::LlamaPythonic => {
            put(format!("calls: call{}", several("; ")));
        }
        CallSyntax::Hermes => {
            let line = quoted("\n");
            put(format!("inner: {line} call {line} {close}"));
            let first = if shape.after_marker {
                String::new()
            } else {
                open()
            };
            let more = if shape.parallel {
                format!(" ({line} {} inner)*", open())
            } else {
                String::new()
            };
            put(format!("calls: {first} inner{more}"));
        }
        CallSyntax::SmolLm2 => {
            let first = if shape.after_marker {
                String::new()
            } else {
                open()
            };
            let list = format!("call{}", several(", "));
            let list = if shape.may_be_empty {
                format!("({list})?")
            } else {
                list
            };
            put(format!("calls: {first} \"[\" {list} \"]\" {close}"));
        }
    }
}

/// A tag as text, or as the control token that a model may have for it.
fn tag(vocabulary: &Vocabulary, name: &str) -> String {
    match vocabulary.control_token(name) {
        Some(token) => format!("<[{token}]>"),
        None => quoted(name),
    }
}

/// Lark writes strings as JSON does.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn lark_grammar(name: &str, lark: String) -> GrammarWithLexer {
    GrammarWithLexer {
        name: Some(name.to_owned()),
        lark_grammar: Some(lark),
        json_schema: None,
    }
}

/// A schema of ours with our layout.
pub(crate) fn json_grammar(name: &str, schema: &Value) -> GrammarWithLexer {
    let options = JsonCompileOptions {
        item_separator: ", ".to_owned(),
        key_separator: ": ".to_owned(),
        whitespace_flexible: false,
        // No \uXXXX: it would let a further property be spelled like a listed one.
        json_allowed_escapes: Some("nrbtf\\\"".to_owned()),
        ..JsonCompileOptions::default()
    };
    let mut schema = match schema {
        Value::Object(_) => schema.clone(),
        // Only an object can carry the options.
        Value::Bool(false) => serde_json::json!({"enum": []}),
        _ => serde_json::json!({}),
    };
    options.apply_to(&mut schema);
    GrammarWithLexer {
        name: Some(name.to_owned()),
        json_schema: Some(schema),
        lark_grammar: None,
    }
}
