//! Custom tools: the text in the JSON string is in the language of their grammar.

use serde_json::{Value, json};

use super::support::*;
use crate::{
    call_syntax::CallSyntax,
    grammar::{Choice, TextFormat, ToolSet},
};

fn build(tools: &ToolSet, syntax: CallSyntax) -> Built {
    grammars()
        .constraint(tools, &Choice::Required, false, &TextFormat::Text, syntax)
        .unwrap()
}

/// The inputs of up to `count` random calls of the only tool.
fn inputs(tool: Value, count: u64, steps: usize) -> Vec<String> {
    let tools = tools(json!([tool]));
    let mut inputs = Vec::new();
    for seed in 0..count {
        let syntax = SYNTAXES[seed as usize % 3];
        let (constraint, relaxed) = build(&tools, syntax);
        assert_eq!(relaxed, []);
        let mut dice = Dice::new(seed);
        let walked = walk_out(constraint.unwrap().as_mut(), &mut dice, steps, &[], &WAYS);
        let Some(text) = walked.ended() else {
            continue;
        };
        let calls = calls(&text, syntax).unwrap_or_else(|| panic!("no calls: {text}"));
        let arguments: Value = serde_json::from_str(&calls[0].1).unwrap();
        assert_eq!(arguments.as_object().unwrap().len(), 1);
        inputs.push(arguments["input"].as_str().unwrap().to_owned());
    }
    inputs
}

/// How the texts of these tests come to their end.
const WAYS: [&str; 8] = [
    "\"}}",
    "*** End Patch\"}}",
    "\\n*** End Patch\"}}",
    "x\\n*** End Patch\"}}",
    "+\\n*** End Patch\"}}",
    "x\\n+\\n*** End Patch\"}}",
    ")",
    "]",
];

/// Does the compiler take this text for one of the grammar as it was written, without JSON around it?
fn accepts(definition: &str, text: &str) -> bool {
    let env = toktrie::ApproximateTokEnv::single_byte_env();
    let factory = llguidance::ParserFactory::new_simple(&env).unwrap();
    let grammar = llguidance::api::TopLevelGrammar::from_lark(definition.to_owned());
    let mut matcher = llguidance::Matcher::new(factory.create_parser(grammar));
    let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
    assert!(matcher.get_error().is_none(), "{:?}", matcher.get_error());
    matcher.try_consume_tokens(&tokens).unwrap() == tokens.len() && matcher.is_accepting().unwrap()
}

const PATCH_LIKE: &str = r#"
start: begin hunk+ end
begin: "*** Begin Patch" LF
end: "*** End Patch" LF?
hunk: "*** Add File: " /(.+)/ LF add_line+ | "*** Delete File: " /(.+)/ LF
add_line: "+" /(.*)/ LF -> line
%import common.LF
"#;

#[test]
fn a_patch_is_a_patch_of_the_grammar_as_written() {
    let texts = inputs(lark_tool("apply_patch", PATCH_LIKE), 60, 120);
    assert!(texts.len() >= 50, "{} ended", texts.len());
    assert!(
        texts
            .iter()
            .any(|text| text.contains('"') || text.contains('\\'))
    );
    for text in texts {
        assert!(accepts(PATCH_LIKE, &text), "{text:?}");
    }
}

#[test]
fn codexs_own_grammars_work_as_shipped() {
    let mut definitions = Vec::new();
    for name in ["patch.json", "code_mode.json"] {
        let Some(recorded) = fixture(name) else {
            return;
        };
        find(&recorded, &mut definitions);
    }
    definitions.sort();
    definitions.dedup();
    assert_eq!(definitions.len(), 2);
    for definition in definitions {
        let texts = inputs(lark_tool("apply_patch", &definition), 70, 150);
        assert!(texts.len() >= 50, "{} ended", texts.len());
        for text in texts {
            assert!(accepts(&definition, &text), "{text:?}");
        }
    }
}

fn find(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            if object.get("syntax") == Some(&json!("lark")) {
                found.extend(object["definition"].as_str().map(str::to_owned));
            }
            object.values().for_each(|value| find(value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| find(value, found)),
        _ => {}
    }
}

#[test]
fn a_real_patch_can_be_written() {
    let tools = tools(json!([lark_tool("apply_patch", PATCH_LIKE)]));
    let mut constraint = build(&tools, CallSyntax::LlamaJson).0.unwrap();
    let patch = "*** Begin Patch\n*** Add File: a \"b\".txt\n+tab\there \\n é 漢 \u{1}\n+\n*** Delete File: x\n*** End Patch";
    let call = json!({"name": "apply_patch", "parameters": {"input": patch}}).to_string();
    let call = call
        .replace("\":{\"", "\": {\"")
        .replace("\":\"", "\": \"")
        .replace("\",\"", "\", \"");
    let tokens = encode(&call);
    assert_eq!(constraint.would_accept(&tokens), tokens.len(), "{call}");
    let wrong = encode(&call.replace("\\n+\\n", "\\n-\\n"));
    assert!(constraint.would_accept(&wrong) < wrong.len());
}

#[test]
fn grammars_that_refer_to_themselves_work() {
    let sums = "start: sum\nsum: sum \"+\" item | item\nitem: NUMBER | \"(\" sum \")\"\nNUMBER: /[0-9]{1,2}/\n%ignore \" \"";
    let texts = inputs(lark_tool("calc", sums), 60, 40);
    assert!(texts.len() > 40, "{}", texts.len());
    assert!(texts.iter().any(|text| text.contains('(')));
    assert!(texts.iter().any(|text| text.contains(' ')));
    for text in texts {
        assert!(accepts(sums, &text), "{text:?}");
    }
    let quoted = "start: list\nlist: \"[\" (value (\",\" value)*)? \"]\"\nvalue: list | /\"[a-z\\n\\\\]{0,3}\"/";
    let texts = inputs(lark_tool("lists", quoted), 60, 40);
    assert!(texts.len() > 40, "{}", texts.len());
    assert!(
        texts
            .iter()
            .any(|text| text.contains('\n') || text.contains('\\'))
    );
    for text in texts {
        assert!(accepts(quoted, &text), "{text:?}");
    }
}

#[test]
fn every_feature_of_lark_that_is_read_means_what_it_says() {
    for (definition, good, bad) in [
        (
            "start: \"a\"~2..3",
            vec!["aa", "aaa"],
            vec!["a", "aaaa", ""],
        ),
        ("start: \"a\"~2", vec!["aa"], vec!["a", "aaa"]),
        ("start: [\"a\"] \"b\"i", vec!["ab", "B"], vec!["a", "A"]),
        ("start: \"a\"..\"c\"+", vec!["abc"], vec!["", "d"]),
        (
            "?start.2: x -> y\n  | \"z\" // no\n!x: (\n \"q\" | \"r\"\n )",
            vec!["q", "r", "z"],
            vec!["qr", "y"],
        ),
        (
            "start: A\nA: B | \"x\"\nB: /[^a-z]/",
            vec!["\"", "\\", "\n", "\u{1f}", "é", "x"],
            vec!["a", ""],
        ),
        ("start: /a.c/s", vec!["a\nc", "a\"c"], vec!["ac"]),
        ("start: /a b # no\n/x", vec![], vec![]),
        ("start: /^a$/", vec!["a"], vec!["aa"]),
        (
            "%import common.INT -> N\n%import common (CNAME, WS)\nstart: CNAME \"=\" N\n%ignore WS",
            vec!["x=1", "x \n= 12 "],
            vec!["1=1", "x=1 2"],
        ),
        ("start: \"\"", vec![""], vec!["a"]),
        ("start: \"a\"?", vec!["", "a"], vec!["aa"]),
        ("start: a | \"x\"\na: \"y\" a", vec!["x"], vec!["y", "yx"]),
        (
            "start: \"\\x41\\u00e9\\\"\\\\\"",
            vec!["A\u{e9}\"\\"],
            vec!["A"],
        ),
    ] {
        if good.is_empty() {
            continue;
        }
        let tools = tools(json!([lark_tool("t", definition)]));
        let (_, relaxed) = build(&tools, CallSyntax::LlamaJson);
        assert_eq!(relaxed, [], "{definition}");
        for (texts, expected) in [(good, true), (bad, false)] {
            for text in texts {
                let mut constraint = build(&tools, CallSyntax::LlamaJson).0.unwrap();
                let call = format!(
                    "{{\"name\": \"t\", \"parameters\": {{\"input\": {}}}}}",
                    Value::from(text)
                );
                let tokens = encode(&call);
                let taken = constraint.would_accept(&tokens) == tokens.len();
                assert_eq!(taken, expected, "{text:?} for {definition}");
            }
        }
    }
}

#[test]
fn a_regular_expression_holds_from_start_to_end() {
    for definition in ["[a-c]+\\n\"\\d", "^[a-c]+\\n\"\\d$", "(?:[a-c]+\n\")[0-9]"] {
        let texts = inputs(custom_tool("t", "regex", definition), 40, 30);
        assert!(texts.len() > 30);
        for text in texts {
            let (letters, rest) = text.split_once('\n').unwrap();
            assert!(
                !letters.is_empty() && letters.chars().all(|c| ('a'..='c').contains(&c)),
                "{text:?}"
            );
            assert_eq!((&rest[..1], rest.chars().count()), ("\"", 2), "{text:?}");
        }
    }
}

#[test]
fn what_cannot_be_enforced_is_reported_and_what_is_wrong_is_refused() {
    for definition in [
        "start: /(?=a)b/",
        "start: a{\"x\"}\na{b}: b",
        "%import python.NAME\nstart: NAME",
        "start: /a\\bb/",
    ] {
        let tools = tools(json!([lark_tool("t", definition)]));
        let (constraint, relaxed) = build(&tools, CallSyntax::Hermes);
        assert!(constraint.is_some());
        assert_eq!(relaxed.len(), 1, "{definition}");
        assert_eq!(
            (relaxed[0].path.as_str(), relaxed[0].keyword.as_str()),
            ("/properties/input", "format")
        );
    }
    for (definition, problem) in [
        ("", "start is not defined"),
        ("start: a", "a is not defined"),
        ("start: start", "no text can ever match start"),
        ("start: a\na: b\nb: a \"x\"", "no text can ever match start"),
        ("start: /[^\\s\\S]/", "no text can ever match start"),
        ("start: \"abc", "line 1: a string has no end"),
        ("start: /abc", "line 1: a regular expression has no end"),
        ("start: /(/", "unclosed group"),
        ("start: \"\\q\"", "is no escape"),
        ("start: \"\\ud800\"", "is no escape"),
        (
            "start: \"a\"\nstart: \"b\"",
            "line 2: start is defined twice",
        ),
        ("start: (\"a\"", "\")\" is missing"),
        ("start: \"a\"~3..2", "3..2 is no range"),
        ("start: \"a\"~999999", "a repetition is a number up to"),
        ("start ยง", "means nothing here"),
    ] {
        let tools = tools(json!([
            function("other", &json!({})),
            lark_tool("t", definition)
        ]));
        let built = grammars().constraint(
            &tools,
            &Choice::Auto,
            true,
            &TextFormat::Text,
            CallSyntax::Hermes,
        );
        let error = built.unwrap_err();
        assert_eq!(error.param, "tools[1].x_grammar.definition");
        assert!(
            error.problem.starts_with("tool \"t\": the grammar "),
            "{error}"
        );
        assert!(error.problem.contains(problem), "{error}");
    }
}
