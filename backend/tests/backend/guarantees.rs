//! What no model can get wrong, asked of a model that would: SmolLM2-135M at temperature 1. `CODEX_BRIDGE_CALLS` sets how many answers each test asks for.

use codex_bridge_backend::{
    backend::Backend,
    grammar::{Checked, Checker, ToolSet},
    testing::Random,
};
use serde_json::{Value, json};

use crate::{
    smollm2::load,
    support::{response, tool},
};

/// Few by default: this is minutes of a real model's work.
fn runs() -> usize {
    std::env::var("CODEX_BRIDGE_CALLS").map_or(6, |runs| runs.parse().unwrap())
}

/// A schema of the kinds that tools have, bounded so that an answer always ends.
fn schema(random: &mut Random, depth: usize) -> Value {
    match random.below(if depth == 0 { 6 } else { 9 }) {
        0 => json!({"type": "string", "maxLength": 12}),
        1 => json!({"type": "integer", "minimum": -5, "maximum": 900}),
        2 => json!({"type": "boolean"}),
        3 => json!({"type": "string", "enum": ["red", "dark green", "żółć"]}),
        4 => json!({"type": "string", "pattern": "^[a-z]{2,6}-[0-9]{1,3}$"}),
        5 => json!({"type": "number", "minimum": 0, "maximum": 10}),
        6 => {
            json!({"type": "array", "items": schema(random, depth - 1), "minItems": 1, "maxItems": 3})
        }
        7 => json!({"oneOf": [{"type": "integer", "minimum": 0, "maximum": 9}, {"type": "null"}]}),
        _ => object(random, depth - 1),
    }
}

fn object(random: &mut Random, depth: usize) -> Value {
    let mut properties = serde_json::Map::new();
    let mut required = Vec::new();
    for index in 0..1 + random.below(4) {
        let name = format!("field_{index}");
        properties.insert(name.clone(), schema(random, depth));
        if random.below(3) > 0 {
            required.push(name);
        }
    }
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn calls(answer: &protocol::Object) -> Vec<(String, String)> {
    let output = answer["output"].as_array().unwrap();
    let calls = output.iter().filter(|item| item["type"] == "function_call");
    let call = |item: &Value| {
        (
            item["name"].as_str().unwrap().to_owned(),
            item["arguments"].as_str().unwrap().to_owned(),
        )
    };
    calls.map(call).collect()
}

async fn ask(backend: &Backend, seed: usize, fields: Value) -> protocol::Object {
    let mut request = crate::support::object(json!({
        "input": "Use the tool with any values you like.", "temperature": 1, "top_p": 1, "seed": seed, "max_output_tokens": 600,
    }));
    request.extend(crate::support::object(fields));
    response(backend, request.into()).await
}

#[tokio::test]
async fn required_calls_satisfy_their_schemas() {
    let Some(backend) = load() else { return };
    let mut random = Random(11);
    for run in 0..runs() {
        let tools = json!([
            tool("first", object(&mut random, 2)),
            tool("second", object(&mut random, 2))
        ]);
        let fields =
            json!({"tools": tools, "tool_choice": "required", "parallel_tool_calls": run % 2 == 0});
        let answer = ask(&backend, run, fields).await;
        let set = ToolSet::from_request(tools.as_array().unwrap()).unwrap();
        let calls = calls(&answer);
        assert!(!calls.is_empty(), "{answer:?}");
        // With several allowed, the model may go on until the limit cuts one.
        let whole = match answer["status"].as_str() {
            Some("completed") => calls.len(),
            _ => calls.len() - 1,
        };
        assert!(whole > 0, "{answer:?}");
        for (name, arguments) in &calls[..whole] {
            let checked = Checker::new(set.get(name).unwrap()).check(arguments);
            assert_eq!(checked, Checked::Valid, "{arguments} of {tools}");
        }
    }
    assert_eq!(backend.status().invalid_calls, 0);
}

#[tokio::test]
async fn choices_are_kept() {
    let Some(backend) = load() else { return };
    let tools: Vec<Value> = ["alpha", "beta", "gamma"]
        .map(|name| tool(name, json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["n"]})))
        .to_vec();
    for run in 0..runs() {
        let named = json!({"tools": tools, "tool_choice": {"type": "function", "name": "beta"}, "parallel_tool_calls": false});
        let calls_named = calls(&ask(&backend, run, named).await);
        assert_eq!(
            calls_named
                .iter()
                .map(|(name, _)| name.as_str())
                .collect::<Vec<_>>(),
            ["beta"]
        );

        let some =
            json!([{"type": "function", "name": "alpha"}, {"type": "function", "name": "gamma"}]);
        let allowed = json!({"tools": tools, "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": some}, "max_output_tokens": 200});
        let calls_allowed = calls(&ask(&backend, run, allowed).await);
        assert!(!calls_allowed.is_empty());
        assert!(calls_allowed.iter().all(|(name, _)| name != "beta"));

        let none = json!({"tools": tools, "tool_choice": "none", "max_output_tokens": 80});
        assert_eq!(calls(&ask(&backend, run, none).await), []);
    }
}
