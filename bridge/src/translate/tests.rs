//! Whole requests in, whole upstream bodies out. One file per theme; the field cases of the contracts are quoted by
//! number (F001 …).

#![expect(
    clippy::needless_pass_by_value,
    reason = "`sent(json!(…))` reads better than `sent(&json!(…))`"
)]

mod choice;
mod faults;
mod fields;
mod history;
mod laws;
mod restored;
mod tools;

use protocol::Object;
use serde_json::{Value, json};

use super::{Capabilities, Dialect, Error, Normalized, normalize};
use crate::config::{NamespacedTool, Policy, UnknownTools};

const LLAMA: Capabilities = Capabilities {
    dialect: Dialect::LlamaCpp,
    vision: false,
    parallel_calls: true,
    custom_grammar: false,
};
const NATIVE: Capabilities = Capabilities {
    dialect: Dialect::Responses,
    ..LLAMA
};

fn object(value: Value) -> Object {
    match value {
        Value::Object(object) => object,
        other => panic!("not an object: {other}"),
    }
}

fn normalized(request: Value, policy: &Policy, upstream: &Capabilities) -> Normalized {
    normalize(object(request), policy, upstream).unwrap()
}

fn refused(request: Value, policy: &Policy, upstream: &Capabilities) -> Error {
    normalize(object(request), policy, upstream).unwrap_err()
}

/// The upstream's `input` for a history.
fn input(items: Value, upstream: &Capabilities) -> Value {
    let request = json!({"model": "m", "tools": tickets(), "input": items});
    normalized(request, &Policy::default(), upstream).body["input"].clone()
}

/// The upstream's `tools` for a tool list.
fn sent(tools: Value, policy: &Policy) -> Value {
    let request = json!({"model": "m", "input": "hi", "tools": tools});
    normalized(request, policy, &NATIVE).body["tools"].clone()
}

/// An MCP server's namespace and a freeform tool, as Codex declares them.
fn tickets() -> Value {
    json!([
        {"type": "namespace", "name": "mcp__tickets", "description": "ticket desk", "tools": [
            {"type": "function", "name": "find_ticket", "description": "look up", "strict": false,
                "parameters": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}},
            {"type": "function", "name": "close.ticket",
                "parameters": {"type": "object", "properties": {"id": {"type": "integer"}}}},
        ]},
        {"type": "custom", "name": "apply_patch", "description": "edit files"},
        {"type": "tool_search", "execution": "client", "description": "find more tools",
            "parameters": {"type": "object", "properties": {"query": {"type": "string"}}}},
    ])
}

fn with_search() -> Policy {
    Policy {
        web_search_tool: Some(NamespacedTool {
            namespace: "mcp__finder".into(),
            tool: "query".into(),
        }),
        ..Policy::default()
    }
}

fn dropping() -> Policy {
    Policy {
        unknown_tools: UnknownTools::Drop,
        ..Policy::default()
    }
}

fn user(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
}

fn assistant(text: &str) -> Value {
    json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]})
}

fn call(id: &str, name: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments})
}

fn output(id: &str, output: impl Into<Value>) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": output.into()})
}
