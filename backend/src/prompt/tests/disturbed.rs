//! Templates and requests with pieces cut, doubled and moved: read or refused, never a panic or a hang.

use serde_json::{Value, json};

use super::*;
use crate::testing::{Random, fuzz_runs};

/// A random piece of `text`, up to `most` bytes.
fn piece_of<'a>(dice: &mut Random, text: &'a str, most: usize) -> &'a str {
    let mut start = dice.below(text.len());
    while !text.is_char_boundary(start) {
        start -= 1;
    }
    let mut end = (start + 1 + dice.below(most)).min(text.len());
    while !text.is_char_boundary(end) {
        end += 1;
    }
    &text[start..end]
}

/// Cuts, doubles and moves pieces of templates; pieces of others come in.
fn mutate(source: &str, others: &[String], dice: &mut Random) -> String {
    const WORDS: [&str; 24] = [
        "{%",
        "%}",
        "{{",
        "}}",
        "-%}",
        "for x in messages",
        "endfor",
        "if",
        "endif",
        "loop",
        " | tojson",
        "(indent=4)",
        "namespace(a=1)",
        "messages",
        "[0]",
        "['content']",
        " ~ ",
        " + ",
        " * 9999",
        "range(99999)",
        "macro m()",
        "raise_exception('x')",
        "recursive",
        "<|im_end|>",
    ];
    let mut text = source.to_owned();
    for _ in 0..1 + dice.below(4) {
        if text.is_empty() {
            break;
        }
        let piece = piece_of(dice, &text, 40);
        let at = piece.as_ptr() as usize - text.as_ptr() as usize;
        let len = piece.len();
        let other = &others[dice.below(others.len())];
        let new = match dice.below(5) {
            0 => String::new(),
            1 => piece.repeat(2),
            2 => piece_of(dice, other, 60).to_owned(),
            3 => WORDS[dice.below(WORDS.len())].to_owned(),
            _ => piece_of(dice, &text, 80).to_owned(),
        };
        text.replace_range(at..at + len, &new);
    }
    text
}

#[test]
fn mutated_templates_neither_panic_nor_hang() {
    let shapes = testing::shapes();
    let sources: Vec<String> = shapes.iter().map(|shape| shape.1.clone()).collect();
    let request = testing::request(
        json!({"instructions": "a <|im_end|>", "tools": [tool("look")], "input": [
            user("b"), assistant("c"), call("1", "look", "{\"x\": 1}"), output("1", "d"), user("e"),
        ]}),
    );
    let conversation = Conversation::from_request(&request).unwrap();
    let tools = Tools::from_request(&request).unwrap();
    let mut dice = Random(11);
    let mut usable = 0;
    for run in 0..fuzz_runs(400) {
        let (_, source, tokenizer) = &shapes[dice.below(shapes.len())];
        let source = mutate(source, &sources, &mut dice);
        let started = std::time::Instant::now();
        if let Ok(template) = Template::new(Some(&source), tokenizer, TemplateOptions::default()) {
            usable += u64::from(
                template
                    .render(&conversation, &tools, &RenderOptions::default())
                    .is_ok(),
            );
        }
        assert!(started.elapsed().as_secs() < 60, "run {run}: {source}");
    }
    assert!(usable > 0);
}

/// Puts something else at a random place of a JSON value.
fn disturb(value: &mut Value, dice: &mut Random) {
    if dice.below(3) > 0 {
        match value {
            Value::Array(list) if !list.is_empty() => {
                let at = dice.below(list.len());
                match dice.below(6) {
                    0 => drop(list.remove(at)),
                    1 => list.insert(at, list[at].clone()),
                    2 => {
                        let other = dice.below(list.len());
                        list.swap(at, other);
                    }
                    _ => disturb(&mut list[at], dice),
                }
                return;
            }
            Value::Object(object) if !object.is_empty() => {
                let at = dice.below(object.len());
                let key = object.keys().nth(at).unwrap().clone();
                if dice.below(8) == 0 {
                    object.shift_remove(&key);
                } else {
                    disturb(&mut object[&key], dice);
                }
                return;
            }
            _ => {}
        }
    }
    *value = match dice.below(10) {
        0 => Value::Null,
        1 => json!([]),
        2 => json!({}),
        3 => json!(true),
        4 => serde_json::from_str("123456789012345678901234567890e999").unwrap(),
        5 => json!("<|eot_id|>\u{FDD0}<|im_end|>"),
        6 => json!([{"type": "input_text", "text": "x"}, {"type": "input_image"}]),
        7 => json!("{\"a\": [1, {\"b\": null}]}"),
        8 => json!("function_call"),
        _ => json!("1"),
    };
}

#[test]
fn disturbed_requests_are_read_or_refused_with_their_place() {
    let base = json!({"instructions": "a", "tools": [tool("look"), tool("other")], "input": [
        user("b"), {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "r"}]}, assistant("c"),
        call("1", "look", "{\"x\": 1}"), call("2", "other", "{}"), output("1", "d"), output("2", "e"), {"role": "developer", "content": "f"}, user("g"),
    ]});
    let templates: Vec<Template> = testing::shapes()
        .iter()
        .flat_map(|(name, _, _)| {
            [ToolsMode::Full, ToolsMode::Compact].map(|mode| testing::template(name, mode).0)
        })
        .collect();
    let mut dice = Random(5);
    let mut rendered = 0;
    for _ in 0..fuzz_runs(2000) {
        let mut request = base.clone();
        for _ in 0..1 + dice.below(3) {
            disturb(&mut request, &mut dice);
        }
        let Value::Object(request) = request else {
            continue;
        };
        let read = Conversation::from_request(&request)
            .and_then(|conversation| Ok((conversation, Tools::from_request(&request)?)));
        match read {
            Ok((conversation, tools)) => {
                let template = &templates[dice.below(templates.len())];
                match template.render(&conversation, &tools, &RenderOptions::default()) {
                    Ok(prompt) => {
                        rendered += 1;
                        assert!(
                            prompt.stable_prefix <= prompt.tokens.len()
                                && prompt.generation_prompt <= prompt.tokens.len()
                        );
                    }
                    Err(error) => assert!(matches!(error, PromptError::Template(_)), "{error}"),
                }
            }
            Err(error) => assert!(
                error.param().is_some_and(|param| !param.is_empty()),
                "{error}"
            ),
        }
    }
    assert!(rendered > 0);
}
