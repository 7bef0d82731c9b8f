//! Parameters of tools, drawn from a seed: everything that the schemas of real tools are made of.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::Random;

/// How far a drawn schema lets its values go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Extent {
    /// As a careful author writes it: strings and lists have a largest length, alternatives of `oneOf` exclude each other, references do not go round.
    Bounded,
    /// As JSON Schema allows it.
    Open,
}

/// What [`kinds`] tells apart.
pub const KINDS: [&str; 8] = [
    "nested object",
    "array",
    "enum",
    "$ref",
    "oneOf",
    "integer",
    "pattern",
    "optional field",
];

/// The `parameters` of one tool.
pub fn tool_schema(random: &mut Random, extent: Extent) -> Value {
    let depth = match extent {
        Extent::Bounded => 2,
        Extent::Open => 3,
    };
    let mut drawing = Drawing {
        random,
        extent,
        definitions: 0,
        variants: Map::new(),
    };
    let mut schema = drawing.object(depth, 3);
    let mut definitions = Map::new();
    // A definition may ask for further ones.
    while definitions.len() < drawing.definitions {
        let number = definitions.len();
        definitions.insert(format!("D{number}"), drawing.definition(number));
    }
    definitions.extend(drawing.variants);
    if !definitions.is_empty() {
        schema["$defs"] = definitions.into();
    }
    schema
}

/// Which of [`KINDS`] a schema has.
pub fn kinds(schema: &Value) -> BTreeSet<&'static str> {
    let mut found = BTreeSet::new();
    collect(schema, false, &mut found);
    found
}

fn collect(schema: &Value, is_inner: bool, found: &mut BTreeSet<&'static str>) {
    let Value::Object(schema) = schema else {
        return;
    };
    let mut add = |kind: &str, is_there: bool| {
        found.extend(KINDS.into_iter().filter(|known| is_there && *known == kind));
    };
    for keyword in ["enum", "$ref", "oneOf", "pattern"] {
        add(keyword, schema.contains_key(keyword));
    }
    add("array", schema.contains_key("items"));
    add("integer", schema.get("type") == Some(&json!("integer")));
    if let Some(Value::Object(properties)) = schema.get("properties") {
        let required = schema.get("required").and_then(Value::as_array);
        let required = required.map_or(0, Vec::len);
        add("nested object", is_inner);
        add("optional field", required < properties.len());
    }
    for keyword in ["properties", "$defs"] {
        let named = schema.get(keyword).and_then(Value::as_object);
        for inner in named.into_iter().flat_map(Map::values) {
            collect(inner, true, found);
        }
    }
    for keyword in ["anyOf", "oneOf", "allOf", "prefixItems"] {
        let list = schema.get(keyword).and_then(Value::as_array);
        for inner in list.into_iter().flatten() {
            collect(inner, true, found);
        }
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get(keyword) {
            collect(inner, true, found);
        }
    }
}

const NAMES: [&str; 8] = [
    "path",
    "count",
    "naïve",
    "a b",
    "with\"quote",
    "recursive",
    "o/k",
    "~x",
];

/// Patterns whose texts have a largest length.
const SHORT_PATTERNS: [&str; 5] = [
    "^[a-z]{2,5}$",
    "^(foo|bar)-[0-9]{1,3}$",
    "^[A-Z][a-z]{1,9}\\.(rs|py)$",
    "^\\d{4}-\\d{2}$",
    "^é{1,4}$",
];
const PATTERNS: [&str; 8] = [
    "^[a-z]{2,5}$",
    "\\d{3}",
    "^(foo|bar)-[0-9]+$",
    "\\S",
    "^[^\"\\\\]*$",
    "^\\w+/\\w+$",
    "[\\n\\t]x$",
    "^é+$",
];
/// Formats whose texts have a largest length.
const SHORT_FORMATS: [&str; 4] = ["date", "ipv4", "ipv6", "uuid"];
const FORMATS: [&str; 11] = [
    "date",
    "date-time",
    "time",
    "email",
    "ipv4",
    "ipv6",
    "uuid",
    "hostname",
    "duration",
    "uri",
    "int64",
];

struct Drawing<'a> {
    random: &'a mut Random,
    extent: Extent,
    /// How many definitions are referred to.
    definitions: usize,
    /// Definitions that are options of a `oneOf`.
    variants: Map<String, Value>,
}

impl Drawing<'_> {
    fn is_open(&self) -> bool {
        self.extent == Extent::Open
    }

    fn schema(&mut self, depth: usize) -> Value {
        let kinds = if depth == 0 { 9 } else { 18 };
        let mut schema = match self.random.below(kinds) {
            0 | 1 => self.string(),
            2 | 3 => self.number(),
            4 => json!({"type": "boolean"}),
            5 => json!({"type": "null"}),
            6 => json!({"enum": self.values()}),
            7 => json!({"const": self.values()[0]}),
            8 => json!({"type": ["integer", "null"], "minimum": -3}),
            9 | 10 => self.object(depth - 1, 0),
            11 | 12 => self.array(depth - 1),
            13 => json!({"anyOf": self.alternatives(depth - 1)}),
            14 if self.is_open() => json!({"oneOf": self.alternatives(depth - 1)}),
            14 | 15 => json!({"oneOf": self.exclusive(depth - 1)}),
            16 => json!({"allOf": [{"$ref": self.reference()}], "description": "hung on"}),
            _ => json!({"$ref": self.reference()}),
        };
        if self.random.chance(20) {
            schema["description"] = "What it \"is\" for".into();
        }
        if self.random.chance(10) {
            schema["default"] = json!([1, {"a": null}]);
        }
        schema
    }

    fn alternatives(&mut self, depth: usize) -> Vec<Value> {
        let count = 1 + self.random.below(3);
        (0..count).map(|_| self.schema(depth)).collect()
    }

    /// Alternatives of which no value fits two: of different types, or told apart by a constant.
    fn exclusive(&mut self, depth: usize) -> Vec<Value> {
        let count = 2 + self.random.below(2);
        if self.random.chance(50) {
            return (0..count).map(|tag| self.tagged(depth, tag)).collect();
        }
        let mut options = vec![
            self.string(),
            json!({"type": "integer", "minimum": 0, "maximum": 99}),
            json!({"type": "boolean"}),
            json!({"type": "null"}),
            self.object(depth, 0),
        ];
        let first = self.random.below(options.len());
        options.rotate_left(first);
        options.truncate(count);
        options
    }

    /// An object whose property `kind` says which one it is; behind a reference or not.
    fn tagged(&mut self, depth: usize, tag: usize) -> Value {
        let mut option = self.object(depth, 0);
        option["properties"]["kind"] = json!({"const": format!("k{tag}")});
        let mut required = vec![json!("kind")];
        if let Some(Value::Array(names)) = option.get("required") {
            required.extend(names.iter().cloned());
        }
        option["required"] = required.into();
        if self.random.chance(50) {
            return option;
        }
        let name = format!("V{}", self.variants.len());
        self.variants.insert(name.clone(), option);
        json!({"$ref": format!("#/$defs/{name}")})
    }

    fn reference(&mut self) -> String {
        if self.random.chance(60) || self.definitions == 0 {
            self.definitions += usize::from(self.definitions < 3);
        }
        format!("#/$defs/D{}", self.random.below(self.definitions))
    }

    fn definition(&mut self, number: usize) -> Value {
        // At depth 0 nothing refers any further.
        let inner = self.schema(usize::from(self.is_open()));
        let mut definition =
            json!({"type": "object", "properties": {"value": inner}, "required": ["value"]});
        if self.is_open() && self.random.chance(50) {
            // Optional, so that a definition may refer to itself and still end.
            definition["properties"]["next"] = json!({"$ref": format!("#/$defs/D{number}")});
        }
        definition
    }

    fn values(&mut self) -> Vec<Value> {
        let all = [
            json!("auto"),
            json!("ä \"q\" \\ /"),
            json!(""),
            json!(3),
            json!(-7.25),
            json!(true),
            json!(null),
            json!([1, "x"]),
            json!({"k": 1}),
            json!("line\nbreak"),
            json!(1e3),
        ];
        let count = 1 + self.random.below(4);
        let mut values: Vec<Value> = Vec::new();
        for _ in 0..count {
            let value = self.random.pick(&all).clone();
            if !values.contains(&value) {
                values.push(value);
            }
        }
        values
    }

    fn string(&mut self) -> Value {
        let mut schema = json!({"type": "string"});
        let (patterns, formats) = match self.extent {
            Extent::Bounded => (&SHORT_PATTERNS[..], &SHORT_FORMATS[..]),
            Extent::Open => (&PATTERNS[..], &FORMATS[..]),
        };
        match self.random.below(6) {
            0 | 1 => schema["pattern"] = (*self.random.pick(patterns)).into(),
            2 => schema["format"] = (*self.random.pick(formats)).into(),
            4 | 5 if self.is_open() => {}
            _ => {
                let least = self.random.below(4);
                schema["minLength"] = least.into();
                schema["maxLength"] = (least + self.random.below(9)).into();
            }
        }
        schema
    }

    fn number(&mut self) -> Value {
        let kind = *self.random.pick(&["integer", "number"]);
        let mut schema = json!({"type": kind});
        let low = self.random.below(400) as i64 - 200;
        let high = low + 1 + self.random.below(1000) as i64;
        match self.random.below(6) {
            0 => schema["minimum"] = low.into(),
            1 => {
                schema["minimum"] = low.into();
                schema["maximum"] = high.into();
            }
            2 => {
                schema["exclusiveMinimum"] = low.into();
                schema["exclusiveMaximum"] = (high + 1).into();
            }
            3 => schema["multipleOf"] = (*self.random.pick(&[2, 5, 10])).into(),
            4 if kind == "number" => {
                schema["minimum"] = json!(0.25);
                schema["maximum"] = json!(0.75);
            }
            _ => {}
        }
        schema
    }

    fn array(&mut self, depth: usize) -> Value {
        let mut schema = json!({"type": "array", "items": self.schema(depth)});
        if !self.is_open() || self.random.chance(50) {
            let least = self.random.below(3);
            schema["minItems"] = least.into();
            schema["maxItems"] = (least + self.random.below(3)).into();
        }
        if self.random.chance(15) {
            schema["prefixItems"] = json!([self.schema(depth), {"type": "integer"}]);
        }
        schema
    }

    fn object(&mut self, depth: usize, least: usize) -> Value {
        let mut properties = Map::new();
        let mut required = Vec::new();
        let count = least + self.random.below(5);
        while properties.len() < count {
            let name = *self.random.pick(&NAMES);
            if properties.contains_key(name) {
                continue;
            }
            let property = self.schema(depth);
            properties.insert(name.to_owned(), property);
            if self.random.chance(50) {
                required.push(name);
            }
        }
        let mut schema = json!({"type": "object", "properties": properties});
        if !required.is_empty() {
            schema["required"] = required.into();
        }
        match self.random.below(8) {
            0..=2 => schema["additionalProperties"] = false.into(),
            3 if self.is_open() => schema["additionalProperties"] = json!({"type": "integer"}),
            4 if self.is_open() => {
                schema["patternProperties"] = json!({"^x-": {"type": "boolean"}});
            }
            _ => {}
        }
        schema
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn every_kind_is_drawn_again_and_again() {
        for extent in [Extent::Bounded, Extent::Open] {
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            for seed in 0..300 {
                for kind in kinds(&tool_schema(&mut Random(seed), extent)) {
                    *counts.entry(kind).or_default() += 1;
                }
            }
            assert!(
                KINDS.iter().all(|kind| counts.get(kind) >= Some(&60)),
                "{extent:?}: {counts:?}"
            );
        }
    }

    #[test]
    fn a_kind_is_found_where_it_is_and_nowhere_else() {
        let schema = json!({"type": "object", "properties": {"enum": {"type": "boolean"}, "pattern": {"type": "null"}}, "required": ["enum", "pattern"]});
        assert_eq!(kinds(&schema), BTreeSet::new());
        let schema =
            json!({"$defs": {"$ref": {"anyOf": [{"items": {"pattern": "x"}}, {"$ref": "#"}]}}});
        assert_eq!(kinds(&schema), BTreeSet::from(["$ref", "array", "pattern"]));
    }
}
