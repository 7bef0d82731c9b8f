//! Schemas and grammars made to hurt: each gets an answer or an error with a name and a place, soon, and nothing panics.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::support::*;
use crate::{
    backend::{Refusal, RespondError},
    call_syntax::CallSyntax,
    engine::constraint::Next,
    grammar::{Checked, Checker, Choice, GrammarError, TextFormat, ToolSet},
};

const SOON: Duration = Duration::from_secs(5);

/// What becomes of a tool list: some steps of a walk, or the error.
fn outcome(list: &Value) -> Result<(), GrammarError> {
    let started = Instant::now();
    let result = ToolSet::from_request(list.as_array().unwrap()).and_then(|tools| {
        grammars().constraint(
            &tools,
            &Choice::Required,
            true,
            &TextFormat::Text,
            CallSyntax::LlamaJson,
        )
    });
    let took = started.elapsed();
    assert!(took < SOON, "{took:?} to compile");
    let mut constraint = result?.0.unwrap();
    let vocabulary = vocabulary();
    let mut dice = Dice::new(7);
    for _ in 0..40 {
        let started = Instant::now();
        // A limit met on the way is an error too.
        let next = constraint.next();
        let took = started.elapsed();
        assert!(took < SOON, "{took:?} for a mask");
        let tokens = match next {
            Err(_) | Ok(Next::End) => break,
            Ok(Next::Forced(tokens)) => tokens,
            Ok(Next::Free) => panic!("a required call is not free text"),
            Ok(Next::Mask(mask)) => {
                let count = vocabulary.bytes.len() as u32;
                let allowed: Vec<u32> = (0..count).filter(|token| mask.allows(*token)).collect();
                vec![*dice.pick(&allowed)]
            }
        };
        for token in tokens {
            if constraint.accept(token).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn nested(depth: usize) -> Value {
    let mut schema = json!({"type": "string"});
    for _ in 0..depth {
        let mut outer = serde_json::Map::new();
        outer.insert("type".to_owned(), "array".into());
        outer.insert("items".to_owned(), schema);
        schema = outer.into();
    }
    schema
}

#[test]
fn a_schema_nested_ten_thousand_levels_is_refused_by_name() {
    // Whoever has such a value needs the stack to drop it.
    let thread = std::thread::Builder::new().stack_size(256 << 20);
    let check = || {
        let mut list = json!([function("plain", &json!({})), function("deep", &json!({}))]);
        list[1]["parameters"] = nested(10_000);
        let error = outcome(&list).unwrap_err();
        assert_eq!(error.param, "tools[1].parameters");
        assert!(
            error.problem.contains("deep") && error.problem.contains("nested deeper"),
            "{error}"
        );
        let mut format = json!({"text": {"format": {"type": "json_schema", "name": "x"}}});
        format["text"]["format"]["schema"] = nested(10_000);
        let error = TextFormat::from_request(format.as_object().unwrap()).unwrap_err();
        assert_eq!(error.param, "text.format.schema");
    };
    thread.spawn(check).unwrap().join().unwrap();
}

#[test]
fn schemas_made_to_hurt_get_an_answer_soon() {
    let object =
        |schema: Value| json!({"type": "object", "properties": {"a": schema}, "required": ["a"]});
    let megabyte: Vec<String> = (0..60_000)
        .map(|number| format!("alternative {number:x}"))
        .collect();
    let many: serde_json::Map<String, Value> = (0..5_000)
        .map(|number| {
            (
                format!("property{number}"),
                json!({"type": "string", "maxLength": number}),
            )
        })
        .collect();
    let overlapping: Vec<Value> = (0..40).map(|number| json!({"type": "object", "properties": {format!("p{number}"): {"type": "integer", "minimum": number}}})).collect();
    let chain: serde_json::Map<String, Value> = (0..500).map(|number| (format!("D{number}"), json!({"allOf": [{"$ref": format!("#/$defs/D{}", number + 1)}, {"$ref": format!("#/$defs/D{}", number + 1)}]}))).collect();
    let patterns: serde_json::Map<String, Value> = (0..60)
        .map(|number| (format!("(a|b)*{number}(a|b){{20}}"), json!({})))
        .collect();
    for schema in [
        object(json!({"type": "string", "pattern": "(a+)+b"})),
        object(json!({"type": "string", "pattern": "^((a|b)*c(a|b){200})*$"})),
        object(json!({"type": "string", "pattern": "((a{1000}){1000}){1000}"})),
        object(
            json!({"type": "string", "pattern": format!("{}{}", "(".repeat(5000), ")".repeat(5000))}),
        ),
        object(json!({"type": "string", "pattern": "(?<=x)y(?!z)\\1"})),
        object(
            json!({"type": "string", "pattern": "[\\p{L}--\\d&&\\w]{1,300}", "minLength": 200, "maxLength": 250}),
        ),
        object(json!({"type": "string", "minLength": 4_000_000_000_u64})),
        object(json!({"type": "string", "maxLength": u64::MAX})),
        object(json!({"type": "array", "items": {"type": "string"}, "minItems": 1_000_000_000})),
        object(
            json!({"type": "array", "items": {"type": "array", "items": {"type": "integer"}, "maxItems": 100_000}, "maxItems": 100_000}),
        ),
        object(json!({"enum": megabyte})),
        object(
            json!({"anyOf": megabyte.iter().take(20_000).map(|text| json!({"const": text})).collect::<Vec<_>>()}),
        ),
        object(
            json!({"oneOf": megabyte.iter().take(3_000).map(|text| json!({"const": text})).collect::<Vec<_>>()}),
        ),
        json!({"type": "object", "properties": many}),
        json!({"type": "object", "properties": many, "minProperties": 3, "additionalProperties": false}),
        object(
            json!({"allOf": [{"anyOf": overlapping}, {"anyOf": overlapping}, {"anyOf": overlapping}, {"anyOf": overlapping}]}),
        ),
        object(json!({"oneOf": overlapping})),
        json!({"$ref": "#"}),
        json!({"allOf": [{"$ref": "#"}]}),
        json!({"type": "object", "properties": {"a": {"$ref": "#/properties/b"}, "b": {"$ref": "#/properties/a"}}, "required": ["a"]}),
        json!({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a", "type": "object"}),
        json!({"$defs": chain, "properties": {"a": {"$ref": "#/$defs/D0"}}}),
        json!({"type": "object", "patternProperties": patterns}),
        object(json!({"multipleOf": 0})),
        object(
            json!({"type": "number", "multipleOf": 0.000_000_1, "minimum": -1e308, "maximum": 1e308}),
        ),
        object(
            json!({"allOf": [{"type": "number", "multipleOf": 4_294_967_291_u32}, {"multipleOf": 4_294_967_279_u32}]}),
        ),
        object(
            json!({"type": "integer", "minimum": -9_223_372_036_854_775_808_i64, "maximum": u64::MAX}),
        ),
        serde_json::from_str(r#"{"properties":{"a":{"const":1e999}},"required":["a"]}"#).unwrap(),
        json!({"x-guidance": {"lenient": true, "whitespace_pattern": "(", "item_separator": "x"}, "properties": {"a": {"type": "integer"}}}),
        object(nested(150)),
        json!({"type": "object", "properties": {"": {}, "\u{0}": {}, "\"}": {}}, "required": ["", "\u{0}", "\"}"]}),
    ] {
        let list = json!([
            function("plain", &object(json!({"type": "integer"}))),
            function("odd", &schema)
        ]);
        let short: String = schema.to_string().chars().take(200).collect();
        let started = Instant::now();
        if let Err(error) = outcome(&list) {
            assert!(
                !error.problem.contains("the grammar compiler failed"),
                "{short}: {error}"
            );
        }
        eprintln!("{:>8.1?} {short}", started.elapsed());
    }
}

#[test]
fn grammars_made_to_hurt_get_an_answer_soon() {
    let doubled: String = (0..60)
        .map(|number| format!("a{number}: a{0} a{0}\n", number + 1))
        .collect();
    let choices: Vec<String> = (0..60_000)
        .map(|number| format!("\"{number:x}\""))
        .collect();
    let few = choices[..20_000].join("|");
    let rules: String = (0..8_000)
        .map(|number| format!("a{number}: \"x\" a{}\n", number + 1))
        .collect();
    for definition in [
        "start: a\na: a".to_owned(),
        "start: start \"x\" | \"x\"".to_owned(),
        "start: start start | \"x\"".to_owned(),
        "start: start? start? start? \"x\"".to_owned(),
        "start: a*\na: \"\"".to_owned(),
        "start: (((a)*)*)*\na: \"x\"* b?\nb: start".to_owned(),
        format!("start: a0\n{doubled}a60: \"x\""),
        format!("start: a0\n{doubled}a60: \"x\" start?"),
        format!("start: a0\n{rules}a8000: \"x\""),
        format!("start: a0\n{rules}a8000: start?"),
        format!("start: {}", choices.join("|")),
        format!("start: {few}"),
        format!("start: ({few}) start?"),
        format!("start: {}\"x\"{}", "(".repeat(50_000), ")".repeat(50_000)),
        format!("start: {}\"x\"{}", "(".repeat(60), ")".repeat(60)),
        format!("start: /{}x{}/", "(".repeat(50_000), ")".repeat(50_000)),
        "start: /((a{1000}){1000}){1000}/".to_owned(),
        "start: /((a{100}){100}){100}/ start?".to_owned(),
        "start: /(a+)+b/".to_owned(),
        "start: (\"a\"~1..10000)~1..10000".to_owned(),
        "start: (\"a\"~1..10000)~1..10000 start?".to_owned(),
        "start: /[\\p{L}\\p{N}]{500}/ \"x\" /\\w{400}/".to_owned(),
        "start: \"\u{0}\u{ffff}\u{10ffff}\"".to_owned(),
        "%ignore /x*/\nstart: \"y\"".to_owned(),
        "%ignore a\na: \"y\" a\nstart: \"y\"".to_owned(),
        "\u{feff}start: \"a\"".to_owned(),
        String::new(),
    ] {
        let list = json!([function("plain", &json!({})), lark_tool("odd", &definition)]);
        let short: String = definition.chars().take(100).collect();
        let started = Instant::now();
        if let Err(error) = outcome(&list) {
            if error.problem.contains("took more than") {
                // The limit on time, which a busy machine meets sooner; it is an answer too, and does not know the tool.
                continue;
            }
            assert!(error.problem.contains("odd"), "{short}: {error}");
            assert_eq!(error.param, "tools[1].x_grammar.definition");
            eprintln!("{:>8.1?} {short:?}: {error}", started.elapsed());
        } else {
            eprintln!("{:>8.1?} {short:?}", started.elapsed());
        }
    }
    for definition in [
        "((a{0,1000}){0,1000}){0,1000}",
        "(([ab]{0,300}c){0,300}d){0,300}",
        "(.*a.*b.*c.*){1,20}",
        "(a+)+b",
        "(?=x)y",
        "((a{1000}){1000}){1000}",
        "[",
        "\\",
        "(a|aa)*$",
        "(a|b)*c(a|b){300}",
    ] {
        let list = json!([custom_tool("odd", "regex", definition)]);
        let started = Instant::now();
        let result = outcome(&list);
        eprintln!("{:>8.1?} {definition:?}: {result:?}", started.elapsed());
    }
}

#[test]
fn a_list_of_many_tools_compiles_or_is_relaxed_soon() {
    let schema = json!({"type": "object", "properties": {
        "query": {"type": "string", "pattern": "^[a-z]{3,40}( [a-z]{3,40}){0,20}$"},
        "filters": {"type": "array", "items": {"type": "object", "properties": {"field": {"enum": ["a", "b", "c"]}, "value": {"anyOf": [{"type": "string", "format": "email"}, {"type": "number", "minimum": 0, "maximum": 12345}]}}, "required": ["field", "value"]}},
    }, "required": ["query"]});
    let list: Vec<Value> = (0..200)
        .map(|number| function(&format!("tool_{number}"), &schema))
        .collect();
    let started = Instant::now();
    outcome(&list.into()).unwrap();
    eprintln!("200 tools: {:?}", started.elapsed());
    let list: Vec<Value> = (0..2_001)
        .map(|number| function(&format!("t{number}"), &json!({})))
        .collect();
    assert_eq!(outcome(&list.into()).unwrap_err().param, "tools");
}

#[test]
fn mutated_schemas_and_grammars_end_in_an_answer_or_an_error() {
    let schemas = [
        r##"{"type":"object","properties":{"a":{"type":"string","pattern":"^[a-z]+\\d{2,3}$","minLength":2},"b":{"$ref":"#/$defs/n"},"c":{"oneOf":[{"type":"integer","minimum":-5,"multipleOf":3},{"enum":["x",null,1.5]}]},"d":{"type":"array","items":{"type":"number","maximum":1e3},"prefixItems":[{"const":{"k":[1]}}],"minItems":1,"maxItems":4}},"required":["a","b"],"additionalProperties":{"type":"boolean"},"patternProperties":{"^x":{}},"minProperties":1,"$defs":{"n":{"type":["object","null"],"properties":{"next":{"$ref":"#/$defs/n"}},"allOf":[{"required":["next"]}]}}}"##,
    ];
    let larks = [
        "start: begin hunk+ end\nbegin: \"*** Begin Patch\" LF\nend: \"*** End Patch\" LF?\nhunk: \"*** Add File: \" /(.+)/ LF (\"+\" /(.*)/ LF -> line)+\n%import common.LF",
        "?start: sum | start \"-\" sum\nsum: item (\"+\" item)*\nitem: NUMBER~1..3 | \"(\" start \")\" | [\"x\"i]\nNUMBER: /[0-9]{1,2}|\\p{L}/\n%ignore /[ \\n]+/",
    ];
    let words = [
        "\"",
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        "|",
        "*",
        "+",
        "?",
        "~",
        "..",
        ":",
        "/",
        "\\",
        "$ref",
        "#",
        "null",
        "-1",
        "1e400",
        "9999999999",
        "start",
        "%ignore ",
        "\n",
        "a{2,}",
        "\u{0}",
        "é",
        "true",
        ",",
        "anyOf",
        "type",
        "x",
    ];
    let mut outcomes = [0; 2];
    for seed in 0..crate::testing::fuzz_runs(400) {
        let mut dice = Dice::new(seed + 99);
        let lark = dice.chance(50);
        let mut text = (*dice.pick(if lark { &larks[..] } else { &schemas[..] })).to_owned();
        for _ in 0..1 + dice.below(4) {
            mutate(&mut text, &words, &mut dice);
        }
        let tool = match (lark, serde_json::from_str::<Value>(&text)) {
            (true, _) => lark_tool("odd", &text),
            (false, Ok(schema @ Value::Object(_))) => function("odd", &schema),
            (false, _) => function("odd", &shuffled(&schemas[0].parse().unwrap(), &mut dice)),
        };
        let result = outcome(&json!([tool]));
        if let Err(error) = &result {
            assert!(
                !error.problem.contains("the grammar compiler failed"),
                "seed {seed}: {error}\n{tool}"
            );
        }
        outcomes[usize::from(result.is_ok())] += 1;
    }
    eprintln!("{} errors, {} answers", outcomes[0], outcomes[1]);
    assert!(outcomes[0] > 0 && outcomes[1] > 0);
}

fn mutate(text: &mut String, words: &[&str], dice: &mut Dice) {
    let border = |text: &str, dice: &mut Dice| {
        let mut at = dice.below(text.len() + 1);
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    let (one, other) = (border(text, dice), border(text, dice));
    let (from, to) = (one.min(other), one.max(other).min(one.min(other) + 30));
    let to = (to..).find(|at| text.is_char_boundary(*at)).unwrap();
    match dice.below(4) {
        0 => text.insert_str(from, dice.pick::<&str>(words)),
        1 => text.replace_range(from..to, ""),
        2 => text.replace_range(from..to, dice.pick::<&str>(words)),
        _ => {
            let piece = text[from..to].to_owned();
            let at = border(text, dice);
            text.insert_str(at, &piece);
        }
    }
}

/// A schema with some of its values in each other's place.
fn shuffled(schema: &Value, dice: &mut Dice) -> Value {
    let mut parts = vec![
        json!(-1),
        json!("x"),
        json!([]),
        json!(true),
        json!({"$ref": "#"}),
    ];
    let mut open = vec![schema];
    while let Some(value) = open.pop() {
        parts.push(value.clone());
        match value {
            Value::Object(object) => open.extend(object.values()),
            Value::Array(list) => open.extend(list),
            _ => {}
        }
    }
    let mut schema = schema.clone();
    swap(&mut schema, &parts, dice);
    schema
}

fn swap(value: &mut Value, parts: &[Value], dice: &mut Dice) {
    let inner: Vec<&mut Value> = match value {
        Value::Object(object) => object.values_mut().collect(),
        Value::Array(list) => list.iter_mut().collect(),
        _ => Vec::new(),
    };
    for inner in inner {
        if dice.chance(8) {
            *inner = dice.pick(parts).clone();
        } else {
            swap(inner, parts, dice);
        }
    }
}

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
        (json!(100), json!(47), places(&[])),
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
