//! Laws that hold for any request, checked with made-up ones, and the fuzzer's corpus replayed.

use std::{fs, path::Path};

use proptest::{collection::vec, prelude::*};
use protocol::ToolKind;

use super::*;
use crate::translate::{fuzz_normalize, restore};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_tool_comes_back_as_it_was_declared(names in vec((any::<bool>(), option_name(), name()), 0..8)) {
        let tools: Vec<Value> = names
            .iter()
            .map(|(custom, namespace, name)| {
                let tool = json!({"type": if *custom { "custom" } else { "function" }, "name": name});
                match namespace {
                    Some(namespace) => json!({"type": "namespace", "name": namespace, "tools": [tool]}),
                    None => tool,
                }
            })
            .collect();
        let request = object(json!({"model": "m", "input": "hi", "tools": tools}));
        // Names that meet in one wire name are refused, and that is the only reason.
        match normalize(request, &Policy::default(), &LLAMA) {
            Err(error) => prop_assert!(matches!(error, Error::Collision { .. }), "{error}"),
            Ok(Normalized { body, translation, .. }) => {
                for (function, (custom, namespace, name)) in body["tools"].as_array().unwrap().iter().zip(&names) {
                    let wire_name = function["name"].as_str().unwrap();
                    prop_assert!(wire_name.len() <= 64);
                    prop_assert!(wire_name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)));
                    let tool = translation.catalog.resolve(wire_name).unwrap();
                    prop_assert_eq!(tool.id.kind == ToolKind::Custom, *custom);
                    let mut item = object(call("c", wire_name, "{\"input\":\"x\"}"));
                    restore::item(&mut item, &translation);
                    prop_assert_eq!(item["name"].as_str(), Some(name.as_str()));
                    prop_assert_eq!(item.get("namespace").and_then(Value::as_str), namespace.as_deref());
                    // And the next turn's history names it with that very alias.
                    let replayed = json!({"model": "m", "tools": tools, "input": [item]});
                    let history = normalized(replayed, &Policy::default(), &NATIVE).body["input"].clone();
                    prop_assert_eq!(history[0]["name"].as_str(), Some(wire_name));
                }
            }
        }
    }

    #[test]
    fn any_input_of_a_custom_tool_survives_the_round_trip(input in any::<String>()) {
        let replayed = json!([{"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": input}]);
        let sent = super::input(replayed, &LLAMA);
        prop_assert_eq!(restore::custom_input(sent[0]["arguments"].as_str().unwrap()), input);
    }

    #[test]
    fn anything_like_a_request_keeps_the_laws(request in any_request()) {
        fuzz_normalize(request.to_string().as_bytes());
    }
}

#[test]
fn the_corpus_keeps_the_laws() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/normalize");
    let mut replayed = 0;
    for entry in fs::read_dir(corpus).unwrap() {
        fuzz_normalize(&fs::read(entry.unwrap().path()).unwrap());
        replayed += 1;
    }
    assert!(replayed > 0, "the corpus is empty");
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c._ ]{0,2}[a-c]", "\\PC{1,4}[a-z]", "[a-z]{70}"]
}

fn option_name() -> impl Strategy<Value = Option<String>> {
    proptest::option::of(name())
}

/// Objects whose keys and values are often, but not always, what the protocol expects there.
fn any_request() -> impl Strategy<Value = Value> {
    let words = prop_oneof![
        Just("function"),
        Just("custom"),
        Just("namespace"),
        Just("tool_search"),
        Just("web_search"),
        Just("message"),
        Just("function_call"),
        Just("function_call_output"),
        Just("custom_tool_call"),
        Just("custom_tool_call_output"),
        Just("tool_search_call"),
        Just("tool_search_output"),
        Just("additional_tools"),
        Just("reasoning"),
        Just("user"),
        Just("web_search_call"),
        Just("local_shell_call"),
        Just("developer"),
        Just("assistant"),
        Just("input_text"),
        Just("input_image"),
        Just("allowed_tools"),
        Just("auto"),
        Just("json_schema"),
        Just("{\"a\":1}"),
        Just("a b"),
        Just(""),
    ];
    let keys = prop_oneof![
        Just("type"),
        Just("name"),
        Just("namespace"),
        Just("tools"),
        Just("content"),
        Just("role"),
        Just("call_id"),
        Just("arguments"),
        Just("input"),
        Just("output"),
        Just("text"),
        Just("format"),
        Just("parameters"),
        Just("summary"),
        Just("tool_choice"),
        Just("action"),
        Just("schema"),
        Just("properties"),
        Just("encrypted"),
        Just("generate"),
        Just("instructions"),
        Just("id"),
    ];
    let leaf = prop_oneof![
        4 => words.prop_map(Value::from),
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(4, 48, 6, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::from),
            vec((keys.clone(), inner), 0..6).prop_map(|fields| {
                fields
                    .into_iter()
                    .map(|(key, value)| (key.to_owned(), value))
                    .collect::<Object>()
                    .into()
            }),
        ]
    });
    (
        vec(value.clone(), 0..5),
        vec(value.clone(), 0..4),
        value.clone(),
        value,
    )
        .prop_map(|(input, tools, choice, text)| {
            let mut request = json!({"model": "m", "input": input});
            if !tools.is_empty() {
                request["tools"] = tools.into();
            }
            if !choice.is_null() {
                request["tool_choice"] = choice;
            }
            request["text"] = text;
            request
        })
}
