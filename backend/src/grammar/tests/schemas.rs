//! Whatever schema a tool has, what comes out satisfies it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::support::*;
use crate::{
    call_syntax::CallSyntax,
    grammar::{Checked, Checker, Choice, Relaxed},
    testing::{
        Random,
        schemas::{self, Extent},
    },
};

#[test]
fn arguments_satisfy_every_generated_schema() {
    let (mut ended, mut cut, mut relaxations) = (0, 0, BTreeMap::new());
    let mut counts = BTreeMap::new();
    let runs = crate::testing::fuzz_runs(300);
    for seed in 0..runs {
        let extent = match seed % 2 {
            0 => Extent::Open,
            _ => Extent::Bounded,
        };
        let schema = schemas::tool_schema(&mut Random(seed), extent);
        for kind in schemas::kinds(&schema) {
            *counts.entry(kind).or_insert(0) += 1;
        }
        let tools = tools(json!([function("f", &schema)]));
        let checker = Checker::new(tools.get("f").unwrap());
        let mut dice = Dice::new(seed + 1);
        let syntax = *dice.pick(&SYNTAXES);
        let (_, relaxed) = constraint(&tools, &Choice::Required, syntax);
        assert!(
            extent == Extent::Open || relaxed.is_empty(),
            "seed {seed}: {relaxed:?}\n{schema}"
        );
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
    eprintln!("{counts:?}: {ended} walks ended, {cut} were cut; relaxed: {relaxations:?}");
    for kind in schemas::KINDS {
        assert!(counts.contains_key(kind), "no {kind}");
    }
    assert!(ended > cut * 9, "{ended} ended, {cut} cut");
    let relaxed: u64 = relaxations.values().sum();
    assert!(relaxed * 4 < runs, "{relaxed} relaxations");
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
