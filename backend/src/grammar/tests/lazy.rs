//! Free text, and the moment it becomes a call.

use serde_json::json;

use super::support::*;
use crate::{
    call_syntax::CallSyntax,
    engine::constraint::Next,
    grammar::{Choice, ToolSet},
};

fn two() -> ToolSet {
    let schema =
        json!({"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]});
    tools(json!([function("get", &schema), function("put", &schema)]))
}

/// Walks on from `text`, which the model has written; the whole text, when it ended.
fn after(text: &str, choice: &Choice, syntax: CallSyntax, seed: u64) -> Option<String> {
    let mut constraint = constraint(&two(), choice, syntax).0.unwrap();
    walk(
        constraint.as_mut(),
        &mut Dice::new(seed),
        100,
        &encode(text),
    )
    .ended()
}

#[test]
fn behind_the_marker_only_calls_and_the_end_come() {
    for (syntax, start) in [
        (CallSyntax::Hermes, "I look. <tool_call>"),
        (CallSyntax::SmolLm2, "I look.\n<tool_call>"),
        (CallSyntax::LlamaJson, "  {\"name\": \"get\""),
        (CallSyntax::LlamaJson, "Let me see:\n{ \"name\" :\"put\""),
        (
            CallSyntax::LlamaJson,
            "{\"type\": \"function\", \"name\": \"put\"",
        ),
    ] {
        let mut ended = 0;
        for seed in 0..40 {
            let Some(text) = after(start, &Choice::Auto, syntax, seed) else {
                continue;
            };
            ended += 1;
            let tag = syntax.marker().unwrap_or_default();
            let prose = start.trim_end_matches(tag);
            let call = match syntax.marker() {
                Some(_) => text[prose.len()..].to_owned(),
                // The start in the grammar's own layout.
                None => {
                    let name = if start.contains("put") { "put" } else { "get" };
                    format!("{{\"name\": \"{name}\"{}", &text[start.len()..])
                }
            };
            assert!(calls(&call, syntax).is_some(), "{text}");
        }
        assert!(ended > 30, "{ended}");
    }
}

#[test]
fn a_token_may_go_on_beyond_the_start_only_as_a_call_does() {
    let mut hermes = constraint(&two(), &Choice::Auto, CallSyntax::Hermes)
        .0
        .unwrap();
    for token in encode("<tool_call") {
        hermes.accept(token).unwrap();
    }
    let Next::Mask(mask) = hermes.next().unwrap() else {
        panic!("the marker is not watched");
    };
    let allows = |piece: &str| mask.allows(encode(piece)[0]);
    assert_eq!(encode(">[").len(), 1);
    assert!(allows(">") && allows(">\n") && allows("x"));
    assert!(!allows(">[") && !allows("><"));
    // What goes on is part of the call already.
    hermes.accept(encode(">\n")[0]).unwrap();
    let Next::Forced(tokens) = hermes.next().unwrap() else {
        panic!("the call's frame is not forced");
    };
    assert_eq!(tokens[0], encode("{\"name\": \"")[0]);
}

#[test]
fn other_json_is_text() {
    let texts = [
        "{\"name\": \"nobody\", \"parameters\": 1}",
        "{\"answer\": {\"name\": \"get\", \"x\": 1}}",
        "[\n{\"name\": \"get\"}]",
        "```json\n{\"name\": \"get\"}\n```",
        "The call {\"name\": \"get\"} is one.",
    ];
    for text in texts {
        let mut constraint = constraint(&two(), &Choice::Auto, CallSyntax::LlamaJson)
            .0
            .unwrap();
        for token in encode(text) {
            constraint.accept(token).unwrap();
        }
        assert_eq!(constraint.next().unwrap(), Next::Free, "{text}");
    }
}

#[test]
fn where_no_call_may_come_none_can_be_written() {
    for syntax in [CallSyntax::LlamaPythonic].into_iter().chain(SYNTAXES) {
        for seed in 0..100 {
            let start = match (syntax.marker(), seed % 3) {
                (_, 0) => "",
                (Some(_), _) => "<tool_call",
                (None, 1) if syntax == CallSyntax::LlamaPythonic => "[get",
                (None, 1) => "{ \"name\":\"get",
                (None, _) => "{\"name\": \"put",
            };
            let mut constraint = constraint(&two(), &Choice::None, syntax).0.unwrap();
            let walked = walk(
                constraint.as_mut(),
                &mut Dice::new(seed),
                60,
                &encode(start),
            );
            let text = walked.text().trim_start();
            let forbidden: &[&str] = match syntax {
                CallSyntax::Hermes | CallSyntax::SmolLm2 => &["<tool_call>"],
                _ => &[
                    "{\"name\": \"get\"",
                    "{ \"name\":\"get\"",
                    "{\"name\": \"put\"",
                    "[get(",
                ],
            };
            for start in forbidden {
                let found = if syntax.marker().is_some() {
                    text.contains(start)
                } else {
                    text.starts_with(start)
                };
                assert!(!found, "{syntax:?}: {text}");
            }
        }
    }
}

#[test]
fn a_tool_that_is_not_allowed_cannot_be_named() {
    let choice = Choice::Allowed {
        names: vec!["put".to_owned()],
        required: false,
    };
    for syntax in SYNTAXES {
        let mut constraint = constraint(&two(), &choice, syntax).0.unwrap();
        let start = match syntax {
            CallSyntax::LlamaJson => "{\"name\": \"",
            CallSyntax::Hermes => "<tool_call>\n{\"name\": \"",
            _ => "<tool_call>[{\"name\": \"",
        };
        for token in encode(start) {
            constraint.accept(token).unwrap();
        }
        if syntax == CallSyntax::LlamaJson {
            // Still text, where a name may be anything but that of the other tool.
            for token in encode("ge") {
                constraint.accept(token).unwrap();
            }
            constraint.accept(u32::from(b't')).unwrap();
            let Next::Mask(mask) = constraint.next().unwrap() else {
                panic!("the name is not watched");
            };
            assert!(!mask.allows(u32::from(b'"')));
            assert!(mask.allows(u32::from(b's')));
        } else {
            assert_eq!(constraint.would_accept(&encode("get")), 0);
            assert_eq!(constraint.would_accept(&encode("put")), 1);
        }
    }
}

#[test]
fn the_python_tag_begins_a_call_and_is_forbidden_with_calls() {
    let tag = control("<|python_tag|>");
    let mut auto = constraint(&two(), &Choice::Auto, CallSyntax::LlamaJson)
        .0
        .unwrap();
    auto.accept(tag).unwrap();
    assert!(matches!(auto.next().unwrap(), Next::Forced(_)));
    let mut none = constraint(&two(), &Choice::None, CallSyntax::LlamaJson)
        .0
        .unwrap();
    let Next::Mask(mask) = none.next().unwrap() else {
        panic!("the tag is not forbidden");
    };
    assert!(!mask.allows(tag));
    assert!(none.accept(tag).is_err());
}

#[test]
fn an_empty_list_is_no_call_and_may_not_stand_for_a_required_one() {
    let mut auto = constraint(&two(), &Choice::Auto, CallSyntax::SmolLm2)
        .0
        .unwrap();
    let list = encode("<tool_call>[]</tool_call>");
    assert_eq!(auto.would_accept(&list), list.len());
    let mut required = constraint(&two(), &Choice::Required, CallSyntax::SmolLm2)
        .0
        .unwrap();
    assert!(required.would_accept(&list) < list.len());
}

#[test]
fn drafts_cross_from_text_into_a_call() {
    let mut constraint = constraint(&two(), &Choice::Auto, CallSyntax::Hermes)
        .0
        .unwrap();
    let draft =
        encode("ok <tool_call>\n{\"name\": \"put\", \"arguments\": {\"x\": 1}}\n</tool_call>");
    assert_eq!(constraint.would_accept(&draft), draft.len());
    let masks = constraint.masks_along(&draft).unwrap();
    assert!(masks[0].is_none());
    assert!(masks.last().unwrap().is_some());
    assert_eq!(constraint.next().unwrap(), Next::Free);
}
