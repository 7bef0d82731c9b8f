//! A client's JSON Schema, rewritten into the part of it that the grammar compiler knows, with nothing else in it.
//!
//! References become definitions of our own, annotations go, keywords the compiler lacks go and are reported, objects that say nothing about further
//! properties are closed. The result allows what the schema allows, or less; except for what is reported as [`Loose`].

mod endless;
mod exclusive;
mod keywords;
mod numbers;
mod reference;

use std::collections::HashMap;

use exclusive::exclude_each_other;
use keywords::{
    ARRAYS, FORMATS, IN_PLACE, NUMBERS, OBJECTS, STRINGS, UNKNOWN, bound_multiples, close, count,
    infer_type, is_closable, is_crowded, is_wide, odd_escape, only_part, optional, says_more,
    types,
};
use protocol::Object;
pub(crate) use reference::escape_pointer;
use reference::{local_pointer, resolve};
use serde_json::{Number, Value, json};

use super::limits::{
    MAX_ALTERNATIVES, MAX_LEAST_ITEMS, MAX_MEETING, MAX_OPTIONAL, MAX_REFERENCE_DEPTH,
};

/// What the grammar does not hold the model to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Loose {
    /// JSON pointer into the client's schema.
    pub(crate) path: String,
    pub(crate) keyword: String,
    pub(crate) reason: String,
}

/// A schema for the compiler.
#[derive(Clone, Debug)]
pub(crate) struct Normal {
    /// Its own keywords, and `$defs` with a definition for each reference.
    pub(crate) schema: Value,
    /// Schemas inside each other, along references.
    pub(crate) depth: usize,
    pub(crate) loose: Vec<Loose>,
    /// Patterns that can be held, and that another reader might take for none.
    pub(crate) odd: Vec<Loose>,
    /// For each definition, where in the client's schema it comes from.
    origins: Vec<String>,
    /// Where in the client's schema our `anyOf` is a `oneOf`, outer ones first.
    renamed: Vec<String>,
}

impl Normal {
    /// Where in the client's schema the part at this pointer into ours comes from.
    pub(crate) fn origin(&self, pointer: &str) -> String {
        let inside = pointer.strip_prefix("/$defs/d").and_then(|rest| {
            let (number, rest) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let origin = self.origins.get(number.parse::<usize>().ok()?)?;
            Some(format!("{origin}{rest}"))
        });
        let mut origin = inside.unwrap_or_else(|| pointer.to_owned());
        for place in &self.renamed {
            let inside = origin.strip_prefix(place.as_str());
            if let Some(rest) = inside.and_then(|rest| rest.strip_prefix("/anyOf/")) {
                origin = format!("{place}/oneOf/{rest}");
            }
        }
        origin
    }
}

/// Rewrites `schema`, whose size and depth are known to be allowed.
pub(crate) fn normalize(schema: &Value) -> Normal {
    let mut normalizer = Normalizer {
        root: schema,
        definitions: HashMap::new(),
        pending: Vec::new(),
        steps: numbers::Common::ONE,
        remainders: 0,
        meeting: 0,
        loose: Vec::new(),
        odd: Vec::new(),
        origins: Vec::new(),
        renamed: Vec::new(),
    };
    let mut root = normalizer.schema(schema, "", Place::Value);
    let mut definitions = Object::new();
    while let Some((number, pointer, place)) = normalizer.pending.pop() {
        let target = resolve(schema, &pointer).unwrap_or(&Value::Bool(true));
        let target = normalizer.schema(target, &pointer, place);
        definitions.insert(format!("d{number}"), target);
    }
    if !definitions.is_empty() {
        if !root.is_object() {
            root = json!({});
        }
        if let Some(root) = root.as_object_mut() {
            root.insert("$defs".to_owned(), definitions.into());
        }
    }
    let mut weights = vec![0; normalizer.origins.len()];
    for ((_, place), number) in &normalizer.definitions {
        if *place == Place::Shared {
            weights[*number] = MERGED_LEVELS;
        }
    }
    let stack = reference::depth(&root, &weights);
    let mut normal = Normal {
        depth: reference::depth(&root, &[]),
        schema: root,
        loose: normalizer.loose,
        odd: normalizer.odd,
        origins: normalizer.origins,
        renamed: normalizer.renamed,
    };
    if stack > MAX_REFERENCE_DEPTH {
        normal.schema = json!({"type": "object"});
        normal.loose.push(Loose {
            path: String::new(),
            keyword: "$ref".to_owned(),
            reason: format!(
                "references lead deeper than the {MAX_REFERENCE_DEPTH} levels that can be held"
            ),
        });
        return normal;
    }
    endless::cut_endless(&mut normal);
    normal
}

const TOO_LARGE: &str = "the number is too large to be held exactly";

/// What a reference costs where schemas are merged, in levels: the compiler may come to it from deep inside of another merger.
const MERGED_LEVELS: usize = 64;

/// Where a schema stands.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Place {
    /// It alone says what the value is, so that saying more than it does (no further properties) contradicts nobody.
    Value,
    /// Others speak about the same value.
    Shared,
}

struct Normalizer<'a> {
    root: &'a Value,
    /// Number of the definition for a pointer and a place.
    definitions: HashMap<(String, Place), usize>,
    pending: Vec<(usize, String, Place)>,
    /// Of the values of `multipleOf` that are not alone.
    steps: numbers::Common,
    /// The sum of those that are.
    remainders: u64,
    /// Patterns that others may meet.
    meeting: usize,
    loose: Vec<Loose>,
    odd: Vec<Loose>,
    origins: Vec<String>,
    renamed: Vec<String>,
}

impl Normalizer<'_> {
    fn schema(&mut self, schema: &Value, path: &str, place: Place) -> Value {
        let schema = match schema {
            Value::Bool(_) => return schema.clone(),
            Value::Object(schema) => schema,
            other => {
                let came = protocol::object::describe(other);
                self.drop(path, "", &format!("a schema is an object, but {came} came"));
                return json!({});
            }
        };
        if let Some(inner) = only_part(schema) {
            // `allOf` with one part is how some generators hang a description on a reference.
            return self.schema(inner, &format!("{path}/allOf/0"), place);
        }
        let mut out = Object::new();
        let alone = place == Place::Value && !IN_PLACE.iter().any(|key| schema.contains_key(*key));
        for (keyword, value) in schema {
            self.keyword(schema, keyword, value, path, place, &mut out);
        }
        if alone {
            infer_type(&mut out);
            close(schema, &mut out);
        }
        bound_multiples(&mut out);
        self.check_names(path, &out);
        out.into()
    }

    /// Takes one keyword over, if it can.
    fn keyword(
        &mut self,
        schema: &Object,
        keyword: &str,
        value: &Value,
        path: &str,
        place: Place,
        out: &mut Object,
    ) {
        let here = format!("{path}/{keyword}");
        let old_tuple = schema.get("items").is_some_and(Value::is_array);
        match (keyword, value) {
            ("type", value) => match types(value) {
                Some(types) => {
                    out.insert("type".to_owned(), types);
                }
                None => self.wrong(
                    path,
                    keyword,
                    "the name of a type, or a list of them",
                    value,
                ),
            },
            ("$ref", Value::String(reference)) => {
                self.reference(reference, schema, path, place, out);
            }
            ("const", value) => {
                if numbers::are_exact(value) {
                    out.insert("const".to_owned(), value.clone());
                } else {
                    self.drop(path, keyword, TOO_LARGE);
                }
            }
            ("enum" | "anyOf" | "oneOf", Value::Array(list)) if is_wide(list) => {
                let reason = format!("more than {MAX_ALTERNATIVES} values that are no simple ones");
                self.drop(path, keyword, &reason);
            }
            ("enum", Value::Array(values)) if !values.is_empty() => {
                let exact = values.iter().filter(|value| numbers::are_exact(value));
                let exact: Vec<Value> = exact.cloned().collect();
                if exact.len() < values.len() {
                    self.drop(path, keyword, TOO_LARGE);
                }
                if !exact.is_empty() {
                    out.insert("enum".to_owned(), exact.into());
                }
            }
            ("anyOf" | "oneOf", Value::Array(list)) if !list.is_empty() => {
                let place = if says_more(schema) {
                    Place::Shared
                } else {
                    place
                };
                let is_any = keyword == "oneOf"
                    && !schema.contains_key("anyOf")
                    && exclude_each_other(self.root, list);
                if is_any {
                    self.renamed.push(path.to_owned());
                }
                let keyword = if is_any { "anyOf" } else { keyword };
                self.list(list, keyword, &here, place, out);
            }
            ("allOf", Value::Array(list)) if !list.is_empty() => {
                self.list(list, keyword, &here, Place::Shared, out);
            }
            ("items", Value::Array(list)) => self.list(list, "prefixItems", &here, place, out),
            ("prefixItems", Value::Array(list)) => self.list(list, keyword, &here, place, out),
            ("additionalItems", value) if old_tuple => {
                let items = self.schema(value, &here, place);
                out.insert("items".to_owned(), items);
            }
            // It is about the properties that are not listed, and none are any more.
            ("additionalProperties", _) if is_crowded(schema) => {}
            ("items" | "additionalProperties", Value::Object(_) | Value::Bool(_)) => {
                let inner = self.schema(value, &here, place);
                out.insert(keyword.to_owned(), inner);
            }
            ("properties", Value::Object(named)) if is_crowded(schema) => {
                let count = optional(schema, named);
                let reason = format!(
                    "{count} properties that may be missing are more than the {MAX_OPTIONAL} that can be held"
                );
                self.drop(path, keyword, &reason);
            }
            ("properties" | "patternProperties", Value::Object(named)) => {
                // A property may also be described by a pattern.
                let place = if schema.contains_key("patternProperties") {
                    Place::Shared
                } else {
                    place
                };
                let mut properties = Object::new();
                for (name, property) in named {
                    let here = format!("{here}/{}", escape_pointer(name));
                    let property = self.schema(property, &here, place);
                    properties.insert(name.clone(), property);
                }
                out.insert(keyword.to_owned(), properties.into());
            }
            ("required", Value::Array(names)) if names.iter().all(Value::is_string) => {
                out.insert(keyword.to_owned(), value.clone());
            }
            // Draft 3 and sloppy generators mark a property itself.
            ("required", Value::Bool(_)) => {}
            (
                "minItems" | "maxItems" | "minLength" | "maxLength" | "minProperties"
                | "maxProperties",
                Value::Number(number),
            ) => match count(number) {
                Some(count) if keyword == "minItems" && count > MAX_LEAST_ITEMS => {
                    let reason = format!("more than the {MAX_LEAST_ITEMS} that can be counted");
                    self.drop(path, keyword, &reason);
                }
                Some(count) => {
                    out.insert(keyword.to_owned(), count.into());
                }
                None => self.wrong(path, keyword, "a whole number that is not negative", value),
            },
            (
                "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum",
                Value::Number(number),
            ) if !numbers::can_bound(schema, keyword, number) => {
                self.drop(path, keyword, TOO_LARGE);
            }
            ("multipleOf", Value::Number(step)) if step.as_f64().is_none_or(|step| step <= 0.0) => {
                self.wrong(path, keyword, "a number above 0", value);
            }
            ("multipleOf", Value::Number(step)) => {
                let is_held = self.multiple(step, schema, path, place);
                if is_held {
                    out.insert(keyword.to_owned(), value.clone());
                }
            }
            ("pattern", Value::String(_)) if place == Place::Shared && !self.may_meet() => {
                let reason = format!("more than {MAX_MEETING} patterns may meet");
                self.drop(path, keyword, &reason);
            }
            ("minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum", Value::Number(_))
            | ("exclusiveMinimum" | "exclusiveMaximum", Value::Bool(_))
            | ("pattern", Value::String(_)) => {
                if let Some(escape) = value.as_str().and_then(odd_escape) {
                    self.odd.push(Loose {
                        path: path.to_owned(),
                        keyword: keyword.to_owned(),
                        reason: format!("\"\\{escape}\" escapes a character that needs no escape"),
                    });
                }
                out.insert(keyword.to_owned(), value.clone());
            }
            ("format", Value::String(format)) if FORMATS.contains(&format.as_str()) => {
                out.insert(keyword.to_owned(), value.clone());
            }
            // Others are annotations.
            ("format", Value::String(_)) => {}
            ("uniqueItems", Value::Bool(false))
            | ("unevaluatedProperties" | "unevaluatedItems", Value::Bool(true)) => {}
            ("if", _) if !schema.contains_key("then") && !schema.contains_key("else") => {}
            // A closed object has nothing that is unevaluated.
            ("unevaluatedProperties", _) if is_closable(schema, place) => {}
            ("minContains" | "maxContains", _) if !schema.contains_key("contains") => {}
            _ if UNKNOWN.contains(&keyword) => {
                self.drop(
                    path,
                    keyword,
                    "the grammar compiler does not know this keyword",
                );
            }
            ("$ref", _) => self.wrong(path, keyword, "a string", value),
            ("enum" | "anyOf" | "oneOf" | "allOf", _) => {
                self.wrong(path, keyword, "a list that is not empty", value);
            }
            ("items" | "additionalProperties" | "prefixItems", _) => {
                self.wrong(path, keyword, "a schema", value);
            }
            ("properties" | "patternProperties", _) => {
                self.wrong(path, keyword, "an object of schemas", value);
            }
            ("required", _) => self.wrong(path, keyword, "a list of names", value),
            ("pattern" | "format", _) => self.wrong(path, keyword, "a string", value),
            _ if NUMBERS.contains(&keyword)
                || ARRAYS.contains(&keyword)
                || STRINGS.contains(&keyword)
                || OBJECTS.contains(&keyword) =>
            {
                self.wrong(path, keyword, "a number", value);
            }
            // Titles, descriptions, defaults, definitions, and whatever else says nothing about the value.
            _ => {}
        }
    }

    fn list(&mut self, list: &[Value], keyword: &str, here: &str, place: Place, out: &mut Object) {
        let list: Vec<Value> = list
            .iter()
            .enumerate()
            .map(|(index, schema)| self.schema(schema, &format!("{here}/{index}"), place))
            .collect();
        out.insert(keyword.to_owned(), list.into());
    }

    fn reference(
        &mut self,
        reference: &str,
        schema: &Object,
        path: &str,
        place: Place,
        out: &mut Object,
    ) {
        let Some(pointer) = local_pointer(self.root, reference) else {
            let reason = format!("\"{reference}\" is nowhere in this schema");
            self.drop(path, "$ref", &reason);
            return;
        };
        let place = if says_more(schema) {
            Place::Shared
        } else {
            place
        };
        let key = (pointer.clone(), place);
        let number = match self.definitions.get(&key) {
            Some(number) => *number,
            None => {
                let number = self.origins.len();
                self.origins.push(pointer.clone());
                self.definitions.insert(key, number);
                self.pending.push((number, pointer, place));
                number
            }
        };
        out.insert("$ref".to_owned(), format!("#/$defs/d{number}").into());
    }

    /// Names of further properties may come twice, so that counting them counts too many.
    fn check_names(&mut self, path: &str, out: &Object) {
        let least = out
            .get("minProperties")
            .and_then(Value::as_u64)
            .unwrap_or(0);
        let required = out.get("required").and_then(Value::as_array);
        let open = out.get("additionalProperties") != Some(&Value::Bool(false))
            || out.contains_key("patternProperties");
        if open && least > 1 && least > required.map_or(0, Vec::len) as u64 {
            self.drop(
                path,
                "minProperties",
                "names that the schema does not list may come twice",
            );
        }
    }

    /// Takes a step, unless others may meet it and their common multiple is too much for the compiler.
    fn multiple(&mut self, step: &Number, schema: &Object, path: &str, place: Place) -> bool {
        let is_alone =
            place == Place::Value && !IN_PLACE.iter().any(|key| schema.contains_key(*key));
        if is_alone {
            self.remainders = self.remainders.saturating_add(numbers::remainders(step));
            let is_held = self.remainders <= numbers::MOST_REMAINDERS;
            if !is_held {
                let reason = format!(
                    "the steps of the schema are more than {} together",
                    numbers::MOST_REMAINDERS
                );
                self.drop(path, "multipleOf", &reason);
            }
            return is_held;
        }
        match self.steps.with(step) {
            Some(steps) => {
                self.steps = steps;
                true
            }
            None => {
                let reason = "its common multiple with others is too large";
                self.drop(path, "multipleOf", reason);
                false
            }
        }
    }

    /// Takes one more pattern that others may meet.
    fn may_meet(&mut self) -> bool {
        self.meeting += 1;
        self.meeting <= MAX_MEETING
    }

    fn wrong(&mut self, path: &str, keyword: &str, expected: &str, value: &Value) {
        let came = protocol::object::describe(value);
        self.drop(
            path,
            keyword,
            &format!("must be {expected}, but {came} came"),
        );
    }

    fn drop(&mut self, path: &str, keyword: &str, reason: &str) {
        self.loose.push(Loose {
            path: path.to_owned(),
            keyword: keyword.to_owned(),
            reason: reason.to_owned(),
        });
    }
}
