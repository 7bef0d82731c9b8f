//! Function parameters: the default when none are declared, and Codex's private keyword `encrypted` taken out.

use protocol::Object;
use serde_json::{Value, json};

/// What a function without declared parameters takes: any object.
pub(super) fn open() -> Value {
    json!({"type": "object", "properties": {}, "additionalProperties": true})
}

/// Removes the keyword `encrypted` from `schema` and its subschemas; true when one was there.
///
/// Codex marks the messages between agents with it, for a provider that encrypts arguments. As a keyword it means
/// nothing to a local server; a *property* of that name stays.
pub(super) fn strip_encrypted(schema: &mut Object) -> bool {
    let mut found = schema.shift_remove("encrypted").is_some();
    for (keyword, value) in schema.iter_mut() {
        found |= match keyword.as_str() {
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => {
                value
                    .as_object_mut()
                    .is_some_and(|named| strip_all(named.values_mut()))
            }
            "allOf" | "anyOf" | "oneOf" | "prefixItems" | "items" => match value {
                Value::Array(list) => strip_all(list.iter_mut()),
                other => strip_all(std::iter::once(other)),
            },
            "additionalProperties"
            | "contains"
            | "else"
            | "if"
            | "not"
            | "propertyNames"
            | "then"
            | "unevaluatedItems"
            | "unevaluatedProperties" => strip_all(std::iter::once(value)),
            _ => false,
        };
    }
    found
}

fn strip_all<'a>(schemas: impl Iterator<Item = &'a mut Value>) -> bool {
    schemas
        .filter_map(Value::as_object_mut)
        .fold(false, |found, schema| strip_encrypted(schema) | found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keyword_goes_and_a_property_of_that_name_stays() {
        let mut schema = json!({
            "type": "object",
            "properties": {
                "message": {"type": "string", "encrypted": true},
                "encrypted": {"type": "boolean"},
                "list": {"type": "array", "items": {"anyOf": [{"encrypted": true}]}},
            },
            "default": {"encrypted": true},
        });
        assert!(strip_encrypted(schema.as_object_mut().unwrap()));
        assert_eq!(
            schema,
            json!({
                "type": "object",
                "properties": {
                    "message": {"type": "string"},
                    "encrypted": {"type": "boolean"},
                    "list": {"type": "array", "items": {"anyOf": [{}]}},
                },
                "default": {"encrypted": true},
            })
        );
        assert!(!strip_encrypted(schema.as_object_mut().unwrap()));
    }
}
