//! Where a `$ref` points: JSON pointers, anchors, and the document's own address in front of either. Nothing outside the document is ever looked up.

use serde_json::Value;

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
