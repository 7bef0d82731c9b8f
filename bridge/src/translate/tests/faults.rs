//! Every refusal with its exact words: they are what a user sees in Codex.

use pretty_assertions::assert_eq;
use protocol::ApiError;

use super::*;

/// `request` lacks model and input; both are added.
fn fault(mut request: Value, upstream: &Capabilities) -> String {
    let fields = request.as_object_mut().unwrap();
    fields.entry("model").or_insert("m".into());
    fields.entry("input").or_insert("hi".into());
    let error = refused(request, &Policy::default(), upstream);
    let text = error.to_string();
    let param = error.param().to_owned();
    let api = ApiError::from(error);
    assert_eq!(api.param.as_deref(), Some(param.as_str()));
    assert_eq!(api.body()["error"]["type"], "invalid_request_error");
    assert!(text.starts_with(&format!("{param}: ")), "{text}");
    text
}

#[test]
fn faults_of_any_request() {
    let cases = [
        (
            json!({"model": null}),
            "model: must be a string, but null came",
        ),
        (json!({"model": " "}), "model: must not be blank"),
        (
            json!({"stream": null}),
            "stream: must be a boolean, but null came",
        ),
        (
            json!({"tools": null}),
            "tools: must be an array, but null came",
        ),
        (
            json!({"tools": ["x"]}),
            "tools[0]: must be an object, but the string \"x\" came",
        ),
        (
            json!({"tools": [{}]}),
            "tools[0].type: is missing; it must be a string",
        ),
        (
            json!({"tools": [{"type": "function"}]}),
            "tools[0].name: is missing; it must be a string",
        ),
        (
            json!({"tools": [{"type": "function", "name": "a"}, {"type": "namespace", "name": "n", "tools": [
                {"type": "function", "name": " "}]}]}),
            "tools[1].tools[0].name: must not be blank",
        ),
        (
            json!({"tools": [{"type": "function", "name": "a", "description": 7}]}),
            "tools[0].description: must be a string, but the number 7 came",
        ),
        (
            json!({"tools": [{"type": "function", "name": "a", "parameters": []}]}),
            "tools[0].parameters: must be an object, but an array of 0 came",
        ),
        (
            json!({"tools": [{"type": "function", "name": "a", "strict": "yes"}]}),
            "tools[0].strict: must be a boolean, but the string \"yes\" came",
        ),
        (
            json!({"tools": [{"type": "namespace", "name": "n"}]}),
            "tools[0].tools: is missing; it must be an array",
        ),
        (
            json!({"tools": [{"type": "custom", "name": "a", "format": {"definition": 1}}]}),
            "tools[0].format.definition: must be a string, but the number 1 came",
        ),
        (
            json!({"input": [{"type": "tool_search_output", "call_id": "a", "tools": [{"type": "function"}]}]}),
            "input[0].tools[0].name: is missing; it must be a string",
        ),
        (
            json!({"tool_choice": "any"}),
            "tool_choice: must be \"auto\", \"none\", \"required\" or an object, but the string \"any\" came",
        ),
        (
            json!({"tools": [], "tool_choice": "required"}),
            "tool_choice: is \"required\", but no tool is left to call",
        ),
        (
            json!({"tools": tickets(), "tool_choice": {"type": "function", "name": "mcp__tickets__find_ticket"}}),
            "tool_choice.name: names the function \"mcp__tickets__find_ticket\", which is not declared",
        ),
        (
            json!({"tools": tickets(), "tool_choice": {"type": "function", "name": "apply_patch"}}),
            "tool_choice.name: names the function \"apply_patch\", which is not declared",
        ),
        (
            json!({"tools": tickets(), "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [
                {"type": "custom", "name": "x", "namespace": "mcp__tickets"}]}}),
            "tool_choice.tools[0].name: names the custom tool \"x\" in namespace \"mcp__tickets\", which is not declared",
        ),
        (
            json!({"tool_choice": {"type": "allowed_tools", "tools": []}}),
            "tool_choice.tools: must be an array of at least one tool, but an array of 0 came",
        ),
        (
            json!({"tool_choice": {"type": "allowed_tools", "mode": "none", "tools": []}}),
            "tool_choice.mode: must be \"auto\" or \"required\", but the string \"none\" came",
        ),
        (
            json!({"tool_choice": {"type": "mcp"}}),
            "tool_choice.type: the string \"mcp\" names a type of tool that is not offered here",
        ),
        (
            json!({"input": [user("x"), {"type": "compaction_trigger"}]}),
            "input[1].type: \"compaction_trigger\" asks for remote compaction, which is not offered here; Codex compacts by \
             itself when its provider is not called \"OpenAI\"",
        ),
        (
            json!({"input": [user("x"), {"role": "user", "content": [{"type": "input_text", "text": "a"},
                {"type": "input_image", "image_url": "data:image/png;base64,AA=="}]}]}),
            "input[1].content[1]: is an image, and the model has no vision",
        ),
    ];
    for (request, expected) in cases {
        for upstream in [LLAMA, NATIVE] {
            assert_eq!(fault(request.clone(), &upstream), expected);
        }
    }
}

#[test]
fn faults_that_only_llama_server_has() {
    let cases = [
        (
            json!({"input": 1}),
            "input: must be a string or an array of items, but the number 1 came",
        ),
        (
            json!({"input": [1]}),
            "input[0]: must be an object, but the number 1 came",
        ),
        (
            json!({"input": [{"role": "tool", "content": ""}]}),
            "input[0].role: must be \"user\", \"assistant\", \"system\" or \"developer\", but the string \"tool\" came",
        ),
        (
            json!({"input": [{"role": "user"}]}),
            "input[0].content: is missing; it must be a string or an array of parts",
        ),
        (
            json!({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}),
            "input[0].content[0].type: llama-server takes no \"input_file\" in this message",
        ),
        (
            json!({"input": [{"type": "item_reference", "id": "x"}]}),
            "input[0].type: \"item_reference\" points to a stored item, and llama-server stores none; send the item itself",
        ),
        (
            json!({"input": [{"type": "novelty"}]}),
            "input[0].type: llama-server takes no \"novelty\" item (the bridge setting unknownTools = \"drop\" leaves such \
             items out)",
        ),
        (
            json!({"input": [{}]}),
            "input[0].type: is missing; it must be the type of an item",
        ),
        (
            json!({"input": [{"type": "function_call", "name": "a"}]}),
            "input[0].call_id: is missing; it must be a string",
        ),
        (
            json!({"previous_response_id": "resp_1"}),
            "previous_response_id: points to what llama-server does not store; send the whole conversation in input",
        ),
        (
            json!({"background": true}),
            "background: llama-server only answers while the client waits",
        ),
        (
            json!({"max_output_tokens": -1}),
            "max_output_tokens: must be an integer above 0, but the number -1 came",
        ),
        (
            json!({"text": {"format": {"type": "json_schema", "name": "x"}}}),
            "text.format.schema: is missing; it must be a JSON schema",
        ),
        (
            json!({"text": {"format": {"type": "xml"}}}),
            "text.format.type: \"xml\" is none of text, json_object and json_schema",
        ),
    ];
    for (request, expected) in cases {
        assert_eq!(fault(request.clone(), &LLAMA), expected);
        let mut request = object(request);
        request.entry("model").or_insert("m".into());
        assert!(
            normalize(request, &Policy::default(), &NATIVE).is_ok(),
            "{expected}"
        );
    }
}

#[test]
fn hosted_search_without_a_stand_in_names_both_settings() {
    // F002
    let request = json!({"model": "m", "input": "hi", "tools": [{"type": "function", "name": "a"}, {"type": "web_search"}]});
    let ways_out = "or turn it off with web_search = \"disabled\" in Codex's config.toml";
    assert_eq!(
        refused(request.clone(), &Policy::default(), &LLAMA).to_string(),
        format!(
            "tools[1].type: \"web_search\" is hosted search, and no MCP tool stands in for it: set webSearchTool in the \
             bridge's configuration; {ways_out}"
        )
    );
    assert_eq!(
        refused(request, &with_search(), &LLAMA).to_string(),
        format!(
            "tools[1].type: \"web_search\" is hosted search, and the tool \"query\" in namespace \"mcp__finder\", which \
             webSearchTool in the bridge's configuration names, is not declared; {ways_out}"
        )
    );
}

#[test]
fn an_unknown_tool_type_is_named_with_the_setting_that_drops_it() {
    // F009
    let request = json!({"model": "m", "input": "hi", "tools": [{"type": "local_shell"}]});
    let error = refused(request, &Policy::default(), &LLAMA);
    assert_eq!(
        error.to_string(),
        "tools[0].type: \"local_shell\" is a type of tool that is not offered here; possible are function, custom, \
         namespace, web_search and tool_search run by the client (the bridge setting unknownTools = \"drop\" leaves \
         others out)"
    );
    assert_eq!(
        ApiError::from(error).code.as_deref(),
        Some("unsupported_value")
    );
}

#[test]
fn two_tools_with_one_wire_name_are_both_named() {
    // F090
    let request = json!({"model": "m", "input": "hi", "tools": [{"type": "namespace", "name": "n", "tools": [
        {"type": "function", "name": "lista plików"}, {"type": "function", "name": "lista plikow"},
        {"type": "custom", "name": "lista_plikow"}]}]});
    assert_eq!(
        refused(request, &Policy::default(), &LLAMA).to_string(),
        "tools[0].tools[2].name: \"lista plikow\" in namespace \"n\" and \"lista_plikow\" in namespace \"n\" would both be \
         sent as \"n__lista_plikow\""
    );
    let twice = json!({"model": "m", "input": "hi", "tools": [
        {"type": "function", "name": "a"}, {"type": "function", "name": "a"}]});
    assert_eq!(
        refused(twice, &Policy::default(), &LLAMA).to_string(),
        "tools[1].name: \"a\" and \"a\" would both be sent as \"a\""
    );
}

#[test]
fn the_whole_tool_list_is_checked_before_anything_else_of_it_is_used() {
    let request = json!({"model": "m", "input": [{"type": "novelty"}], "tool_choice": "never", "tools": [
        {"type": "web_search"}, {"type": "function", "name": "a b"}, {"type": "function", "name": "a_b"},
        {"type": "function", "name": 3}]});
    let error = refused(request, &Policy::default(), &LLAMA);
    assert_eq!(error.param(), "tools[3].name");
}
