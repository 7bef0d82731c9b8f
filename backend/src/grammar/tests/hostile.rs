//! Schemas and grammars made to hurt: each gets an answer or an error with a name and a place, soon, and nothing panics.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::support::*;
use crate::{
    call_syntax::CallSyntax,
    engine::constraint::Next,
    grammar::{Choice, GrammarError, TextFormat, ToolSet},
};

const SOON: Duration = Duration::from_secs(5);

/// What becomes of a tool list: some steps of a walk, or the error.
pub(super) fn outcome(list: &Value) -> Result<(), GrammarError> {
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
fn a_format_of_the_wrong_type_is_refused_by_name() {
    for (text, message) in [
        (json!(5), "text: must be an object, but the number 5 came"),
        (
            json!({"format": "json"}),
            "text.format: must be an object, but the string \"json\" came",
        ),
    ] {
        let request = json!({"text": text});
        let error = TextFormat::from_request(request.as_object().unwrap()).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
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
