use super::*;
use crate::prompt::{
    Conversation, RenderOptions,
    testing::{request, template},
};

#[test]
fn functions_are_read_in_order_with_a_schema_always() {
    let tools = Tools::from_request(&request(json!({"tools": [
        {"type": "function", "name": "a", "description": null, "parameters": null},
        {"type": "function", "name": "b", "description": "B", "parameters": {"type": "object"}},
    ]})))
    .unwrap();
    let read: Vec<_> = tools
        .list
        .iter()
        .map(|tool| {
            (
                tool.name.as_str(),
                tool.description.as_str(),
                tool.parameters.to_string(),
            )
        })
        .collect();
    assert_eq!(
        read,
        [
            ("a", "", r#"{"type":"object","properties":{}}"#.to_owned()),
            ("b", "B", r#"{"type":"object"}"#.to_owned())
        ]
    );
    assert_eq!(
        Tools::from_request(&request(json!({"tools": null}))).unwrap(),
        Tools::default()
    );
}

#[test]
fn anything_but_a_function_is_refused_with_its_place() {
    for (tools, message) in [
        (
            json!([{"type": "function", "name": "a"}, {"type": "web_search"}]),
            "tools[1].type: must be \"function\" here, but the string \"web_search\" came",
        ),
        (
            json!([{"type": "function"}]),
            "tools[0].name: is missing; it must be a string",
        ),
        (
            json!([{"type": "function", "name": "a", "parameters": []}]),
            "tools[0].parameters: must be an object, but an array of 0 came",
        ),
        (json!({}), "tools: must be an array, but an object came"),
    ] {
        let error = Tools::from_request(&request(json!({"tools": tools}))).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn a_schema_too_deep_to_be_shown_is_refused_with_its_place() {
    let nested = |levels: usize| {
        let deep = (1..levels).fold(json!({}), |inner, _| json!({"items": inner}));
        json!({"tools": [{"type": "function", "name": "a", "parameters": deep}]})
    };
    assert_eq!(
        Tools::from_request(&request(nested(193)))
            .unwrap_err()
            .to_string(),
        "tools[0].parameters: is nested more than 192 levels deep, the most allowed"
    );
    // The deepest that is taken reaches the model whole.
    let tools = Tools::from_request(&request(nested(192))).unwrap();
    for name in ["smollm2", "llama31", "hermes"] {
        let (template, _) = template(name, ToolsMode::Full);
        let conversation = Conversation::from_request(&request(json!({"input": "a"}))).unwrap();
        let rendered = template.render(&conversation, &tools, &RenderOptions::default());
        let tokens = rendered.unwrap().tokens;
        assert!(tokens.len() > 192 * 5, "{name}: {} tokens", tokens.len());
    }
}
