//! Where a `$ref` points: JSON pointers, anchors, and the document's own address in front of either. Nothing outside the document is ever looked up.

use std::collections::HashMap;

use serde_json::Value;

use crate::grammar::limits::{self, Level};

pub(crate) fn escape_pointer(segment: &str) -> String {
    segment.replace('~', "~0").replace('/', "~1")
}

/// The pointer a reference within the document means, if something is there.
pub(super) fn local_pointer(root: &Value, reference: &str) -> Option<String> {
    let fragment = reference.strip_prefix('#').or_else(|| {
        // The document's own address in front.
        let id = root.get("$id").or_else(|| root.get("id"))?.as_str()?;
        reference
            .strip_prefix(id.trim_end_matches('#'))?
            .strip_prefix('#')
    })?;
    let pointer = percent_decoded(fragment)?;
    let pointer = if pointer == "/" {
        String::new()
    } else {
        pointer
    };
    if pointer.is_empty() || pointer.starts_with('/') {
        return resolve(root, &pointer).map(|_| pointer);
    }
    anchor(root, &pointer)
}

pub(super) fn resolve<'a>(root: &'a Value, pointer: &str) -> Option<&'a Value> {
    root.pointer(pointer)
        .filter(|target| target.is_object() || target.is_boolean())
}

/// Where `$anchor` (or, in draft 7, `$id` with a `#`) gives a schema this name.
fn anchor(root: &Value, name: &str) -> Option<String> {
    let mut open = vec![(root, String::new())];
    while let Some((value, path)) = open.pop() {
        match value {
            Value::Object(object) => {
                let is_named = object.get("$anchor").and_then(Value::as_str) == Some(name)
                    || object
                        .get("$id")
                        .and_then(Value::as_str)
                        .and_then(|id| id.strip_prefix('#'))
                        == Some(name);
                if is_named {
                    return Some(path);
                }
                open.extend(
                    object
                        .iter()
                        .map(|(key, value)| (value, format!("{path}/{}", escape_pointer(key)))),
                );
            }
            Value::Array(list) => open.extend(
                list.iter()
                    .enumerate()
                    .map(|(index, value)| (value, format!("{path}/{index}"))),
            ),
            _ => {}
        }
    }
    None
}

fn percent_decoded(text: &str) -> Option<String> {
    if !text.contains('%') {
        return Some(text.to_owned());
    }
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let (high, low) = (digit(rest.next())?, digit(rest.next())?);
        bytes.push(u8::try_from(high << 4 | low).ok()?);
    }
    String::from_utf8(bytes).ok()
}

/// How deep schemas are inside each other in a schema of ours, at the most, where a reference goes one deeper, and by a further `weights[n]` if it is to
/// definition `n`.
pub(super) fn depth(root: &Value, weights: &[usize]) -> usize {
    let definitions = root.get("$defs").and_then(Value::as_object);
    let definitions = || definitions.into_iter().flatten();
    let numbers: HashMap<&str, usize> = definitions()
        .enumerate()
        .map(|(index, (name, _))| (name.as_str(), index + 1))
        .collect();
    let weight = |name: &str| {
        let number = name
            .strip_prefix('d')
            .and_then(|number| number.parse().ok());
        let weight = number.and_then(|number: usize| weights.get(number));
        weight.copied().unwrap_or(0)
    };
    let parts = std::iter::once(root).chain(definitions().map(|(_, definition)| definition));
    let levels: Vec<Level> = parts
        .map(|part| {
            let mut level = Level::default();
            each_schema(part, |schema, depth| {
                level.depth = level.depth.max(depth);
                let reference = schema.get("$ref").and_then(Value::as_str);
                let name = reference.and_then(|reference| reference.strip_prefix("#/$defs/"));
                if let Some((name, number)) = name.and_then(|name| numbers.get_key_value(name)) {
                    level.references.push((*number, depth + weight(name)));
                }
            });
            level
        })
        .collect();
    limits::depth(&levels)
}

/// Visits a schema and those inside it, with their depth, 1 for the outermost; definitions are not inside.
fn each_schema<'a>(schema: &'a Value, mut visit: impl FnMut(&'a Value, usize)) {
    let mut open = vec![(schema, 1)];
    while let Some((schema, depth)) = open.pop() {
        visit(schema, depth);
        for (keyword, value) in schema.as_object().into_iter().flatten() {
            match (keyword.as_str(), value) {
                ("properties" | "patternProperties", Value::Object(named)) => {
                    open.extend(named.values().map(|schema| (schema, depth + 1)));
                }
                ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(list)) => {
                    open.extend(list.iter().map(|schema| (schema, depth + 1)));
                }
                ("items" | "additionalProperties", schema) => open.push((schema, depth + 1)),
                _ => {}
            }
        }
    }
}
