//! The keywords of JSON Schema by what they are about, and what a schema says by those it has.

use std::collections::HashSet;

use protocol::Object;
use serde_json::{Number, Value, json};

use super::{
    super::limits::{MAX_ALTERNATIVES, MAX_OPTIONAL},
    Place,
};

/// Keywords that say something and that the compiler lacks.
pub(super) const UNKNOWN: [&str; 16] = [
    "not",
    "if",
    "uniqueItems",
    "contains",
    "minContains",
    "maxContains",
    "propertyNames",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "unevaluatedProperties",
    "unevaluatedItems",
    "$dynamicRef",
    "$recursiveRef",
    "disallow",
    "extends",
];

/// Keywords that apply to the very value the schema is for.
pub(super) const IN_PLACE: [&str; 6] = ["allOf", "anyOf", "oneOf", "$ref", "const", "enum"];

pub(super) const STRINGS: [&str; 4] = ["pattern", "format", "minLength", "maxLength"];
pub(super) const NUMBERS: [&str; 5] = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
];
pub(super) const ARRAYS: [&str; 5] = [
    "items",
    "prefixItems",
    "additionalItems",
    "minItems",
    "maxItems",
];
pub(super) const OBJECTS: [&str; 6] = [
    "properties",
    "required",
    "additionalProperties",
    "patternProperties",
    "minProperties",
    "maxProperties",
];
/// Formats the compiler has an expression for. Others are annotations.
pub(super) const FORMATS: [&str; 10] = [
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
    "uri",
];
pub(super) const TYPES: [&str; 7] = [
    "null", "boolean", "integer", "number", "string", "array", "object",
];

/// An object that says nothing about further properties gets none: a small model would fill them with noise.
pub(super) fn close(schema: &Object, out: &mut Object) {
    let is_object = out.get("type").is_some_and(|types| names(types, "object"));
    if !is_object || !is_closable(schema, Place::Value) {
        return;
    }
    let Some(Value::Object(properties)) = out.get("properties") else {
        return;
    };
    let mut properties = properties.clone();
    let required = out.get("required").and_then(Value::as_array);
    for name in required.into_iter().flatten().filter_map(Value::as_str) {
        if !properties.contains_key(name) {
            properties.insert(name.to_owned(), json!({}));
        }
    }
    let least = out.get("minProperties").and_then(Value::as_u64);
    if least.is_some_and(|least| least > properties.len() as u64) {
        return;
    }
    out.insert("properties".to_owned(), properties.into());
    out.insert("additionalProperties".to_owned(), false.into());
}

/// Are there more alternatives than the parser can have before it at once? Simple values are the lexer's, which takes any number of them.
pub(super) fn is_wide(list: &[Value]) -> bool {
    let is_simple = |value: &Value| match value {
        Value::Array(_) => false,
        Value::Object(part) => part.get("const").is_some_and(|value| !is_compound(value)),
        _ => true,
    };
    list.iter().filter(|value| !is_simple(value)).count() > MAX_ALTERNATIVES
}

fn is_compound(value: &Value) -> bool {
    matches!(value, Value::Array(_) | Value::Object(_))
}

/// Largest absolute value of a multiple that has no bound of its own.
const LARGEST_MULTIPLE: i64 = 1_000_000_000_000_000_000;

/// Whether a number is a multiple is known at its last digit, and a model that does not hit on that one would write for ever.
pub(super) fn bound_multiples(out: &mut Object) {
    if !out.contains_key("multipleOf") {
        return;
    }
    let bound = |out: &Object, keywords: [&str; 2]| {
        let numbers = keywords
            .iter()
            .filter_map(|keyword| out.get(*keyword)?.as_f64());
        numbers.reduce(f64::max)
    };
    let least = bound(out, ["minimum", "exclusiveMinimum"]);
    let most = bound(out, ["maximum", "exclusiveMaximum"]);
    let half = LARGEST_MULTIPLE as f64 / 2.0;
    if least.is_none() && most.is_none_or(|most| most > -half) {
        out.insert("minimum".to_owned(), (-LARGEST_MULTIPLE).into());
    }
    if most.is_none() && least.is_none_or(|least| least < half) {
        out.insert("maximum".to_owned(), LARGEST_MULTIPLE.into());
    }
}

/// The one part of an `allOf` that has only one, in a schema that says nothing else.
pub(super) fn only_part(schema: &Object) -> Option<&Value> {
    let [only] = schema.get("allOf")?.as_array()?.as_slice() else {
        return None;
    };
    let constrains = |keyword: &str| {
        keyword != "allOf"
            && (keyword == "type"
                || [
                    &IN_PLACE[..],
                    &UNKNOWN,
                    &STRINGS,
                    &NUMBERS,
                    &ARRAYS,
                    &OBJECTS,
                ]
                .iter()
                .any(|known| known.contains(&keyword)))
    };
    (!schema.keys().any(|keyword| constrains(keyword))).then_some(only)
}

/// Does it say more about its value than one reference or choice does?
pub(super) fn says_more(schema: &Object) -> bool {
    let groups = [&UNKNOWN[..], &STRINGS, &NUMBERS, &ARRAYS, &OBJECTS];
    let in_place = IN_PLACE.iter().filter(|key| schema.contains_key(**key));
    in_place.count() > 1
        || schema
            .keys()
            .any(|keyword| groups.iter().any(|group| group.contains(&keyword.as_str())))
}

pub(super) fn is_closable(schema: &Object, place: Place) -> bool {
    place == Place::Value
        && !IN_PLACE.iter().any(|key| schema.contains_key(*key))
        && [
            "additionalProperties",
            "patternProperties",
            "propertyNames",
            "dependentSchemas",
            "then",
            "else",
        ]
        .iter()
        .all(|key| !schema.contains_key(*key))
}

pub(super) fn infer_type(out: &mut Object) {
    if out.contains_key("type") {
        return;
    }
    let has = |keys: &[&str]| keys.iter().any(|key| out.contains_key(*key));
    let types = [
        (has(&OBJECTS), "object"),
        (has(&ARRAYS), "array"),
        (has(&STRINGS), "string"),
        (has(&NUMBERS), "number"),
    ];
    let mut found = types.iter().filter(|(found, _)| *found);
    if let (Some((_, only)), None) = (found.next(), found.next()) {
        out.insert("type".to_owned(), (*only).into());
    }
}

pub(super) fn types(value: &Value) -> Option<Value> {
    let known = |value: &Value| value.as_str().is_some_and(|name| TYPES.contains(&name));
    match value {
        Value::String(_) => known(value).then(|| value.clone()),
        Value::Array(list) if !list.is_empty() => list.iter().all(known).then(|| value.clone()),
        _ => None,
    }
}

/// Is `name` the type, or one of the types?
pub(super) fn names(types: &Value, name: &str) -> bool {
    match types {
        Value::String(only) => only == name,
        Value::Array(list) => list.iter().any(|one| one == name),
        _ => false,
    }
}

/// An escape that ECMA-262 (with the flag `u`, as JSON Schema wants it) does not have.
pub(super) fn odd_escape(pattern: &str) -> Option<char> {
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if c == '\\' {
            let escaped = chars.next()?;
            if !escaped.is_ascii_alphanumeric() && !"^$\\.*+?()[]{}|/-".contains(escaped) {
                return Some(escaped);
            }
        }
    }
    None
}

/// Properties that need not be there.
pub(super) fn optional(schema: &Object, named: &Object) -> usize {
    let required = schema.get("required").and_then(Value::as_array);
    let required = required.into_iter().flatten().filter_map(Value::as_str);
    let required: HashSet<&str> = required.collect();
    let names = named.keys().map(String::as_str);
    names.filter(|name| !required.contains(name)).count()
}

/// Has it more optional properties than can be held?
pub(super) fn is_crowded(schema: &Object) -> bool {
    let named = schema.get("properties").and_then(Value::as_object);
    named.is_some_and(|named| optional(schema, named) > MAX_OPTIONAL)
}

/// `3` and `3.0`.
pub(super) fn count(number: &Number) -> Option<u64> {
    number.as_u64().or_else(|| {
        let float = number.as_f64()?;
        let whole = float.fract() == 0.0 && (0.0..1e15).contains(&float);
        // Whole and within range, so that nothing is lost.
        whole.then_some(float as u64)
    })
}
