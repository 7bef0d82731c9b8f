//! A number ends, however much a model likes digits.

use serde_json::{Value, json};

use super::support::*;
use crate::{
    call_syntax::CallSyntax,
    device::TokenMask,
    engine::constraint::{Constraint, Next},
    grammar::{Checked, Checker, Choice, TextFormat, ToolSet},
};

/// Draws the first of these that may come, and any token where none may.
fn write(constraint: &mut dyn Constraint, liked: &str) -> String {
    let vocabulary = vocabulary();
    let mut text = Vec::new();
    for _ in 0..300 {
        let token = match constraint.next().unwrap() {
            Next::End => return String::from_utf8(text).unwrap(),
            Next::Free => panic!("nothing is held"),
            Next::Forced(tokens) => {
                for token in tokens {
                    constraint.accept(token).unwrap();
                    text.extend_from_slice(&vocabulary.bytes[token as usize]);
                }
                continue;
            }
            Next::Mask(mask) => pick(&mask, liked),
        };
        assert_eq!(constraint.would_accept(&[token]), 1);
        constraint.accept(token).unwrap();
        if !vocabulary.control[token as usize] {
            text.extend_from_slice(&vocabulary.bytes[token as usize]);
        }
    }
    panic!("no end: {}", String::from_utf8_lossy(&text));
}

fn pick(mask: &TokenMask, liked: &str) -> u32 {
    let mut liked = liked.bytes().map(u32::from);
    let all = 0..vocabulary().bytes.len() as u32;
    let first = liked.find(|token| mask.allows(*token));
    first.unwrap_or_else(|| all.rev().find(|token| mask.allows(*token)).unwrap())
}

fn one(number: &Value) -> ToolSet {
    tools(json!([function(
        "f",
        &json!({"type": "object", "properties": {"n": number}, "required": ["n"]})
    )]))
}

#[test]
fn a_number_in_a_call_has_as_many_digits_as_a_client_can_hold() {
    for (number, liked, expected) in [
        (json!({"type": "integer"}), "7}", "7777777777777777777"),
        (json!({"type": "integer"}), "-7}", "-7777777777777777777"),
        (
            json!({"type": "integer", "minimum": 5}),
            "7}",
            "7777777777777777777",
        ),
        (
            json!({"type": "number"}),
            "7.}",
            "7777777777777777777.7777777777777777777",
        ),
        (
            json!({"type": "number", "minimum": 0, "maximum": 1}),
            "3.0}",
            "0.3333333333333333333",
        ),
        (json!({"type": "number"}), "e7}", "7e77"),
        (json!({}), "7}", "7777777777777777777"),
        (
            json!({"type": "integer", "multipleOf": 100}),
            "70}",
            "777777777777777700",
        ),
        (json!({"multipleOf": 0.5}), "-7}", "-777777777777777777"),
    ] {
        for syntax in SYNTAXES {
            let tools = one(&number);
            let built =
                grammars().constraint(&tools, &Choice::Required, false, &TextFormat::Text, syntax);
            let (constraint, relaxed) = built.unwrap();
            assert_eq!(relaxed, []);
            let text = write(constraint.unwrap().as_mut(), liked);
            let calls = calls(&text, syntax).unwrap_or_else(|| panic!("no calls: {text}"));
            let checked = Checker::new(tools.get("f").unwrap()).check(&calls[0].1);
            assert_eq!(checked, Checked::Valid, "{text}");
            assert!(
                text.contains(&format!("\"n\": {expected}}}")),
                "{text} of {number}"
            );
        }
    }
}

#[test]
fn a_number_in_an_answer_ends_too_and_digits_of_text_do_not() {
    let schema = json!({"type": "object", "properties": {"s": {"type": "string", "maxLength": 30}, "n": {"type": "integer"}}, "required": ["s", "n"]});
    let format = TextFormat::JsonSchema(schema.into());
    let built = grammars().constraint(
        &ToolSet::default(),
        &Choice::Auto,
        true,
        &format,
        CallSyntax::Hermes,
    );
    let text = write(built.unwrap().0.unwrap().as_mut(), "7\"}");
    let (sevens, many) = ("7".repeat(19), "7".repeat(30));
    assert_eq!(text, format!("{{\"s\": \"{many}\", \"n\": {sevens}}}"));
}

#[test]
fn drafts_are_taken_up_to_the_last_digit() {
    let (constraint, _) = constraint(
        &one(&json!({"type": "integer"})),
        &Choice::Required,
        CallSyntax::LlamaJson,
    );
    let mut constraint = constraint.unwrap();
    let head = encode("{\"name\": \"f\", \"parameters\": {\"n\": ");
    for token in &head {
        constraint.accept(*token).unwrap();
    }
    let digits = vec![u32::from(b'7'); 25];
    assert_eq!(constraint.would_accept(&digits), 19);
    let masks = constraint.masks_along(&digits[..19]).unwrap();
    let allows = |at: usize| masks[at].as_ref().unwrap().allows(u32::from(b'7'));
    assert!((0..18).all(allows) && !allows(18));
    // Where it was: nothing has been counted.
    assert_eq!(constraint.would_accept(&digits), 19);
}
