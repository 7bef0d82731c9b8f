//! Finds what of a schema the compiler refuses, and takes out as little as lets the rest compile: the smallest part that fails alone, there one
//! keyword, and only then the part.

use std::time::Instant;

use serde_json::{Value, json};

use super::{
    limits::RELAX_TIME,
    schema::{Loose, Normal, escape_pointer},
};

/// Says why a schema does not compile.
pub(crate) type Compile<'a> = &'a dyn Fn(&Value) -> Result<(), String>;

/// The most parts that are looked for in one schema before it is given up as a whole.
const MOST_REPAIRS: usize = 100;

/// Keywords in the order in which they are the likeliest to be at fault.
const SUSPECTS: [&str; 25] = [
    "pattern",
    "format",
    "multipleOf",
    "patternProperties",
    "oneOf",
    "minProperties",
    "maxProperties",
    "allOf",
    "$ref",
    "anyOf",
    "const",
    "enum",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minItems",
    "maxItems",
    "prefixItems",
    "items",
    "additionalProperties",
    "required",
    "properties",
];

/// Takes out of `normal` what keeps it from compiling.
pub(crate) fn relax(normal: &mut Normal, compile: Compile<'_>) {
    let started = Instant::now();
    for _ in 0..MOST_REPAIRS {
        let Err(reason) = compile(&normal.schema) else {
            return;
        };
        if started.elapsed() > RELAX_TIME {
            break;
        }
        let definitions = normal.schema.get("$defs").cloned();
        let mut search = Search {
            root: &normal.schema,
            definitions,
            compile,
            started,
        };
        let (pointer, reason) = search.smallest("", reason);
        let (fixed, keyword) = search.repair(&pointer);
        let whole = pointer.is_empty() && keyword.is_empty();
        let loose = Loose {
            path: normal.origin(&pointer),
            keyword,
            reason: first_line(&reason),
        };
        replace(&mut normal.schema, &pointer, fixed);
        normal.loose.push(loose);
        if whole {
            return;
        }
    }
    give_up(normal, "could not be made to compile");
}

/// Any object will do.
pub(crate) fn give_up(normal: &mut Normal, reason: &str) {
    normal.schema = json!({"type": "object"});
    normal.loose.push(Loose {
        path: String::new(),
        keyword: String::new(),
        reason: reason.to_owned(),
    });
}

struct Search<'a> {
    root: &'a Value,
    definitions: Option<Value>,
    compile: Compile<'a>,
    started: Instant,
}

impl Search<'_> {
    /// Goes down, as long as one of the parts fails alone.
    fn smallest(&mut self, from: &str, reason: String) -> (String, String) {
        let (mut at, mut reason) = (from.to_owned(), reason);
        let mut seen = vec![at.clone()];
        'down: while self.started.elapsed() < RELAX_TIME {
            for part in self.parts(&at) {
                if seen.contains(&part) {
                    continue;
                }
                seen.push(part.clone());
                let Some(schema) = self.root.pointer(&part) else {
                    continue;
                };
                if let Err(found) = self.try_out(schema) {
                    (at, reason) = (part, found);
                    continue 'down;
                }
            }
            break;
        }
        (at, reason)
    }

    /// The schemas inside a schema, and what it refers to.
    fn parts(&self, at: &str) -> Vec<String> {
        let Some(Value::Object(schema)) = self.root.pointer(at) else {
            return Vec::new();
        };
        let mut parts = Vec::new();
        for (keyword, value) in schema {
            let here = format!("{at}/{keyword}");
            match (keyword.as_str(), value) {
                ("properties" | "patternProperties", Value::Object(named)) => {
                    let names = named.keys().map(|name| escape_pointer(name));
                    parts.extend(names.map(|name| format!("{here}/{name}")));
                }
                ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(list)) => {
                    parts.extend((0..list.len()).map(|index| format!("{here}/{index}")));
                }
                ("items" | "additionalProperties", Value::Object(_)) => parts.push(here),
                ("$ref", Value::String(reference)) => {
                    parts.extend(reference.strip_prefix('#').map(str::to_owned));
                }
                _ => {}
            }
        }
        parts
    }

    /// What to put in place of the schema there, and the keyword that it lost.
    fn repair(&self, at: &str) -> (Value, String) {
        let Some(Value::Object(schema)) = self.root.pointer(at) else {
            return (json!({}), String::new());
        };
        for suspect in SUSPECTS {
            let Some(value) = schema.get(suspect) else {
                continue;
            };
            if self.started.elapsed() > RELAX_TIME {
                break;
            }
            if suspect == "oneOf" {
                // Any of the options, rather than anything at all.
                let mut less = schema.clone();
                less.shift_remove(suspect);
                if !less.contains_key("anyOf") {
                    less.insert("anyOf".to_owned(), value.clone());
                    if self.try_out(&Value::Object(less.clone())).is_ok() {
                        return (less.into(), suspect.to_owned());
                    }
                }
            }
            let mut less = schema.clone();
            less.shift_remove(suspect);
            if self.try_out(&Value::Object(less.clone())).is_ok() {
                return (less.into(), suspect.to_owned());
            }
        }
        let mut only_type = json!({});
        if at.is_empty() {
            only_type = json!({"type": "object"});
        } else if let Some(types) = schema.get("type") {
            only_type["type"] = types.clone();
        }
        match self.try_out(&only_type) {
            Ok(()) => (only_type, String::new()),
            Err(_) => (json!({}), String::new()),
        }
    }

    /// Compiles a part with the definitions of the whole.
    fn try_out(&self, schema: &Value) -> Result<(), String> {
        let mut schema = schema.clone();
        if let (Value::Object(schema), Some(definitions)) = (&mut schema, &self.definitions) {
            schema.insert("$defs".to_owned(), definitions.clone());
        }
        (self.compile)(&schema)
    }
}

/// Puts `fixed` at the pointer; at the root the definitions stay.
fn replace(root: &mut Value, pointer: &str, mut fixed: Value) {
    if pointer.is_empty() {
        if let (Value::Object(fixed), Some(definitions)) = (&mut fixed, root.get("$defs")) {
            fixed.insert("$defs".to_owned(), definitions.clone());
        }
        *root = fixed;
    } else if let Some(part) = root.pointer_mut(pointer) {
        *part = fixed;
    }
}

/// The compiler's message without the source it quotes and the state it dumps.
pub(crate) fn first_line(message: &str) -> String {
    const LONGEST: usize = 200;
    let mut lines = message.lines().map(str::trim);
    let mut line = lines.next().unwrap_or_default().to_owned();
    if line.ends_with(':') {
        // A parse error: its source follows, and then what is wrong with it.
        let last = lines.rfind(|line| !line.is_empty() && !line.starts_with('<'));
        line = format!("{line} {}", last.unwrap_or_default());
    }
    let mut short: String = line.chars().take(LONGEST).collect();
    if short.len() < line.len() {
        short.push('…');
    }
    short
}
