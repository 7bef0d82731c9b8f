use pretty_assertions::assert_eq;

use super::*;

fn chosen(choice: Value, upstream: &Capabilities) -> (Value, Vec<String>) {
    let mut tools = tickets();
    tools.as_array_mut().unwrap().push(
        json!({"type": "namespace", "name": "mcp__finder", "tools": [
        {"type": "function", "name": "query"}]}),
    );
    let request = json!({"model": "m", "input": "hi", "tools": tools, "tool_choice": choice});
    let normalized = normalized(request, &with_search(), upstream);
    let sent = normalized.body["tools"].as_array().unwrap();
    assert_eq!(
        normalized.translation.catalog.tools().len(),
        5,
        "a choice never narrows the catalog"
    );
    (
        normalized.body["tool_choice"].clone(),
        sent.iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect(),
    )
}

const ALL: [&str; 5] = [
    "mcp__tickets__find_ticket",
    "mcp__tickets__close_ticket",
    "apply_patch",
    "tool_search",
    "mcp__finder__query",
];

#[test]
fn modes_pass() {
    for mode in ["auto", "none", "required"] {
        for upstream in [LLAMA, NATIVE] {
            assert_eq!(
                chosen(mode.into(), &upstream),
                (mode.into(), ALL.map(String::from).to_vec())
            );
        }
    }
}

#[test]
fn null_is_no_choice() {
    for upstream in [LLAMA, NATIVE] {
        let request = json!({"model": "m", "input": "hi", "tools": tickets(), "tool_choice": null});
        let normalized = normalized(request, &with_search(), &upstream);
        assert!(!normalized.body.contains_key("tool_choice"));
    }
}

#[test]
fn a_named_tool_is_a_function_for_a_native_server_and_the_only_one_for_llama_server() {
    let cases = [
        (
            json!({"type": "function", "name": "close.ticket", "namespace": "mcp__tickets", "note": 1}),
            json!({"type": "function", "name": "mcp__tickets__close_ticket", "note": 1}),
        ),
        (
            json!({"type": "custom", "name": "apply_patch"}),
            json!({"type": "function", "name": "apply_patch"}),
        ),
        (
            json!({"type": "tool_search"}),
            json!({"type": "function", "name": "tool_search"}),
        ),
        // The mapped tool is there, so the hosted one needs no declaration.
        (
            json!({"type": "web_search_preview"}),
            json!({"type": "function", "name": "mcp__finder__query"}),
        ),
    ];
    for (choice, native) in cases {
        let only = native["name"].as_str().unwrap().to_owned();
        assert_eq!(
            chosen(choice.clone(), &NATIVE),
            (native, ALL.map(String::from).to_vec())
        );
        assert_eq!(chosen(choice, &LLAMA), ("required".into(), vec![only]));
    }
}

#[test]
fn allowed_tools_are_renamed_or_the_list_is_narrowed_to_them() {
    let choice = json!({"type": "allowed_tools", "mode": "auto", "tools": [
        {"type": "web_search"}, {"type": "function", "name": "find_ticket", "namespace": "mcp__tickets"}]});
    assert_eq!(
        chosen(choice.clone(), &NATIVE).0,
        json!({"type": "allowed_tools", "mode": "auto", "tools": [
            {"type": "function", "name": "mcp__finder__query"},
            {"type": "function", "name": "mcp__tickets__find_ticket"}]})
    );
    let narrowed = ["mcp__tickets__find_ticket", "mcp__finder__query"];
    assert_eq!(
        chosen(choice, &LLAMA),
        ("auto".into(), narrowed.map(String::from).to_vec())
    );
}

#[test]
fn a_narrowed_list_still_names_the_history() {
    let request = json!({"model": "m", "tools": tickets(), "tool_choice": {"type": "custom", "name": "apply_patch"},
    "input": [
        {"type": "function_call", "call_id": "a", "name": "close.ticket", "namespace": "mcp__tickets", "arguments": "{}"},
        output("a", "ok"),
    ]});
    let body = normalized(request, &Policy::default(), &LLAMA).body;
    assert_eq!(body["input"][0]["name"], "mcp__tickets__close_ticket");
}
