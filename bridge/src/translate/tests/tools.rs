use pretty_assertions::assert_eq;

use super::*;
use crate::config::Exclusion;

#[test]
fn every_declared_kind_becomes_a_function_and_order_is_kept() {
    assert_eq!(
        sent(tickets(), &Policy::default()),
        json!([
            {"type": "function", "name": "mcp__tickets__find_ticket", "description": "ticket desk\n\nlook up",
                "parameters": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]},
                "strict": false},
            {"type": "function", "name": "mcp__tickets__close_ticket", "description": "ticket desk",
                "parameters": {"type": "object", "properties": {"id": {"type": "integer"}}}, "strict": true},
            {"type": "function", "name": "apply_patch",
                "description": format!("edit files\n\n{EXAMPLE}"),
                "parameters": {"type": "object",
                    "properties": {"input": {"type": "string", "description": format!("edit files\n\n{EXAMPLE}")}},
                    "required": ["input"], "additionalProperties": false},
                "strict": true},
            {"type": "function", "name": "tool_search", "description": "find more tools",
                "parameters": {"type": "object", "properties": {"query": {"type": "string"}}}, "strict": true},
        ])
    );
}

const EXAMPLE: &str = "Example of an input:\n*** Begin Patch\n*** Update File: src/lib.rs\n@@ fn area\n-    width * \
    width\n+    width * height\n*** Add File: notes/todo.txt\n+first line\n*** End Patch";

#[test]
fn hosted_search_selects_the_mapped_tool_and_adds_none() {
    // F001
    let tools = json!([
        {"type": "function", "name": "exec_command",
            "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]}},
        {"type": "custom", "name": "apply_patch", "description": "edit files",
            "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}},
        {"type": "namespace", "name": "mcp__finder", "tools": [{"type": "function", "name": "query"}]},
        {"type": "web_search"},
    ]);
    let names: Vec<Value> = sent(tools, &with_search())
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].clone())
        .collect();
    assert_eq!(names, ["exec_command", "apply_patch", "mcp__finder__query"]);

    // Codex up to 0.120 declares MCP tools flat.
    let flat =
        json!([{"type": "function", "name": "mcp__finder__query"}, {"type": "web_search_preview"}]);
    assert_eq!(sent(flat, &with_search()).as_array().unwrap().len(), 1);
}

#[test]
fn null_and_missing_fields_are_their_defaults_and_unknown_ones_vanish() {
    // F029
    let open = json!({"type": "object", "properties": {}, "additionalProperties": true});
    assert_eq!(
        sent(
            json!([
                {"type": "function", "name": "list_all", "description": null, "strict": null, "parameters": {},
                    "defer_loading": true},
                {"type": "function", "name": "ping"},
                {"type": "function", "name": "pong", "parameters": null},
            ]),
            &Policy::default()
        ),
        json!([
            {"type": "function", "name": "list_all", "description": "", "parameters": {}, "strict": true},
            {"type": "function", "name": "ping", "description": "", "parameters": open, "strict": true},
            {"type": "function", "name": "pong", "description": "", "parameters": open, "strict": true},
        ])
    );
}

#[test]
fn a_grammar_is_told_in_words_and_kept_where_it_can_be_enforced() {
    let format = json!({"type": "grammar", "syntax": "lark", "definition": "start: /.+/"});
    let request = json!({"model": "m", "input": "hi", "tools": [
        {"type": "namespace", "name": "functions", "description": "all tools", "tools": [
            {"type": "custom", "name": "exec", "format": format}]}]});
    let description = "all tools\n\nA free-form tool: its whole input is one text.\n\nThe input must match this lark \
        grammar:\nstart: /.+/";
    let mut function = json!({"type": "function", "name": "functions__exec", "description": description,
        "parameters": {"type": "object",
            "properties": {"input": {"type": "string", "description": description}},
            "required": ["input"], "additionalProperties": false},
        "strict": true});
    let policy = Policy::default();
    assert_eq!(
        normalized(request.clone(), &policy, &LLAMA).body["tools"],
        json!([function])
    );
    let able = Capabilities {
        custom_grammar: true,
        ..NATIVE
    };
    function["x_grammar"] = format;
    assert_eq!(
        normalized(request, &policy, &able).body["tools"],
        json!([function])
    );
}

#[test]
fn exclusions_cover_every_spelling_of_an_mcp_tool() {
    let excluding = |namespace: &str, tool: &str| Policy {
        excluded_mcp_tools: vec![Exclusion {
            namespace: namespace.into(),
            tools: vec![tool.into()],
        }],
        ..Policy::default()
    };
    let tools = json!([
        {"type": "namespace", "name": "mcp__finder", "tools": [
            {"type": "function", "name": "purge.all"}, {"type": "function", "name": "query"}]},
        {"type": "namespace", "name": "mcp__other", "tools": [{"type": "function", "name": "purge.all"}]},
        {"type": "function", "name": "purge_all"},
    ]);
    for tool in ["purge.all", "purge_all", "mcp__finder__purge_all"] {
        let sent = sent(tools.clone(), &excluding("mcp__finder", tool));
        let names: Vec<&Value> = sent
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| &tool["name"])
            .collect();
        assert_eq!(
            names,
            ["mcp__finder__query", "mcp__other__purge_all", "purge_all"],
            "{tool}"
        );
    }
    // Flat functions are covered, flat custom tools are not; and what is excluded cannot collide.
    let flat = json!([
        {"type": "function", "name": "mcp__finder__purge"},
        {"type": "namespace", "name": "mcp__finder", "tools": [{"type": "function", "name": "purge"}]},
        {"type": "custom", "name": "mcp__finder__purge"},
    ]);
    let request = json!({"model": "m", "input": "hi", "tools": flat});
    let normalized = normalized(request, &excluding("mcp__finder", "purge"), &NATIVE);
    assert_eq!(normalized.body["tools"].as_array().unwrap().len(), 1);
    assert_eq!(normalized.translation.counts.tools_excluded, 2);
    // All excluded is an empty list, and an absent list stays absent.
    let one = json!([{"type": "function", "name": "mcp__a__b"}]);
    assert_eq!(sent(one, &excluding("mcp__a", "b")), json!([]));
    let request = json!({"model": "m", "input": "hi"});
    assert!(
        !super::normalized(request, &Policy::default(), &LLAMA)
            .body
            .contains_key("tools")
    );
}

#[test]
fn unknown_types_can_be_dropped_and_are_counted() {
    // F009
    let request = json!({"model": "m", "input": "hi", "tools": [
        {"type": "local_shell"}, {"type": "web_search"}, {"type": "tool_search", "execution": "server"},
        {"type": "function", "name": "noop"},
        {"type": "namespace", "name": "n", "tools": [{"type": "mcp"}]},
    ]});
    let normalized = normalized(request, &dropping(), &LLAMA);
    assert_eq!(normalized.body["tools"].as_array().unwrap().len(), 1);
    let dropped = &normalized.translation.counts.dropped_tools;
    let kinds: Vec<&str> = dropped.keys().map(String::as_str).collect();
    assert_eq!(kinds, ["local_shell", "mcp", "tool_search", "web_search"]);
    assert_eq!(normalized.translation.counts.tools_declared, 5);
}

#[test]
fn encrypted_arguments_are_declared_plain() {
    // F015
    let request = json!({"model": "m", "input": "hi", "tools": [{"type": "namespace", "name": "agents", "tools": [
        {"type": "function", "name": "spawn_agent", "parameters": {"type": "object", "properties": {
            "message": {"type": "string", "encrypted": true}}}}]}]});
    let normalized = normalized(request, &Policy::default(), &LLAMA);
    assert_eq!(
        normalized.body["tools"][0]["parameters"],
        json!({"type": "object", "properties": {"message": {"type": "string"}}})
    );
    assert!(
        normalized
            .translation
            .catalog
            .resolve("agents__spawn_agent")
            .unwrap()
            .encrypted
    );
}

#[test]
fn tools_of_the_history_join_the_list_once_and_in_order() {
    let found = json!([{"type": "namespace", "name": "mcp__cal", "tools": [
        {"type": "function", "name": "list", "description": "days", "defer_loading": true}]}]);
    let request = json!({"model": "m", "input": [
        {"type": "additional_tools", "id": "at_1", "role": "developer", "tools": [
            {"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}]}]},
        user("look"),
        {"type": "tool_search_call", "id": "tsc_1", "call_id": "s", "execution": "client", "status": "completed",
            "arguments": {"query": "calendar"}},
        {"type": "tool_search_output", "call_id": "s", "execution": "client", "tools": found},
        {"type": "tool_search_output", "call_id": "t", "execution": "client", "tools": found},
    ]});
    let normalized = normalized(request, &Policy::default(), &LLAMA);
    let tools = normalized.body["tools"].as_array().unwrap();
    let names: Vec<&Value> = tools.iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["functions__exec", "mcp__cal__list"]);
    let open = json!({"type": "object", "properties": {}, "additionalProperties": true});
    let text =
        json!([{"name": "mcp__cal__list", "description": "days", "parameters": open}]).to_string();
    assert_eq!(
        normalized.body["input"],
        json!([
            user("look"),
            call("s", "tool_search", "{\"query\":\"calendar\"}"),
            output("s", text.as_str()),
            {"type": "message", "role": "user", "content": [
                {"type": "input_text", "text": "[output of a tool call that is not part of this conversation: t]"},
                {"type": "input_text", "text": text},
            ]},
        ])
    );
}

#[test]
fn an_appended_namespace_renames_and_moves_nothing() {
    // F080
    let mut more = tickets();
    let before = sent(tickets(), &Policy::default());
    more.as_array_mut()
        .unwrap()
        .push(json!({"type": "namespace", "name": "mcp__z", "tools": [
        {"type": "function", "name": "find_ticket"}]}));
    let after = sent(more, &Policy::default());
    assert!(
        after
            .as_array()
            .unwrap()
            .starts_with(before.as_array().unwrap())
    );
}

#[test]
fn the_log_gets_its_counts() {
    let request = json!({"model": "asked", "instructions": "abc", "tools": tickets(), "input": [
        {"type": "message", "role": "developer", "content": "defg"},
        user("hi"),
        {"type": "reasoning", "summary": [], "encrypted_content": "x"},
    ]});
    let mut policy = Policy::default();
    policy.model_aliases.insert("*".into(), "served".into());
    let Normalized {
        body, translation, ..
    } = normalized(request, &policy, &LLAMA);
    let counts = translation.counts;
    assert_eq!(counts.tools_declared, 4);
    assert_eq!(counts.tools_sent, 4);
    assert_eq!(counts.items, 3);
    assert_eq!(counts.dropped_items["reasoning"], 1);
    assert_eq!(counts.aliased_model.as_deref(), Some("asked"));
    assert_eq!(counts.instruction_bytes, 7);
    assert_eq!(body["model"], "served");
    assert_eq!(translation.declared["model"], "asked");
}
