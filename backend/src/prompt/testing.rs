//! What the tests of prompts share: templates in the shape of the published ones, in words of our own.

use serde_json::{Value, json};

use super::{
    Conversation, RenderOptions, Rendered, Template, TemplateOptions, Tools, ToolsMode, date::Date,
};
use crate::tokenizer::{Tokenizer, testing};

pub(crate) const DATE: Date = Date {
    year: 2024,
    month: 7,
    day: 5,
};

/// SmolLM2: ChatML, a system turn of its own, no tools.
pub(crate) const SMOLLM2: &str = include_str!("testing/smollm2.jinja");

/// Llama 3.1: date, tools into the first user turn unless told otherwise, one call a turn, results in `ipython` turns as JSON.
pub(crate) const LLAMA31: &str = include_str!("testing/llama31.jinja");

/// Llama 3.2: as 3.1, but it asks the clock for the date when it is given none.
pub(crate) fn llama32() -> String {
    LLAMA31
        .replace(
            r#"{%- set date_string = "26 Jul 2024" %}"#,
            r#"{%- if strftime_now is defined %}{%- set date_string = strftime_now("%d %b %Y") %}{%- endif %}"#,
        )
        .replace("date_string + ", "strftime_now('%d %b %Y') + ")
}

/// Hermes: tools as JSON in the system turn, any number of calls in tags, neighbouring results in one turn.
pub(crate) const HERMES: &str = include_str!("testing/hermes.jinja");

/// A strict template: no system turns but the first, and user and assistant in turns.
pub(crate) const STRICT: &str = include_str!("testing/strict.jinja");

/// A reasoning template: thoughts of the turns since the last question are kept, and the assistant starts with one.
pub(crate) const THINKER: &str = include_str!("testing/thinker.jinja");

/// All of them by name, with the vocabulary of their family.
pub(crate) fn shapes() -> Vec<(&'static str, String, Tokenizer)> {
    let llama = || testing::with_controls(&LLAMA_CONTROLS);
    let chatml = || testing::with_controls(&CHATML_CONTROLS);
    vec![
        ("smollm2", SMOLLM2.to_owned(), chatml()),
        ("llama31", LLAMA31.to_owned(), llama()),
        ("llama32", llama32(), llama()),
        ("hermes", HERMES.to_owned(), chatml()),
        ("strict", STRICT.to_owned(), chatml()),
        ("thinker", THINKER.to_owned(), chatml()),
    ]
}

pub(crate) const LLAMA_CONTROLS: [&str; 7] = [
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|python_tag|>",
];
pub(crate) const CHATML_CONTROLS: [&str; 5] = [
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<repo_name>",
    "<jupyter_start>",
];

pub(crate) fn template(name: &str, tools: ToolsMode) -> (Template, Tokenizer) {
    let (_, source, tokenizer) = shapes().into_iter().find(|shape| shape.0 == name).unwrap();
    let options = TemplateOptions {
        tools,
        date: Some(DATE),
        ..TemplateOptions::default()
    };
    (
        Template::new(Some(&source), &tokenizer, options).unwrap(),
        tokenizer,
    )
}

pub(crate) fn request(value: Value) -> protocol::Object {
    match value {
        Value::Object(object) => object,
        other => panic!("not an object: {other}"),
    }
}

pub(crate) fn render(template: &Template, request: &Value) -> Rendered {
    let request = self::request(request.clone());
    template
        .render(
            &Conversation::from_request(&request).unwrap(),
            &Tools::from_request(&request).unwrap(),
            &RenderOptions::default(),
        )
        .unwrap()
}

/// The prompt in letters: control tokens by their names in `⟨⟩`, so that a forged one shows.
pub(crate) fn spell(tokenizer: &Tokenizer, tokens: &[u32]) -> String {
    let mut bytes = Vec::new();
    for token in tokens {
        match tokenizer.control_text(*token) {
            Some(text) => {
                let name = text.trim_matches(|character| matches!(character, '<' | '>' | '|'));
                bytes.extend_from_slice(format!("⟨{name}⟩").as_bytes());
            }
            None => bytes.extend_from_slice(tokenizer.token_bytes(*token)),
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// The prompt that a shape makes of a request.
pub(crate) fn prompt(name: &str, tools: ToolsMode, request: &Value) -> String {
    let (template, tokenizer) = template(name, tools);
    spell(&tokenizer, &render(&template, request).tokens)
}

pub(crate) fn user(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
}

pub(crate) fn assistant(text: &str) -> Value {
    json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

pub(crate) fn call(id: &str, name: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments})
}

pub(crate) fn output(id: &str, text: &str) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": text})
}

pub(crate) fn tool(name: &str) -> Value {
    json!({"type": "function", "name": name, "description": "Looks. Carefully.", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"],
    }})
}
