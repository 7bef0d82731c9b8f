//! Schemas that have no finite value.

use std::collections::HashMap;

use protocol::Object;
use serde_json::Value;

use super::{Loose, Normal, keywords::names, reference::escape_pointer};

/// A schema that needs itself, like `{"properties":{"next":{"$ref":"#"}},"required":["next"]}`, has no finite value; a model that enters it never comes
/// out. References to such definitions are dropped.
pub(super) fn cut_endless(normal: &mut Normal) {
    let Some(Value::Object(definitions)) = normal.schema.get("$defs") else {
        return;
    };
    let mut ends: HashMap<String, bool> = definitions
        .keys()
        .map(|name| (format!("#/$defs/{name}"), false))
        .collect();
    loop {
        let mut changed = false;
        // From the back: what is referred to mostly comes later.
        for (name, definition) in definitions.iter().rev() {
            let name = format!("#/$defs/{name}");
            if !ends[&name] && can_end(definition, &ends) {
                ends.insert(name, true);
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    if ends.values().all(|ends| *ends) {
        return;
    }
    let mut cut = Vec::new();
    cut_references(
        &mut normal.schema,
        &mut String::new(),
        false,
        &ends,
        &mut cut,
    );
    for path in cut {
        let loose = Loose {
            path: normal.origin(&path),
            keyword: "$ref".to_owned(),
            reason: "the schema needs itself, so that no value ever ends".to_owned(),
        };
        if !normal.loose.contains(&loose) {
            normal.loose.push(loose);
        }
    }
}

fn can_end(schema: &Value, ends: &HashMap<String, bool>) -> bool {
    let Value::Object(schema) = schema else {
        return schema != &Value::Bool(false);
    };
    let list = |keyword: &str| schema.get(keyword).and_then(Value::as_array);
    let by_reference = match schema.get("$ref").and_then(Value::as_str) {
        Some(reference) => ends.get(reference).copied().unwrap_or(true),
        None => true,
    };
    let all = list("allOf").is_none_or(|list| list.iter().all(|part| can_end(part, ends)));
    let any = ["anyOf", "oneOf"].iter().all(|keyword| {
        list(keyword).is_none_or(|options| options.iter().any(|option| can_end(option, ends)))
    });
    by_reference && all && any && by_type(schema, ends)
}

/// Is there a finite value of one of its types?
fn by_type(schema: &Object, ends: &HashMap<String, bool>) -> bool {
    let Some(types) = schema.get("type") else {
        // Without a type, a number will do, whatever is said about objects.
        return true;
    };
    let scalar = ["null", "boolean", "integer", "number", "string"];
    if scalar.iter().any(|name| names(types, name)) {
        return true;
    }
    let object = || {
        let properties = schema.get("properties");
        let required = schema.get("required").and_then(Value::as_array);
        required.into_iter().flatten().all(|name| {
            let name = name.as_str().unwrap_or_default();
            let property = properties.and_then(|properties| properties.get(name));
            property.is_none_or(|property| can_end(property, ends))
        })
    };
    let array = || {
        let least = schema.get("minItems").and_then(Value::as_u64).unwrap_or(0);
        let least = usize::try_from(least).unwrap_or(usize::MAX);
        let first = schema.get("prefixItems").and_then(Value::as_array);
        let first = first.map_or(&[][..], Vec::as_slice);
        first.iter().take(least).all(|item| can_end(item, ends))
            && (least <= first.len() || schema.get("items").is_none_or(|item| can_end(item, ends)))
    };
    (names(types, "object") && object()) || (names(types, "array") && array())
}

fn cut_references(
    schema: &mut Value,
    path: &mut String,
    named: bool,
    ends: &HashMap<String, bool>,
    cut: &mut Vec<String>,
) {
    match schema {
        Value::Object(object) => {
            // `named`: the keys are names of schemas, not keywords.
            let endless = object
                .get("$ref")
                .and_then(Value::as_str)
                .is_some_and(|reference| ends.get(reference) == Some(&false));
            if endless {
                object.shift_remove("$ref");
                cut.push(path.clone());
            }
            for (key, value) in object.iter_mut() {
                if !named && matches!(key.as_str(), "const" | "enum") {
                    continue;
                }
                let names = ["properties", "patternProperties", "$defs"];
                let named = !named && names.contains(&key.as_str());
                let length = path.len();
                path.push('/');
                path.push_str(&escape_pointer(key));
                cut_references(value, path, named, ends, cut);
                path.truncate(length);
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter_mut().enumerate() {
                let length = path.len();
                path.push_str(&format!("/{index}"));
                cut_references(value, path, false, ends, cut);
                path.truncate(length);
            }
        }
        _ => {}
    }
}
