//! Whatever schema a tool has, what comes out satisfies it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::support::*;
use crate::{
    call_syntax::CallSyntax,
    grammar::{Checked, Checker, Choice, Relaxed},
};

/// Makes schemas, of everything that tools' schemas are made of.
struct Schemas<'a> {
    dice: &'a mut Dice,
    definitions: usize,
}

impl Schemas<'_> {
    fn root(&mut self) -> Value {
        let mut schema = self.object(3);
        let mut definitions = Map::new();
        let mut number = 0;
        while number < self.definitions {
            // Optional, so that a definition may refer to itself and still end.
            let inner = self.schema(1);
            let mut definition =
                json!({"type": "object", "properties": {"value": inner}, "required": ["value"]});
            if self.dice.chance(50) {
                let next = json!({"$ref": format!("#/$defs/D{number}")});
                definition["properties"]["next"] = next;
            }
            definitions.insert(format!("D{number}"), definition);
            number += 1;
        }
        schema["$defs"] = definitions.into();
        schema
    }

    fn schema(&mut self, depth: usize) -> Value {
        let kinds = if depth == 0 { 9 } else { 15 };
        let mut schema = match self.dice.below(kinds) {
            0 | 1 => self.string(),
            2 | 3 => self.number(),
            4 => json!({"type": "boolean"}),
            5 => json!({"type": "null"}),
            6 => json!({"enum": self.values()}),
            7 => json!({"const": self.values()[0]}),
            8 => json!({"type": ["integer", "null"], "minimum": -3}),
            9 | 10 => self.object(depth - 1),
            11 => self.array(depth - 1),
            12 => {
                let count = 1 + self.dice.below(3);
                let options: Vec<Value> = (0..count).map(|_| self.schema(depth - 1)).collect();
                let keyword = *self.dice.pick(&["anyOf", "oneOf"]);
                json!({keyword: options})
            }
            13 => json!({"allOf": [{"$ref": self.reference()}], "description": "hung on"}),
            _ => json!({"$ref": self.reference()}),
        };
        if self.dice.chance(20) {
            schema["description"] = "What it \"is\" for".into();
        }
        if self.dice.chance(10) {
            schema["default"] = json!([1, {"a": null}]);
        }
        schema
    }

    fn reference(&mut self) -> String {
        if self.dice.chance(60) || self.definitions == 0 {
            self.definitions += usize::from(self.definitions < 3);
        }
        format!("#/$defs/D{}", self.dice.below(self.definitions))
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
        let count = 1 + self.dice.below(4);
        let mut values: Vec<Value> = Vec::new();
        for _ in 0..count {
            let value = self.dice.pick(&all).clone();
            if !values.contains(&value) {
                values.push(value);
            }
        }
        values
    }

    fn string(&mut self) -> Value {
        let mut schema = json!({"type": "string"});
        match self.dice.below(6) {
            0 => {
                let patterns = [
                    "^[a-z]{2,5}$",
                    "\\d{3}",
                    "^(foo|bar)-[0-9]+$",
                    "\\S",
                    "^[^\"\\\\]*$",
                    "^\\w+/\\w+$",
                    "[\\n\\t]x$",
                    "^é+$",
                ];
                schema["pattern"] = (*self.dice.pick(&patterns)).into();
            }
            1 => {
                let formats = [
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
                schema["format"] = (*self.dice.pick(&formats)).into();
            }
            2 | 3 => {
                let least = self.dice.below(4);
                schema["minLength"] = least.into();
                schema["maxLength"] = (least + self.dice.below(9)).into();
            }
            _ => {}
        }
        schema
    }

    fn number(&mut self) -> Value {
        let kind = *self.dice.pick(&["integer", "number"]);
        let mut schema = json!({"type": kind});
        let low = self.dice.below(400) as i64 - 200;
        let high = low + 1 + self.dice.below(1000) as i64;
        match self.dice.below(6) {
            0 => schema["minimum"] = low.into(),
            1 => {
                schema["minimum"] = low.into();
                schema["maximum"] = high.into();
            }
            2 => {
                schema["exclusiveMinimum"] = low.into();
                schema["exclusiveMaximum"] = (high + 1).into();
            }
            3 => schema["multipleOf"] = (*self.dice.pick(&[2, 5, 10])).into(),
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
        if self.dice.chance(50) {
            let least = self.dice.below(3);
            schema["minItems"] = least.into();
            schema["maxItems"] = (least + self.dice.below(3)).into();
        }
        if self.dice.chance(15) {
            schema["prefixItems"] = json!([self.schema(depth), {"type": "integer"}]);
        }
        schema
    }

    fn object(&mut self, depth: usize) -> Value {
        let names = [
            "path",
            "count",
            "naïve",
            "a b",
            "with\"quote",
            "recursive",
            "o/k",
            "~x",
        ];
        let mut properties = Map::new();
        let mut required = Vec::new();
        for _ in 0..self.dice.below(5) {
            let name = *self.dice.pick(&names);
            if properties.contains_key(name) {
                continue;
            }
            let property = self.schema(depth);
            properties.insert(name.to_owned(), property);
            if self.dice.chance(50) {
                required.push(name);
            }
        }
        let mut schema = json!({"type": "object", "properties": properties});
        if !required.is_empty() {
            schema["required"] = required.into();
        }
        match self.dice.below(8) {
            0..=2 => schema["additionalProperties"] = false.into(),
            3 => schema["additionalProperties"] = json!({"type": "integer"}),
            4 => schema["patternProperties"] = json!({"^x-": {"type": "boolean"}}),
            _ => {}
        }
        schema
    }
}

#[test]
fn arguments_satisfy_every_generated_schema() {
    let (mut ended, mut cut, mut relaxations) = (0, 0, BTreeMap::new());
    let schemas = crate::testing::fuzz_runs(300);
    for seed in 0..schemas {
        let mut dice = Dice::new(seed + 1);
        let mut maker = Schemas {
            dice: &mut dice,
            definitions: 0,
        };
        let schema = maker.root();
        let tools = tools(json!([function("f", &schema)]));
        let checker = Checker::new(tools.get("f").unwrap());
        let syntax = *dice.pick(&SYNTAXES);
        let (_, relaxed) = constraint(&tools, &Choice::Required, syntax);
        for loose in &relaxed {
            *relaxations.entry(loose.keyword.clone()).or_insert(0) += 1;
        }
        for _ in 0..3 {
            let built = constraint(&tools, &Choice::Required, syntax).0;
            let walked = walk(built.unwrap().as_mut(), &mut dice, 120, &[]);
            let Some(text) = walked.ended() else {
                cut += 1;
                continue;
            };
            ended += 1;
            for (name, arguments) in
                calls(&text, syntax).unwrap_or_else(|| panic!("no calls: {text}\n{schema}"))
            {
                assert_eq!(name, "f");
                match checker.check(&arguments) {
                    Checked::Valid => {}
                    // What was reported may be broken, and nothing else.
                    Checked::Invalid(_) if !relaxed.is_empty() => {}
                    other => panic!("seed {seed}: {other:?}\n{arguments}\n{schema}\n{relaxed:?}"),
                }
            }
        }
    }
    eprintln!("{ended} walks ended, {cut} were cut; relaxed: {relaxations:?}");
    assert!(ended > cut * 9, "{ended} ended, {cut} cut");
    let relaxed: u64 = relaxations.values().sum();
    assert!(relaxed * 4 < schemas, "{relaxed} relaxations");
}

/// What is relaxed of a tool with this schema, and some arguments that come then.
fn relaxed(schema: &Value) -> (Vec<Relaxed>, Vec<Value>) {
    let tools = tools(json!([
        function("f", schema),
        function(
            "plain",
            &json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
        )
    ]));
    let mut arguments = Vec::new();
    let mut relaxed = Vec::new();
    for seed in 0..20 {
        let choice = Choice::Function("f".to_owned());
        let (built, loose) = grammars()
            .constraint(
                &tools,
                &choice,
                false,
                &crate::grammar::TextFormat::Text,
                CallSyntax::LlamaJson,
            )
            .unwrap();
        relaxed = loose;
        let walked = walk(built.unwrap().as_mut(), &mut Dice::new(seed), 80, &[]);
        if let Some(text) = walked.ended() {
            let calls = calls(&text, CallSyntax::LlamaJson).unwrap();
            arguments.push(serde_json::from_str(&calls[0].1).unwrap());
        }
    }
    (relaxed, arguments)
}

fn places(relaxed: &[Relaxed]) -> Vec<(&str, &str)> {
    relaxed
        .iter()
        .map(|loose| (loose.path.as_str(), loose.keyword.as_str()))
        .collect()
}

#[test]
fn a_pattern_with_look_ahead_loses_that_pattern_and_nothing_else() {
    let (relaxed, arguments) = relaxed(&json!({
        "type": "object",
        "properties": {
            "to": {"type": "string", "maxLength": 30, "pattern": "^(?!.*\\.\\.)[a-z.]+@[a-z]+$"},
            "n": {"type": "integer", "minimum": 1, "maximum": 9},
        },
        "required": ["to", "n"],
    }));
    assert_eq!(places(&relaxed), [("/properties/to", "pattern")]);
    assert!(relaxed[0].reason.contains("look"), "{}", relaxed[0].reason);
    for value in arguments {
        assert!(value["to"].as_str().unwrap().chars().count() <= 30);
        assert!((1..=9).contains(&value["n"].as_i64().unwrap()));
    }
}

#[test]
fn each_thing_that_cannot_be_held_is_named_with_its_place() {
    for (schema, expected) in [
        (
            json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}, "uniqueItems": true}}}),
            vec![("/properties/a", "uniqueItems")],
        ),
        (
            json!({"type": "object", "properties": {"a": {"$ref": "https://example.com/x"}}}),
            vec![("/properties/a", "$ref")],
        ),
        (
            json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}}),
            vec![("/properties/a", "$ref")],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "strin"}}}),
            vec![("/properties/a", "type")],
        ),
        (
            json!({"type": "object", "properties": 7}),
            vec![("", "properties")],
        ),
        (
            json!({"type": "object", "properties": {"a": 7}}),
            vec![("/properties/a", "")],
        ),
        (
            json!({"type": "object", "properties": {"a": {"oneOf": [{"type": "number"}, {"type": "number", "minimum": 3}]}}}),
            vec![("/properties/a", "oneOf")],
        ),
        (
            json!({"type": "object", "$defs": {"b": {"type": "string", "pattern": "(?=x)"}}, "properties": {"a": {"$ref": "#/$defs/b"}, "c": {"$ref": "#/$defs/b"}}}),
            vec![("/$defs/b", "pattern")],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "integer", "minimum": 3, "maximum": 2}}, "required": ["a"]}),
            vec![("/properties/a", "minimum")],
        ),
        (json!({"type": "array", "items": {}}), vec![("", "type")]),
        (
            json!({"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}),
            vec![("/properties/next", "$ref")],
        ),
        (
            json!({"type": "object", "properties": {"a": {"const": 123_456_789_012_345_678_i64}}}),
            vec![("/properties/a", "const")],
        ),
        (
            json!({"type": "object", "properties": {"a": {"multipleOf": 1e-300}}}),
            vec![("/properties/a", "multipleOf")],
        ),
    ] {
        let (relaxed, arguments) = relaxed(&schema);
        assert_eq!(places(&relaxed), expected, "{schema}");
        assert!(!arguments.is_empty());
        assert!(
            relaxed
                .iter()
                .all(|loose| loose.tool == "f" && !loose.reason.is_empty())
        );
    }
}

#[test]
fn variants_of_a_tagged_union_are_held_behind_references_too() {
    let variant = |tag: Value| json!({"type": "object", "properties": {"kind": tag, "n": {"type": "integer", "minimum": 1, "maximum": 3}}, "required": ["kind", "n"], "additionalProperties": false});
    let union = |left: Value, right: Value| {
        json!({"type": "object", "$defs": {"tag": {"const": "cat"}, "left": left, "right": right, "either": {"oneOf": [{"$ref": "#/$defs/left"}, {"$ref": "#/$defs/right"}, {"type": "null"}]}},
            "properties": {"of": {"$ref": "#/$defs/either"}}, "required": ["of"]})
    };
    for tags in [
        [json!({"const": "cat"}), json!({"const": "dog"})],
        [json!({"enum": ["cat", 1]}), json!({"enum": ["dog", "1"]})],
        [
            json!({"type": "string"}),
            json!({"type": ["integer", "null"]}),
        ],
        [json!({"$ref": "#/$defs/tag"}), json!({"const": "dog"})],
    ] {
        let [left, right] = tags.map(variant);
        let schema = union(left, right);
        let (relaxed, arguments) = relaxed(&schema);
        assert_eq!(places(&relaxed), [], "{schema}");
        assert!(!arguments.is_empty());
        for value in arguments {
            let of = &value["of"];
            assert!(
                of.is_null() || (1..=3).contains(&of["n"].as_i64().unwrap()),
                "{value}"
            );
        }
    }
    for tags in [
        [json!({"const": "cat"}), json!({"enum": ["dog", "cat"]})],
        [json!({"const": 1}), json!({"const": 1.0})],
        [json!({"type": "integer"}), json!({"type": "number"})],
        [json!({}), json!({"const": "dog"})],
    ] {
        let [left, right] = tags.map(variant);
        let schema = union(left, right);
        assert_eq!(
            places(&relaxed(&schema).0),
            [("/$defs/either", "oneOf")],
            "{schema}"
        );
    }
    // What is at fault inside is named by the client's own words.
    let mut broken = variant(json!({"const": "cat"}));
    broken["properties"]["n"] = json!({"type": "string", "pattern": "(?=x)"});
    let schema =
        json!({"type": "object", "properties": {"of": {"oneOf": [broken, {"type": "null"}]}}});
    assert_eq!(
        places(&relaxed(&schema).0),
        [("/properties/of/oneOf/0/properties/n", "pattern")]
    );
}

#[test]
fn references_of_all_kinds_are_followed() {
    let schema = json!({
        "$id": "https://example.com/tool",
        "type": "object",
        "definitions": {
            "old/style~": {"type": "integer", "minimum": 1, "maximum": 3},
            "named": {"$anchor": "here", "enum": ["x"]},
            "tree": {"type": "object", "properties": {"kids": {"type": "array", "maxItems": 1, "items": {"$ref": "#/definitions/tree"}}}, "required": ["kids"]},
        },
        "properties": {
            "a": {"$ref": "#/definitions/old~1style~0"},
            "b": {"$ref": "#here"},
            "c": {"$ref": "#/properties/a"},
            "d": {"$ref": "https://example.com/tool#/definitions/old~1style%7E0"},
            "e": {"$ref": "#/definitions/tree"},
        },
        "required": ["a", "b", "c", "d", "e"],
    });
    let (relaxed, arguments) = relaxed(&schema);
    assert_eq!(places(&relaxed), []);
    assert!(!arguments.is_empty());
    for value in arguments {
        for name in ["a", "c", "d"] {
            assert!((1..=3).contains(&value[name].as_i64().unwrap()), "{value}");
        }
        assert_eq!(value["b"], "x");
        assert!(value["e"]["kids"].is_array());
    }
}

#[test]
fn objects_are_closed_where_the_schema_says_nothing() {
    let (relaxed, arguments) = relaxed(&json!({
        "properties": {
            "open": {"type": "object"},
            "both": {"type": "object", "allOf": [{"properties": {"x": {"type": "integer"}}, "required": ["x"]}, {"properties": {"y": {"type": "null"}}, "required": ["y"]}]},
            "some": {"type": "object", "properties": {}, "additionalProperties": true},
        },
        "required": ["open", "both", "hidden"],
    }));
    assert_eq!(places(&relaxed), []);
    assert!(
        arguments
            .iter()
            .any(|value| !value["open"].as_object().unwrap().is_empty())
    );
    for value in arguments {
        assert!(
            value
                .as_object()
                .unwrap()
                .keys()
                .all(|key| ["open", "both", "some", "hidden"].contains(&key.as_str())),
            "{value}"
        );
        assert!(value.get("hidden").is_some());
        assert!(value["both"]["x"].is_i64() && value["both"]["y"].is_null());
    }
}

#[test]
fn a_checker_says_what_is_wrong() {
    let tools = tools(json!([
        function(
            "f",
            &json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
        ),
        function(
            "g",
            &json!({"type": "object", "properties": {"n": {"$ref": "https://example.com/"}}})
        )
    ]));
    let checker = Checker::new(tools.get("f").unwrap());
    assert_eq!(checker.check("{\"n\": 1}"), Checked::Valid);
    let Checked::Invalid(problem) = checker.check("{\"n\": \"x\"}") else {
        panic!("a string passed for an integer");
    };
    assert!(problem.starts_with("/n: "), "{problem}");
    assert!(matches!(checker.check("{\"n\": "), Checked::Invalid(_)));
    let odd = Checker::new(tools.get("g").unwrap());
    assert!(matches!(odd.check("{}"), Checked::Unknown(_)));
}
