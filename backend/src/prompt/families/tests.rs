use serde_json::json;

use super::*;
use crate::prompt::testing::{CHATML_CONTROLS, HERMES, LLAMA_CONTROLS, LLAMA31, SMOLLM2};
use crate::tokenizer::testing::with_controls;

fn calls() -> Vec<Call> {
    [("f", json!({"x": 1, "s": "a'b"})), ("g", json!("{broken"))]
        .map(|(name, arguments)| Call {
            id: "c".to_owned(),
            name: name.to_owned(),
            arguments,
            output: None,
        })
        .into()
}

#[test]
fn the_syntax_is_that_of_the_family() {
    let chatml = with_controls(&CHATML_CONTROLS);
    let llama = with_controls(&LLAMA_CONTROLS);
    assert_eq!(syntax(SMOLLM2, &chatml), CallSyntax::SmolLm2);
    assert_eq!(syntax(HERMES, &chatml), CallSyntax::Hermes);
    assert_eq!(syntax(LLAMA31, &llama), CallSyntax::LlamaJson);
    assert_eq!(
        syntax(HERMES, &llama),
        CallSyntax::Hermes,
        "Hermes 3 on Llama 3's vocabulary"
    );
    assert_eq!(
        syntax("", &with_controls(&["<|im_start|>", "<|im_end|>"])),
        CallSyntax::Hermes
    );
}

#[test]
fn calls_are_written_as_the_model_writes_them() {
    let write = |syntax| write_calls(&calls(), syntax, &str::to_owned).unwrap();
    assert_eq!(
        write(CallSyntax::LlamaJson),
        r#"{"name": "f", "parameters": {"x": 1, "s": "a'b"}}; {"name": "g", "parameters": {"invalid_arguments": "{broken"}}"#
    );
    assert_eq!(
        write(CallSyntax::Hermes),
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1, \"s\": \"a'b\"}}\n</tool_call>\n\
         <tool_call>\n{\"name\": \"g\", \"arguments\": {\"invalid_arguments\": \"{broken\"}}\n</tool_call>"
    );
    assert_eq!(
        write(CallSyntax::SmolLm2),
        r#"<tool_call>[{"name": "f", "arguments": {"x": 1, "s": "a'b"}}, {"name": "g", "arguments": {"invalid_arguments": "{broken"}}]</tool_call>"#
    );
    assert_eq!(
        write(CallSyntax::LlamaPythonic),
        r#"[f(x=1, s="a'b"), g(invalid_arguments='{broken')]"#
    );
}

#[test]
fn tools_are_optional_and_a_greeting_shows_it() {
    // Field case F039.
    let tools = Tools {
        list: vec![Tool {
            name: "look".to_owned(),
            description: "Looks. Carefully.".to_owned(),
            parameters: json!({"type": "object", "properties": {"at": {"type": "string"}}}),
        }],
    };
    for syntax in [
        CallSyntax::LlamaJson,
        CallSyntax::LlamaPythonic,
        CallSyntax::Hermes,
        CallSyntax::SmolLm2,
    ] {
        let full = describe(&tools, ToolsMode::Full, syntax, &str::to_owned).unwrap();
        assert!(full.contains(r#"{"type": "function", "function": {"name": "look", "description": "Looks. Carefully.", "parameters": {"type": "object""#));
        let compact = describe(&tools, ToolsMode::Compact, syntax, &str::to_owned).unwrap();
        assert!(
            compact.contains("\nlook(at?: string) - Looks.\n") && !compact.contains("properties")
        );
        for text in [full, compact] {
            assert!(text.contains("only when the task needs it") && text.contains("Hello!"));
        }
    }
}
