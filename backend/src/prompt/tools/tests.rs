use super::*;
use crate::prompt::testing::request;

#[test]
fn functions_are_read_in_order_with_a_schema_always() {
    let tools = Tools::from_request(&request(json!({"tools": [
        {"type": "function", "name": "a", "description": null, "parameters": null},
        {"type": "function", "name": "b", "description": "B", "strict": true, "parameters": {"type": "object"}},
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
                tool.strict,
            )
        })
        .collect();
    assert_eq!(
        read,
        [
            (
                "a",
                "",
                r#"{"type":"object","properties":{}}"#.to_owned(),
                false
            ),
            ("b", "B", r#"{"type":"object"}"#.to_owned(), true)
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
