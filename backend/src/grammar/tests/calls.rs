//! Which calls may come, and how many.

use serde_json::{Value, json};

use super::support::*;
use crate::{
    call_syntax::CallSyntax,
    engine::constraint::{Constraint, Next},
    grammar::{Choice, TextFormat, ToolSet},
};

fn three() -> ToolSet {
    let schema = json!({"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "string", "maxLength": 8}}, "required": ["x"]});
    let names = ["get", "get_weather", "put"];
    tools(
        names
            .map(|name| function(name, &schema))
            .into_iter()
            .collect(),
    )
}

/// Names of the calls in each of `count` walks that ended.
fn names(
    tools: &ToolSet,
    choice: &Choice,
    parallel: bool,
    syntax: CallSyntax,
    count: u64,
) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for seed in 0..count {
        let built = grammars().constraint(tools, choice, parallel, &TextFormat::Text, syntax);
        let mut constraint = built.unwrap().0.unwrap();
        let walked = walk(constraint.as_mut(), &mut Dice::new(seed), 150, &[]);
        let Some(text) = walked.ended() else {
            continue;
        };
        let calls = calls(&text, syntax).unwrap_or_else(|| panic!("no calls: {text}"));
        all.push(calls.into_iter().map(|(name, _)| name).collect());
    }
    assert!(all.len() as u64 > count / 2, "{} walks ended", all.len());
    all
}

#[test]
fn a_required_call_always_comes() {
    for syntax in [CallSyntax::LlamaPythonic].into_iter().chain(SYNTAXES) {
        let all = names(&three(), &Choice::Required, true, syntax, 100);
        assert!(all.iter().all(|calls| !calls.is_empty()));
        assert!(all.iter().any(|calls| calls.len() > 1));
        for name in ["get", "get_weather", "put"] {
            assert!(all.iter().flatten().any(|called| called == name));
        }
    }
}

#[test]
fn without_parallel_calls_there_is_one() {
    for syntax in SYNTAXES {
        let all = names(&three(), &Choice::Required, false, syntax, 100);
        assert!(all.iter().all(|calls| calls.len() == 1));
    }
}

#[test]
fn a_named_function_is_the_only_one_called() {
    for syntax in SYNTAXES {
        for name in ["get", "get_weather"] {
            let choice = Choice::Function(name.to_owned());
            let all = names(&three(), &choice, true, syntax, 100);
            assert!(all.iter().flatten().all(|called| called == name));
        }
    }
}

#[test]
fn required_allowed_tools_are_the_only_ones_called() {
    let choice = Choice::Allowed {
        names: vec!["put".to_owned(), "get".to_owned()],
        required: true,
    };
    for syntax in SYNTAXES {
        let all = names(&three(), &choice, true, syntax, 100);
        assert!(all.iter().all(|calls| !calls.is_empty()));
        assert!(all.iter().flatten().all(|called| called != "get_weather"));
    }
}

#[test]
fn most_of_a_calls_frame_is_forced() {
    let tools = tools(json!([function(
        "get",
        &json!({"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"]})
    )]));
    for (syntax, first) in [
        (
            CallSyntax::LlamaJson,
            "{\"name\": \"get\", \"parameters\": {\"x\": ",
        ),
        (
            CallSyntax::Hermes,
            "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"x\": ",
        ),
        (
            CallSyntax::SmolLm2,
            "<tool_call>[{\"name\": \"get\", \"arguments\": {\"x\": ",
        ),
    ] {
        let (constraint, relaxed) = constraint(&tools, &Choice::Required, syntax);
        let mut constraint = constraint.unwrap();
        assert!(relaxed.is_empty());
        let Next::Forced(tokens) = constraint.next().unwrap() else {
            panic!("nothing forced");
        };
        let vocabulary = vocabulary();
        let bytes: Vec<u8> = tokens
            .iter()
            .flat_map(|token| vocabulary.bytes[*token as usize].clone())
            .collect();
        let text = String::from_utf8(bytes).unwrap();
        // The last piece may merge with what follows, and is left to the model.
        assert!(first.starts_with(text.trim_end()), "{text}");
        assert!(text.len() + 4 > first.len(), "{text}");
        // Canonical: the tokens the tokenizer makes of the text.
        assert_eq!(tokens, encode(&text));
    }
}

#[test]
fn an_unknown_name_is_no_choice() {
    let error = |choice: Choice, tools: &ToolSet| {
        let built =
            grammars().constraint(tools, &choice, true, &TextFormat::Text, CallSyntax::Hermes);
        built.unwrap_err().to_string()
    };
    assert_eq!(
        error(Choice::Function("nope".to_owned()), &three()),
        "tool_choice: names \"nope\", which is no tool of this request"
    );
    assert_eq!(
        error(Choice::Required, &ToolSet::default()),
        "tool_choice: is \"required\", but no tool is offered"
    );
}

#[test]
fn nothing_is_held_where_anything_will_do() {
    let (constraint, _) = constraint(&ToolSet::default(), &Choice::Auto, CallSyntax::Hermes);
    assert!(constraint.is_none());
}

#[test]
fn json_is_answered_where_json_is_asked_for() {
    let schema = json!({"type": "object", "properties": {"title": {"type": "string", "maxLength": 20}}, "required": ["title"], "additionalProperties": false});
    let format = TextFormat::JsonSchema(schema.into());
    for syntax in SYNTAXES {
        for (tools, choice) in [(ToolSet::default(), Choice::Auto), (three(), Choice::None)] {
            let built = grammars().constraint(&tools, &choice, true, &format, syntax);
            let mut constraint = built.unwrap().0.unwrap();
            for seed in 0..20 {
                let walked = walk(constraint.as_mut(), &mut Dice::new(seed), 100, &[]);
                let text = walked.ended().unwrap();
                let value: Value = serde_json::from_str(&text).unwrap();
                assert!(value["title"].is_string(), "{text}");
                constraint = grammars()
                    .constraint(&tools, &choice, true, &format, syntax)
                    .unwrap()
                    .0
                    .unwrap();
            }
        }
    }
}

#[test]
fn with_a_json_format_the_answer_is_json_or_calls() {
    let format = TextFormat::JsonObject;
    for syntax in SYNTAXES {
        let (mut answers, mut called) = (0, 0);
        for seed in 0..60 {
            let built = grammars().constraint(&three(), &Choice::Auto, true, &format, syntax);
            let mut constraint = built.unwrap().0.unwrap();
            let Some(text) = walk(constraint.as_mut(), &mut Dice::new(seed), 100, &[]).ended()
            else {
                continue;
            };
            if serde_json::from_str::<Value>(&text).is_ok_and(|value| value.is_object()) {
                answers += 1;
            } else {
                assert!(calls(&text, syntax).is_some(), "{text}");
                called += 1;
            }
        }
        assert!(answers > 0, "{syntax:?}");
        assert!(called > 0 || syntax == CallSyntax::LlamaJson, "{syntax:?}");
    }
}

#[test]
fn a_format_that_cannot_be_held_is_refused_with_its_place() {
    for (schema, expected) in [
        (
            json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "^a\\!$"}}}),
            "pattern",
        ),
        (
            json!({"type": "object", "properties": {"a": {"not": {"type": "string"}}}}),
            "not at \"/properties/a\"",
        ),
        (
            json!({"type": "object", "properties": {"a": {"minimum": 3, "maximum": 2, "type": "integer"}}, "required": ["a"]}),
            "/properties/a",
        ),
    ] {
        let format = TextFormat::JsonSchema(schema.into());
        let built = grammars().constraint(
            &ToolSet::default(),
            &Choice::Auto,
            true,
            &format,
            CallSyntax::Hermes,
        );
        let error = built.unwrap_err();
        assert_eq!(error.param, "text.format.schema");
        assert!(error.problem.contains(expected), "{error}");
    }
}

#[test]
fn drafts_are_taken_as_far_as_the_grammar_goes_and_leave_it_where_it_was() {
    let (constraint, _) = constraint(&three(), &Choice::Required, CallSyntax::LlamaJson);
    let mut constraint = constraint.unwrap();
    let good = encode("{\"name\": \"put\", \"parameters\": {\"x\": 12}}");
    let mut draft = good.clone();
    draft.extend(encode("nonsense"));
    assert_eq!(constraint.would_accept(&draft), good.len());
    let masks = constraint.masks_along(&good).unwrap();
    assert_eq!(masks.len(), good.len());
    let end = vocabulary().end_tokens[0];
    assert!(masks.last().unwrap().as_ref().unwrap().allows(end));
    for (mask, next) in masks.iter().zip(&good[1..]) {
        assert!(mask.as_ref().unwrap().allows(*next));
    }
    // Where it was: the same draft is still good, and accepted for real.
    assert_eq!(constraint.would_accept(&good), good.len());
    for token in good {
        constraint.accept(token).unwrap();
    }
    constraint.accept(end).unwrap();
    assert_eq!(constraint.next().unwrap(), Next::End);
}

/// A call that repeats one of the history is guessed with the end behind it.
#[test]
fn drafts_go_as_far_as_the_end_and_leave_the_grammar_where_it_was() {
    let end = vocabulary().end_tokens[0];
    let schema = json!({"type": "array", "items": {"type": "integer"}});
    let list = TextFormat::JsonSchema(schema.into());
    let call = "{\"name\": \"put\", \"parameters\": {\"x\": 12}}";
    for (tools, choice, format, text) in [
        (three(), Choice::Required, TextFormat::Text, call),
        (ToolSet::default(), Choice::Auto, list, "[1, 2]"),
    ] {
        let whole = encode(text);
        for begun in 0..whole.len() {
            let built =
                grammars().constraint(&tools, &choice, true, &format, CallSyntax::LlamaJson);
            let mut constraint = built.unwrap().0.unwrap();
            let (begin, rest) = whole.split_at(begun);
            for token in begin {
                constraint.accept(*token).unwrap();
            }
            let draft = [rest, &[end, end]].concat();
            let taken = rest.len() + 1;
            for _ in 0..2 {
                assert_eq!(
                    constraint.would_accept(&draft),
                    taken,
                    "{text} from {begun}"
                );
                let masks = constraint.masks_along(&draft[..taken]).unwrap();
                assert_eq!(masks.len(), taken);
                let last = masks.last().unwrap().as_ref().unwrap();
                assert!(last.allows(end) && !last.allows(whole[0]));
                for (mask, next) in masks.iter().zip(&draft[1..]) {
                    assert!(mask.as_ref().unwrap().allows(*next));
                }
            }
            for token in &draft[..taken] {
                constraint.accept(*token).unwrap();
            }
            assert_eq!(constraint.next().unwrap(), Next::End);
        }
    }
}

#[test]
fn a_token_that_is_not_allowed_is_an_error_and_no_panic() {
    let (constraint, _) = constraint(&three(), &Choice::Required, CallSyntax::LlamaJson);
    let mut constraint = constraint.unwrap();
    assert!(constraint.accept(u32::from(b'x')).is_err());
    assert!(constraint.accept(9_999_999).is_err());
    assert!(constraint.next().is_err());
}

#[test]
fn many_threads_share_a_compiled_request() {
    let tools = three();
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let tools = &tools;
            scope.spawn(move || {
                names(
                    tools,
                    &Choice::Required,
                    true,
                    CallSyntax::Hermes,
                    10 + seed,
                )
            });
        }
    });
}

fn _is_a_constraint(walk: Box<dyn Constraint>) -> impl Send {
    walk
}
