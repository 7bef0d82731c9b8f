//! Tools for models whose template has no words for them: which syntax a model writes calls in, how tools are described to it, and how its past calls and
//! their results look in text.

use minijinja::Value;
use serde_json::Value as Json;

use super::{
    PromptError, compact,
    conversation::Call,
    python::{self, Paper, Style},
    tools::{Tool, Tools, ToolsMode},
};
use crate::{call_syntax::CallSyntax, tokenizer::Tokenizer};

/// The syntax a model was taught, by its template and vocabulary.
pub(super) fn syntax(source: &str, tokenizer: &Tokenizer) -> CallSyntax {
    let has = |token: &str| {
        tokenizer
            .token_id(token)
            .is_some_and(|token| tokenizer.is_control(token))
    };
    if source.contains("<tool_call>") {
        CallSyntax::Hermes
    } else if has("<|start_header_id|>") {
        CallSyntax::LlamaJson
    } else if has("<|im_start|>") && has("<repo_name>") && has("<jupyter_start>") {
        // The vocabulary of the SmolLM models, whose templates know no tools at all.
        CallSyntax::SmolLm2
    } else {
        CallSyntax::Hermes
    }
}

/// What stands in for a model's own template.
pub(super) fn built_in(tokenizer: &Tokenizer) -> Option<&'static str> {
    let has = |token: &str| {
        tokenizer
            .token_id(token)
            .is_some_and(|token| tokenizer.is_control(token))
    };
    if has("<|start_header_id|>") && has("<|end_header_id|>") && has("<|eot_id|>") {
        Some(LLAMA3)
    } else if has("<|im_start|>") && has("<|im_end|>") {
        Some(CHATML)
    } else {
        None
    }
}

const LLAMA3: &str = "{{ bos_token }}{% for message in messages %}\
{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content + '<|eot_id|>' }}\
{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}";
const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/// The role of results that the template prints without knowing it, where the model does.
pub(super) fn permissive_result_role(
    syntax: CallSyntax,
    tokenizer: &Tokenizer,
) -> Option<&'static str> {
    match syntax {
        CallSyntax::LlamaJson | CallSyntax::LlamaPythonic
            if tokenizer.token_id("<|python_tag|>").is_some() =>
        {
            Some("ipython")
        }
        _ => None,
    }
}

/// Said to every model that gets tools: small ones call something for every greeting otherwise.
pub(super) const OPTIONAL: &str = "Call a function only when the task needs it. Whatever you can answer yourself, answer in plain text. \
For example, to \"Hello!\" the right answer is: Hello! What can I do for you?";

/// The description of tools that goes into the system turn. `text` guards the request's own strings.
pub(super) fn describe(
    tools: &Tools,
    mode: ToolsMode,
    syntax: CallSyntax,
    text: &impl Fn(&str) -> String,
) -> Result<String, PromptError> {
    let how = match syntax {
        CallSyntax::LlamaJson => {
            "To call a function, answer with nothing but a JSON object of this form:\n\
             {\"name\": \"function_name\", \"parameters\": {\"argument\": \"value\"}}"
        }
        CallSyntax::LlamaPythonic => {
            "To call functions, answer with nothing but a list of this form:\n[function_name(argument=\"value\")]"
        }
        CallSyntax::Hermes => {
            "To call a function, write this, once for each call:\n\
             <tool_call>\n{\"name\": \"function_name\", \"arguments\": {\"argument\": \"value\"}}\n</tool_call>"
        }
        CallSyntax::SmolLm2 => {
            "To call functions, write one list of this form:\n\
             <tool_call>[{\"name\": \"function_name\", \"arguments\": {\"argument\": \"value\"}}]</tool_call>"
        }
    };
    let lines = join(&tools.list, "\n", |tool| match mode {
        ToolsMode::Compact => Ok(text(&compact::signature(tool))),
        _ => json(&declaration(tool, text)),
    })?;
    Ok(format!(
        "You can call these functions:\n<tools>\n{lines}\n</tools>\n{how}\n{OPTIONAL}"
    ))
}

/// The declaration of a tool as templates get it: `{"type": "function", "function": {…}}`.
pub(super) fn declaration(tool: &Tool, text: &impl Fn(&str) -> String) -> Value {
    let function = Value::from_pairs([
        ("name", Value::from(text(&tool.name))),
        ("description", Value::from(text(&tool.description))),
        ("parameters", python::value(&tool.parameters, text)),
    ]);
    Value::from_pairs([("type", Value::from("function")), ("function", function)])
}

/// A turn's calls as the model writes them.
pub(super) fn write_calls(
    calls: &[Call],
    syntax: CallSyntax,
    text: &impl Fn(&str) -> String,
) -> Result<String, PromptError> {
    let object = |call: &Call| {
        json(&Value::from_pairs([
            ("name", Value::from(text(&call.name))),
            (
                syntax.arguments_key(),
                python::value(&object_of(&call.arguments), text),
            ),
        ]))
    };
    match syntax {
        CallSyntax::LlamaJson => join(calls, "; ", object),
        CallSyntax::Hermes => join(calls, "\n", |call| {
            Ok(format!("<tool_call>\n{}\n</tool_call>", object(call)?))
        }),
        CallSyntax::SmolLm2 => {
            let list = join(calls, ", ", object)?;
            Ok(format!("<tool_call>[{list}]</tool_call>"))
        }
        CallSyntax::LlamaPythonic => {
            let list = join(calls, ", ", |call| {
                let arguments = match object_of(&call.arguments) {
                    Json::Object(arguments) => join(arguments.iter(), ", ", |(key, value)| {
                        Ok(format!(
                            "{}={}",
                            text(key),
                            repr(&python::value(value, text))?
                        ))
                    })?,
                    _ => String::new(),
                };
                Ok(format!("{}({arguments})", text(&call.name)))
            })?;
            Ok(format!("[{list}]"))
        }
    }
}

fn join<T>(
    list: impl IntoIterator<Item = T>,
    between: &str,
    write: impl Fn(T) -> Result<String, PromptError>,
) -> Result<String, PromptError> {
    let written: Vec<String> = list.into_iter().map(write).collect::<Result<_, _>>()?;
    Ok(written.join(between))
}

/// Arguments as the object every template expects. What is none (a model's broken JSON, kept so that it sees its mistake) goes in under a name of its own.
pub(super) fn object_of(arguments: &Json) -> Json {
    match arguments {
        Json::Object(_) => arguments.clone(),
        other => {
            let mut object = protocol::Object::new();
            object.insert("invalid_arguments".to_owned(), other.clone());
            Json::Object(object)
        }
    }
}

/// Results for a model without a role for them: in a user turn.
pub(super) fn write_results<'a>(
    results: impl Iterator<Item = &'a str>,
    text: &impl Fn(&str) -> String,
) -> String {
    results
        .map(|result| format!("<tool_response>\n{}\n</tool_response>", text(result)))
        .collect::<Vec<_>>()
        .join("\n")
}

/// The result of a call that the client never answered, because its turn was interrupted.
pub(super) const NO_RESULT: &str = "[no result: the call was aborted]";

/// As `json.dumps` writes it.
pub(super) fn json(value: &Value) -> Result<String, PromptError> {
    python::dumps(value, &Style::default(), Paper::new(None)).map_err(|error| unwritten(&error))
}

/// As `repr` writes it, strings quoted.
fn repr(value: &Value) -> Result<String, PromptError> {
    python::repr(value, Paper::new(None)).map_err(|error| unwritten(&error))
}

/// Reading the request refuses what is too deep, and nothing else cannot be written; so this is ours.
fn unwritten(error: &minijinja::Error) -> PromptError {
    PromptError::Template(format!("a tool or a call cannot be written: {error}"))
}

#[cfg(test)]
mod tests;
