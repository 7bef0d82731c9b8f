use pretty_assertions::assert_eq;

use super::*;
use crate::translate::{Translation, restore};

fn translation(policy: &Policy) -> Translation {
    let mut tools = tickets();
    tools.as_array_mut().unwrap().push(json!({"type": "namespace", "name": "agents", "tools": [
        {"type": "function", "name": "spawn", "parameters": {"properties": {"message": {"encrypted": true}}}},
        {"type": "custom", "name": "exec"}]}));
    let request = json!({"model": "asked", "input": "hi", "tools": tools, "tool_choice": "auto"});
    normalized(request, policy, &LLAMA).translation
}

fn item(item: Value) -> Value {
    let mut restored = object(item);
    restore::item(&mut restored, &translation(&Policy::default()));
    restored.into()
}

#[test]
fn a_call_comes_back_as_its_tool_was_declared() {
    // F004, F018, F007, F015
    let cases = [
        (
            call("a", "mcp__tickets__close_ticket", "{\"id\":41}"),
            json!({"type": "function_call", "call_id": "a", "name": "close.ticket", "namespace": "mcp__tickets",
                "arguments": "{\"id\":41}"}),
        ),
        (
            call("a", "apply_patch", "{\"input\":\"*** Begin Patch\\n\"}"),
            json!({"type": "custom_tool_call", "call_id": "a", "name": "apply_patch", "input": "*** Begin Patch\n"}),
        ),
        (
            call("a", "agents__exec", "text(1)"),
            json!({"type": "custom_tool_call", "call_id": "a", "name": "exec", "namespace": "agents", "input": "text(1)"}),
        ),
        (
            call("a", "agents__spawn", ""),
            json!({"type": "function_call", "call_id": "a", "name": "spawn", "namespace": "agents", "arguments": "",
                "encrypted_function_args": []}),
        ),
        (
            call("a", "tool_search", "{\"query\":\"calendar\"}"),
            json!({"type": "tool_search_call", "call_id": "a", "execution": "client", "arguments": {"query": "calendar"}}),
        ),
        (
            call("a", "tool_search", ""),
            json!({"type": "tool_search_call", "call_id": "a", "execution": "client", "arguments": {}}),
        ),
        (
            call("a", "tool_search", "{\"que"),
            json!({"type": "tool_search_call", "call_id": "a", "execution": "client", "arguments": "{\"que"}),
        ),
        // An object where the protocol wants its text.
        (
            json!({"type": "function_call", "name": "unheard_of", "arguments": {"a": 1}}),
            json!({"type": "function_call", "name": "unheard_of", "arguments": "{\"a\":1}"}),
        ),
        (
            json!({"type": "function_call", "name": "apply_patch", "arguments": {"input": "p"}}),
            json!({"type": "custom_tool_call", "name": "apply_patch", "input": "p"}),
        ),
        // A native server that knows namespaces.
        (
            json!({"type": "function_call", "name": "apply_patch", "namespace": "own", "arguments": "{}"}),
            json!({"type": "function_call", "name": "apply_patch", "namespace": "own", "arguments": "{}"}),
        ),
        (assistant("apply_patch"), assistant("apply_patch")),
    ];
    for (sent, expected) in cases {
        assert_eq!(item(sent), expected);
    }
}

#[test]
fn custom_input_is_the_string_input_or_the_text_as_it_came() {
    for (arguments, input) in [
        ("{\"input\":\"a\\nb\"}", "a\nb"),
        ("{\"input\":\"a\",\"more\":1}", "a"),
        ("{\"input\":1}", "{\"input\":1}"),
        ("{\"cmd\":1}", "{\"cmd\":1}"),
        ("\"text\"", "\"text\""),
        ("*** Begin Patch", "*** Begin Patch"),
        ("", ""),
    ] {
        assert_eq!(restore::custom_input(arguments), input);
    }
}

#[test]
fn patch_markers_are_repaired_only_on_request() {
    // F020
    let decorated =
        "*** Begin Patch ***\n*** Update File: m.py\n@@\n-x = 1\n+x = 2\n*** End Patch ***";
    let sent = call("a", "apply_patch", &json!({"input": decorated}).to_string());
    let mut kept = object(sent.clone());
    assert!(!restore::item(&mut kept, &translation(&Policy::default())));
    assert_eq!(kept["input"], decorated);
    let repairing = Policy {
        repair_patch_markers: true,
        ..Policy::default()
    };
    let mut repaired = object(sent);
    assert!(restore::item(&mut repaired, &translation(&repairing)));
    assert_eq!(
        repaired["input"],
        "*** Begin Patch\n*** Update File: m.py\n@@\n-x = 1\n+x = 2\n*** End Patch"
    );
}

#[test]
fn the_input_of_a_cut_call_is_what_there_was_of_it() {
    let cut = |arguments: &str, of_item: &str, of_response: &str| {
        let mut sent = object(call("a", "apply_patch", arguments));
        sent.insert("status".into(), of_item.into());
        let mut response = object(json!({"status": of_response, "output": [sent]}));
        restore::response(&mut response, &translation(&Policy::default()));
        response["output"][0]["input"].clone()
    };
    let half = "{\"input\":\"*** Begin Patch\\n*** Add";
    let text = "*** Begin Patch\n*** Add";
    assert_eq!(cut(half, "incomplete", "incomplete"), text);
    assert_eq!(cut(half, "", "incomplete"), text);
    assert_eq!(cut(half, "incomplete", "completed"), text);
    assert_eq!(cut("{\"inp", "incomplete", "incomplete"), "");
    // Text of its own, whole arguments, and an answer that nobody cut.
    assert_eq!(cut("*** Begin", "incomplete", "incomplete"), "*** Begin");
    let nested = json!({"input": half}).to_string();
    assert_eq!(cut(&nested, "incomplete", "incomplete"), half);
    assert_eq!(cut(half, "completed", "completed"), half);
    assert_eq!(cut(half, "completed", "incomplete"), half);
    // Calls of the upstream's own kinds are its own affair.
    for kind in ["custom_tool_call", "mcp_call"] {
        let own = json!({"type": kind, "input": half, "status": "incomplete"});
        let mut response = object(json!({"status": "incomplete", "output": [own.clone()]}));
        restore::response(&mut response, &translation(&Policy::default()));
        assert_eq!(response["output"][0], own);
    }
}

#[test]
fn an_answer_is_restored_as_a_whole() {
    let translation = translation(&Policy::default());
    let mut response = object(json!({
        "id": "resp_1", "model": "file.gguf", "status": "completed", "novelty": 1,
        "tools": [{"type": "function", "name": "mcp__tickets__find_ticket"}], "tool_choice": "required",
        "output": [
            {"type": "reasoning", "summary": [], "content": [
                {"type": "reasoning_text", "text": "a"}, {"type": "reasoning_text", "text": "b"}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]},
            {"type": "message", "content": [{"type": "output_text", "text": "x"}, {"type": "output_text", "text": "y"}]},
            call("a", "mcp__tickets__find_ticket", "{}"),
        ],
        "usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
    }));
    assert_eq!(restore::response(&mut response, &translation), 0);
    assert_eq!(
        Value::Object(response),
        json!({
            "id": "resp_1", "model": "asked", "status": "completed", "novelty": 1,
            "tools": translation.declared["tools"], "tool_choice": "auto",
            "output": [
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "a\nb"}], "content": [
                    {"type": "reasoning_text", "text": "a"}, {"type": "reasoning_text", "text": "b"}]},
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]},
                {"type": "message", "content": [
                    {"type": "output_text", "text": "x"}, {"type": "output_text", "text": "y"}]},
                {"type": "function_call", "call_id": "a", "name": "find_ticket", "namespace": "mcp__tickets",
                    "arguments": "{}"},
            ],
            "usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens_details": {"reasoning_tokens": 0}},
            "output_text": "xy",
        })
    );
}

#[test]
fn fields_an_answer_lacks_are_not_invented() {
    let mut response = object(json!({"status": "failed", "output": null, "usage": null}));
    let before = response.clone();
    restore::response(&mut response, &translation(&Policy::default()));
    assert_eq!(response, before);
    let mut response = object(json!({"output": [], "output_text": "own"}));
    restore::response(&mut response, &translation(&Policy::default()));
    assert_eq!(
        Value::Object(response),
        json!({"output": [], "output_text": "own"})
    );
}
