//! Alternatives of which no value fits two.
//!
//! The compiler takes `oneOf` only where it sees that for itself, and it does not look behind references, where generators of schemas put the variants of
//! a tagged union. What is seen here may be compiled as `anyOf`, which then says the same.

use protocol::Object;
use serde_json::Value;

use super::{
    keywords::{TYPES, names},
    reference::{local_pointer, resolve},
};

/// More are not compared with each other.
const MOST_OPTIONS: usize = 64;
/// Pairs of schemas to look at, and pairs of values: a client's schema decides how many there are.
const MOST_STEPS: usize = 20_000;
/// Longer lists of values are not looked into.
const MOST_VALUES: usize = 256;
/// Properties within properties, and references to references.
const MOST_DEPTH: usize = 6;

/// Does no value fit two of `options`? `false`: it might, or finding out takes too long.
pub(super) fn exclude_each_other(root: &Value, options: &[Value]) -> bool {
    let mut search = Search {
        root,
        steps: MOST_STEPS,
    };
    options.len() <= MOST_OPTIONS
        && options.iter().enumerate().all(|(index, option)| {
            let mut later = options[index + 1..].iter();
            later.all(|other| search.is_apart(option, other, MOST_DEPTH))
        })
}

struct Search<'a> {
    root: &'a Value,
    steps: usize,
}

impl<'a> Search<'a> {
    fn is_apart(&mut self, left: &'a Value, right: &'a Value, depth: usize) -> bool {
        if depth == 0 || !self.may_step() {
            return false;
        }
        let (Some(left), Some(right)) = (self.target(left), self.target(right)) else {
            return false;
        };
        if !TYPES
            .iter()
            .any(|name| may_be(left, name) && may_be(right, name))
        {
            return true;
        }
        if let (Some(left), Some(right)) = (values(left), values(right)) {
            let is_common = |value: &Value| {
                let mut others = right.iter();
                others.any(|other| !self.may_step() || may_be_equal(value, other))
            };
            return !left.iter().any(is_common);
        }
        self.is_apart_by_property(left, right, depth)
    }

    /// Objects both, and one must have a property that cannot be what both say of it.
    fn is_apart_by_property(&mut self, left: &'a Object, right: &'a Object, depth: usize) -> bool {
        let is_object = |schema: &Object| {
            let mut others = TYPES.iter().filter(|name| **name != "object");
            !others.any(|name| may_be(schema, name))
        };
        if !is_object(left) || !is_object(right) {
            return false;
        }
        let property = |schema: &'a Object, name| schema.get("properties")?.get(name);
        let required = [left, right]
            .into_iter()
            .filter_map(|schema| schema.get("required"));
        let required = required.filter_map(Value::as_array).flatten();
        required.filter_map(Value::as_str).any(|name| {
            match (property(left, name), property(right, name)) {
                (Some(left), Some(right)) => self.is_apart(left, right, depth - 1),
                _ => false,
            }
        })
    }

    fn may_step(&mut self) -> bool {
        self.steps = self.steps.saturating_sub(1);
        self.steps > 0
    }

    /// The schema, or what it refers to; what else it says only narrows that.
    fn target(&self, schema: &'a Value) -> Option<&'a Object> {
        let mut schema = schema.as_object()?;
        for _ in 0..MOST_DEPTH {
            let Some(reference) = schema.get("$ref").and_then(Value::as_str) else {
                return Some(schema);
            };
            let pointer = local_pointer(self.root, reference)?;
            schema = resolve(self.root, &pointer)?.as_object()?;
        }
        None
    }
}

/// May a value that fits be of this type?
fn may_be(schema: &Object, name: &str) -> bool {
    let by_type = schema.get("type").is_none_or(|types| {
        // Every integer is a number.
        let numbers = ["integer", "number"];
        match numbers.contains(&name) {
            true => numbers.iter().any(|name| names(types, name)),
            false => names(types, name),
        }
    });
    by_type && values(schema).is_none_or(|list| list.iter().any(|value| is_of(value, name)))
}

fn is_of(value: &Value, name: &str) -> bool {
    match value {
        Value::Null => name == "null",
        Value::Bool(_) => name == "boolean",
        Value::Number(_) => name == "integer" || name == "number",
        Value::String(_) => name == "string",
        Value::Array(_) => name == "array",
        Value::Object(_) => name == "object",
    }
}

/// The only values that fit, where they are listed and few.
fn values(schema: &Object) -> Option<&[Value]> {
    match (schema.get("const"), schema.get("enum")) {
        (Some(only), _) => Some(std::slice::from_ref(only)),
        (None, Some(Value::Array(list))) if list.len() <= MOST_VALUES => Some(list),
        _ => None,
    }
}

/// `1` and `1.0` are equal; what holds numbers is not looked into.
fn may_be_equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64() == right.as_f64(),
        (Value::Array(_), Value::Array(_)) | (Value::Object(_), Value::Object(_)) => true,
        _ => left == right,
    }
}
