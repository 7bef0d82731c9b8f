//! A tool as one line: `exec_command(cmd: string, workdir?: string) - Runs a command.` Codex's tools are about 7,600 tokens as schemas and 600 like this.

use serde_json::Value;

use super::tools::Tool;

/// Longest description that is kept, in bytes.
const LONGEST: usize = 160;
/// Most values of an enum that are listed.
const MOST: usize = 8;

/// The signature and the first sentence of the description.
pub(super) fn signature(tool: &Tool) -> String {
    let mut line = format!("{}({})", tool.name, fields(&tool.parameters, 0));
    let sentence = first_sentence(&tool.description);
    if !sentence.is_empty() {
        line.push_str(" - ");
        line.push_str(sentence);
    }
    line
}

/// Levels of a schema that are shown; what is deeper is only named.
const DEEPEST: usize = 3;

fn fields(schema: &Value, depth: usize) -> String {
    let Some(properties) = schema["properties"].as_object() else {
        return String::new();
    };
    let required = |name: &str| {
        schema["required"]
            .as_array()
            .is_some_and(|names| names.iter().any(|entry| entry == name))
    };
    properties
        .iter()
        .map(|(name, value)| {
            let mark = if required(name) { "" } else { "?" };
            format!("{name}{mark}: {}", kind(value, depth + 1))
        })
        .collect::<Vec<_>>()
        .join(", ")
}

/// The type as people write it: `string`, `string[]`, `"a" | "b"`, `{x: integer}`.
fn kind(schema: &Value, depth: usize) -> String {
    if let Some(values) = schema["enum"]
        .as_array()
        .filter(|values| !values.is_empty() && values.len() <= MOST)
    {
        return values
            .iter()
            .map(Value::to_string)
            .collect::<Vec<_>>()
            .join(" | ");
    }
    if let Some(value) = schema.get("const") {
        return value.to_string();
    }
    if depth <= DEEPEST
        && let Some(choices) = schema["anyOf"]
            .as_array()
            .or_else(|| schema["oneOf"].as_array())
        && !choices.is_empty()
    {
        return one_of(choices.iter().map(|choice| kind(choice, depth + 1)));
    }
    match &schema["type"] {
        Value::String(name) => named(name, schema, depth),
        Value::Array(names) => one_of(
            names
                .iter()
                .filter_map(Value::as_str)
                .map(|name| named(name, schema, depth)),
        ),
        _ if schema["properties"].is_object() => named("object", schema, depth),
        _ => "any".to_owned(),
    }
}

fn named(name: &str, schema: &Value, depth: usize) -> String {
    match name {
        "array" if depth <= DEEPEST && schema["items"].is_object() => {
            let item = kind(&schema["items"], depth + 1);
            if item.contains(" | ") {
                format!("({item})[]")
            } else {
                format!("{item}[]")
            }
        }
        "array" => "any[]".to_owned(),
        "object"
            if depth <= DEEPEST
                && schema["properties"]
                    .as_object()
                    .is_some_and(|properties| !properties.is_empty()) =>
        {
            format!("{{{}}}", fields(schema, depth))
        }
        other => other.to_owned(),
    }
}

fn one_of(names: impl Iterator<Item = String>) -> String {
    let mut seen: Vec<String> = Vec::new();
    for name in names.take(MOST) {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    if seen.is_empty() {
        "any".to_owned()
    } else {
        seen.join(" | ")
    }
}

fn first_sentence(description: &str) -> &str {
    let line = description
        .trim()
        .lines()
        .next()
        .unwrap_or_default()
        .trim_end();
    let end = line.find(". ").map_or(line.len(), |at| at + 1);
    let sentence = &line[..end];
    if sentence.len() <= LONGEST {
        return sentence;
    }
    let mut cut = LONGEST;
    while !sentence.is_char_boundary(cut) {
        cut -= 1;
    }
    let word = sentence[..cut].rfind(' ').unwrap_or(cut);
    sentence[..word].trim_end()
}

#[cfg(test)]
mod tests;
