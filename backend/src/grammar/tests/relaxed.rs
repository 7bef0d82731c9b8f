//! What the compiler cannot hold (numbers, steps, depth, counts) is left out and named, or refused, before it is asked.

use serde_json::{Value, json};

use super::{hostile::outcome, support::*};
use crate::{
    backend::{Refusal, RespondError},
    call_syntax::CallSyntax,
    grammar::{Checked, Checker, Choice, GrammarError, TextFormat, ToolSet},
};

/// A tool with one argument of this schema.
fn one_argument(schema: &Value) -> Value {
    json!([function(
        "f",
        &json!({"type": "object", "properties": {"a": schema}, "required": ["a"], "additionalProperties": false})
    )])
}

/// What is relaxed of the only tool, and arguments that come then.
fn held(list: &Value) -> (Vec<(String, String)>, Vec<Value>) {
    let tools = tools(list.clone());
    let mut relaxed = Vec::new();
    let mut arguments = Vec::new();
    for seed in 0..10 {
        let (built, loose) = constraint(&tools, &Choice::Required, CallSyntax::LlamaJson);
        relaxed = loose;
        let walked = walk(built.unwrap().as_mut(), &mut Dice::new(seed), 80, &[]);
        let calls = walked
            .ended()
            .map(|text| calls(&text, CallSyntax::LlamaJson).unwrap());
        let calls = calls.into_iter().flatten();
        arguments.extend(calls.map(|(_, text)| serde_json::from_str::<Value>(&text).unwrap()));
    }
    let places = relaxed.into_iter().map(|loose| (loose.path, loose.keyword));
    (places.collect(), arguments)
}

fn answer_of(schema: &Value) -> Result<(), GrammarError> {
    let format =
        json!({"text": {"format": {"type": "json_schema", "name": "x", "schema": schema}}});
    let format = TextFormat::from_request(format.as_object().unwrap())?;
    let (tools, syntax) = (ToolSet::default(), CallSyntax::LlamaJson);
    grammars()
        .constraint(&tools, &Choice::Auto, true, &format, syntax)
        .map(drop)
}

#[test]
fn numbers_beyond_the_compilers_are_left_out_and_named() {
    const LEAST: i64 = i64::MIN;
    for (schema, keywords) in [
        (json!({"type": "integer", "enum": [LEAST, 0]}), vec!["enum"]),
        (json!({"type": "integer", "enum": [LEAST]}), vec!["enum"]),
        (json!({"const": LEAST}), vec!["const"]),
        (json!({"const": {"k": [LEAST]}}), vec!["const"]),
        (json!({"const": u64::MAX}), vec!["const"]),
        (
            json!({"type": "integer", "minimum": -1e300, "maximum": -1e300}),
            vec!["minimum", "maximum"],
        ),
        (
            json!({"type": "integer", "minimum": LEAST, "maximum": LEAST + 1}),
            vec!["minimum", "maximum"],
        ),
        (
            json!({"type": "integer", "exclusiveMinimum": LEAST, "exclusiveMaximum": LEAST + 2}),
            vec!["exclusiveMinimum", "exclusiveMaximum"],
        ),
        (
            json!({"type": "integer", "minimum": LEAST, "exclusiveMinimum": true}),
            vec!["minimum"],
        ),
        (
            json!({"type": "integer", "maximum": i64::MAX, "exclusiveMaximum": true}),
            vec!["maximum"],
        ),
        (
            json!({"type": "integer", "multipleOf": -5}),
            vec!["multipleOf"],
        ),
        (
            json!({"type": "integer", "multipleOf": 0}),
            vec!["multipleOf"],
        ),
        (
            json!({"type": "integer", "minimum": 0, "maximum": i64::MAX}),
            vec![],
        ),
        (
            json!({"type": "integer", "minimum": -9_007_199_254_740_991_i64, "maximum": 9_007_199_254_740_991_i64}),
            vec![],
        ),
    ] {
        let (relaxed, _) = held(&one_argument(&schema));
        let places = keywords
            .iter()
            .map(|keyword| ("/properties/a".to_owned(), (*keyword).to_owned()));
        assert_eq!(relaxed, places.collect::<Vec<_>>(), "{schema}");
        assert_eq!(answer_of(&schema).is_ok(), keywords.is_empty(), "{schema}");
    }
    let (_, arguments) = held(&one_argument(&json!({"enum": [LEAST, 0]})));
    assert!(!arguments.is_empty());
    assert!(arguments.iter().all(|value| *value == json!({"a": 0})));
}

#[test]
fn steps_whose_common_multiple_overflows_are_left_out_and_named() {
    let both = |one: Value, other: Value| json!({"type": "integer", "minimum": 14_100, "maximum": 14_100, "allOf": [{"multipleOf": one}, {"multipleOf": other}]});
    let places = |parts: &[usize]| -> Vec<(String, String)> {
        let place = |part: &usize| {
            (
                format!("/properties/a/allOf/{part}"),
                "multipleOf".to_owned(),
            )
        };
        parts.iter().map(place).collect()
    };
    for (one, other, expected) in [
        (json!(100_000), json!(100_000), places(&[0, 1])),
        (json!(100), json!(65_521), places(&[1])),
        (json!(100), json!(30), places(&[])),
    ] {
        let (relaxed, arguments) = held(&one_argument(&both(one, other)));
        assert_eq!(relaxed, expected);
        assert!(arguments.iter().all(|value| *value == json!({"a": 14_100})));
    }
    let schema = json!({"type": "integer", "minimum": 1, "maximum": 20, "allOf": [{"multipleOf": 4}, {"multipleOf": 6}]});
    let (relaxed, arguments) = held(&one_argument(&schema));
    assert_eq!(relaxed, []);
    assert!(arguments.iter().all(|value| *value == json!({"a": 12})));
}

/// What the compiler takes and the parser would only refuse in the middle of a call.
#[test]
fn what_has_too_many_states_or_alternatives_is_left_out_and_named() {
    let many = |count: usize, make: fn(usize) -> Value| (0..count).map(make).collect::<Value>();
    let contains = |number| json!({"type": "string", "pattern": format!(".*x{number}.*")});
    let object = |number| json!({"type": "object", "properties": {format!("k{number}"): {"type": "integer"}}});
    for (schema, relaxed) in [
        (
            json!({"type": "integer", "multipleOf": 60_000, "minimum": 0, "maximum": 3_600_000}),
            vec!["multipleOf"],
        ),
        (
            json!({"type": "integer", "multipleOf": 4_000, "minimum": 0}),
            vec![],
        ),
        (json!({"type": "number", "multipleOf": 0.01}), vec![]),
        (
            json!({"enum": many(1_001, |number| json!({"k": number}))}),
            vec!["enum"],
        ),
        (
            json!({"enum": many(1_000, |number| json!([number]))}),
            vec![],
        ),
        (json!({"enum": many(3_000, |number| json!(number))}), vec![]),
        (json!({"anyOf": many(1_001, object)}), vec!["anyOf"]),
        (
            json!({"anyOf": many(2_100, |number| json!({"const": format!("s{number}")}))}),
            vec![],
        ),
        (
            json!({"allOf": many(20, contains)}),
            [vec!["pattern"; 16], vec!["allOf"]].concat(),
        ),
    ] {
        let (left_out, arguments) = held(&one_argument(&schema));
        let keywords: Vec<&str> = left_out
            .iter()
            .map(|(_, keyword)| keyword.as_str())
            .collect();
        assert_eq!(keywords, relaxed, "{schema}");
        assert!(relaxed.is_empty() || !arguments.is_empty());
    }
    let steps = many(
        40,
        |number| json!({"type": "integer", "multipleOf": 997 + number}),
    );
    let (left_out, _) = held(&one_argument(
        &json!({"type": "array", "prefixItems": steps}),
    ));
    assert_eq!(left_out.len(), 36);
}

/// `count` definitions, each `link` of a reference to the next, in the argument of one tool.
fn chain(count: usize, link: impl Fn(Value) -> Value) -> Value {
    let reference = |number: usize| json!({"$ref": format!("#/$defs/c{number}")});
    let mut definitions: serde_json::Map<String, Value> = (0..count)
        .map(|number| (format!("c{number}"), link(reference(number + 1))))
        .collect();
    definitions.insert(format!("c{count}"), json!({"type": "object"}));
    json!({"type": "object", "properties": {"a": reference(0)}, "required": ["a"], "$defs": definitions})
}

#[test]
fn references_that_lead_too_deep_are_given_up_and_named() {
    let items = |inner: Value| json!({"type": "array", "items": inner});
    let nested = |mut inner: Value| {
        for _ in 0..50 {
            inner = items(inner);
        }
        inner
    };
    let property = |inner: Value| json!({"type": "object", "properties": {"p": inner}});
    let any = |inner: Value| json!({"anyOf": [{"type": "null"}, inner]});
    // The compiler walks a way of plain references while it merges, and goes on from its end.
    let merged = |count: usize| {
        let mut schema = chain(60, |inner| inner);
        for number in 0..count {
            let next = json!({"$ref": format!("#/$defs/m{}", number + 1)});
            schema["$defs"][format!("m{number}")] =
                json!({"allOf": [{"$ref": "#/$defs/c0"}, next]});
        }
        schema["$defs"][format!("m{count}")] = json!({"type": "object"});
        schema["properties"]["b"] = json!({"$ref": "#/$defs/m0"});
        schema
    };
    let mut circle = chain(10_000, items);
    circle["$defs"]["c10000"] = any(json!({"$ref": "#/$defs/c0"}));
    for schema in [
        chain(10_000, items),
        chain(50_000, items),
        chain(300, nested),
        chain(10_000, property),
        chain(10_000, any),
        chain(10_000, |inner| inner),
        merged(3_000),
        circle,
    ] {
        let list = json!([function("f", &schema)]);
        let short: String = schema.to_string().chars().take(100).collect();
        let tools = tools(list);
        let (_, relaxed) = constraint(&tools, &Choice::Required, CallSyntax::LlamaJson);
        let [loose] = &relaxed[..] else {
            panic!("{short}: {relaxed:?}");
        };
        assert_eq!((&*loose.path, &*loose.keyword), ("", "$ref"), "{short}");
        let error = answer_of(&schema).unwrap_err();
        assert_eq!(error.param, "text.format.schema");
        assert!(error.problem.contains("deeper"), "{error}");
        let checked = Checker::new(tools.get("f").unwrap()).check("{\"a\": {}}");
        assert!(matches!(checked, Checked::Unknown(_)), "{checked:?}");
    }
    // As deep as is allowed, which the stack must bear.
    for schema in [
        chain(3_900, items),
        chain(150, nested),
        chain(3_900, any),
        merged(60),
    ] {
        if let Err(error) = outcome(&json!([function("f", &schema)])) {
            assert!(error.problem.contains("took more than"), "{error}");
        }
    }
    let short = chain(100, property);
    assert_eq!(held(&json!([function("f", &short)])).0, []);
}

#[test]
fn grammars_that_are_too_deep_written_out_are_refused() {
    let rules = |count: usize, rule: &dyn Fn(usize) -> String, end: &str| {
        let lines: Vec<String> = (0..count)
            .map(|at| format!("a{at}: {}\n", rule(at + 1)))
            .collect();
        format!("start: a0\n{}a{count}: {end}", lines.concat())
    };
    let groups = |next: usize| format!("{}\"x\" a{next}{}", "(".repeat(50), ")?".repeat(50));
    let beside = |next: usize| format!("\"\" a{next}");
    for definition in [
        rules(12_000, &beside, "/[a-z]/"),
        rules(12_000, &|next| format!("\"x\" a{next}"), "/[a-z]/"),
        rules(400, &groups, "\"x\""),
        rules(400, &groups, "start?"),
    ] {
        let short: String = definition.chars().take(100).collect();
        let error = outcome(&json!([lark_tool("odd", &definition)])).unwrap_err();
        assert_eq!(error.param, "tools[0].x_grammar.definition", "{short}");
        assert!(error.problem.contains("levels deep"), "{short}: {error}");
    }
    // As deep as is allowed, which the stack must bear.
    for definition in [
        rules(900, &beside, "/[a-z]/"),
        rules(4_000, &beside, "start?"),
        rules(100, &groups, "start?"),
    ] {
        if let Err(error) = outcome(&json!([lark_tool("odd", &definition)])) {
            assert!(!error.problem.contains("levels deep"), "{error}");
        }
    }
}

#[test]
fn a_client_that_comes_while_too_much_is_compiled_is_told_when_to_come_back() {
    let busy = GrammarError::busy("tools", "earlier grammars are still being compiled");
    let refused = RespondError::from(busy);
    assert_eq!(refused.refusal, Refusal::Busy { retry_after: 5 });
    assert_eq!(
        refused.error.message,
        "tools: earlier grammars are still being compiled; try again in 5s"
    );
    assert_eq!(refused.error.code.as_deref(), Some("rate_limit_exceeded"));
}

#[test]
fn what_the_parser_would_only_refuse_on_the_way_is_left_out_before() {
    let named: serde_json::Map<String, Value> = (0..600)
        .map(|number| (format!("p{number}"), json!({"type": "string"})))
        .collect();
    let schema = json!({"type": "object", "properties": named, "required": ["p1"], "additionalProperties": false});
    let (relaxed, _) = held(&json!([function("f", &schema)]));
    assert_eq!(relaxed, [(String::new(), "properties".to_owned())]);
    let many = json!({"type": "array", "minItems": 1_000_000, "items": {"type": "null"}});
    let (relaxed, _) = held(&one_argument(&many));
    let place = ("/properties/a".to_owned(), "minItems".to_owned());
    assert_eq!(relaxed, [place]);
    let error = answer_of(&many).unwrap_err();
    assert_eq!(error.param, "text.format.schema");
    assert!(error.problem.contains("minItems"), "{error}");
}

#[test]
fn a_format_that_is_an_annotation_is_no_constraint() {
    for format in ["password", "uri-reference", "idn-email", "int32"] {
        let schema = json!({"type": "string", "format": format});
        assert_eq!(answer_of(&schema), Ok(()), "{format}");
        assert_eq!(held(&one_argument(&schema)).0, [], "{format}");
    }
    let error = answer_of(&json!({"type": "string", "format": 7})).unwrap_err();
    assert!(error.problem.contains("must be a string"), "{error}");
}

#[test]
fn arguments_are_an_object_whatever_the_root_refers_to() {
    let root = |target: Value| {
        json!([function(
            "f",
            &json!({"$ref": "#/$defs/x", "$defs": {"x": target, "y": {"$ref": "#/$defs/x"}}})
        )])
    };
    let dropped = [(String::new(), "$ref".to_owned())];
    let object = json!({"type": "object", "properties": {"n": {"type": "integer", "maximum": 3}}, "required": ["n"]});
    for (target, expected) in [
        (json!({"type": "string", "const": "hi"}), &dropped[..]),
        (json!({"type": "array", "items": {}}), &dropped[..]),
        (
            json!({"anyOf": [{"type": "string"}, object]}),
            &dropped[..0],
        ),
        (object, &dropped[..0]),
    ] {
        let list = root(target);
        let (relaxed, arguments) = held(&list);
        assert_eq!(relaxed, expected, "{list}");
        assert!(
            !arguments.is_empty() && arguments.iter().all(Value::is_object),
            "{list}"
        );
    }
}
