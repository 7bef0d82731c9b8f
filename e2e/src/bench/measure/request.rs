//! The requests: like Codex's, with a flat tool and one in a namespace, so that every bridge has to translate.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::bench::{http, plan::Plan};

/// Which tools the requests declare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tools {
    /// As Codex does once an MCP server is set up. Every bridge has to translate names.
    Namespaced,
    /// Functions only, with which the gateway passes bytes through unread.
    Flat,
}

pub(super) fn json_request(address: SocketAddr, tools: Tools) -> Vec<u8> {
    http::post(address, &body("json", false, tools))
}

pub(in crate::bench) fn stream_request(address: SocketAddr, tools: Tools, plan: &Plan) -> Vec<u8> {
    http::post(address, &body(&plan.to_string(), true, tools))
}

/// As large as a Codex request in the middle of a session: long instructions, twenty tools, forty turns.
pub(super) fn large_request(address: SocketAddr, tools: Tools) -> Vec<u8> {
    let mut body = body("json", false, tools);
    body["instructions"] = "You are a coding agent in a terminal. ".repeat(400).into();
    if let Some(list) = body["tools"].as_array_mut() {
        for number in 0..20 {
            list.push(function(
                &format!("tool_{number}"),
                &"What it does. ".repeat(30),
            ));
        }
    }
    if let Some(input) = body["input"].as_array_mut() {
        for turn in 0..40 {
            let id = format!("call_{turn}");
            input.push(
                json!({"type": "function_call", "call_id": id, "name": "exec_command",
                "arguments": "{\"cmd\":\"rg --files | head -50\"}"}),
            );
            input.push(json!({"type": "function_call_output", "call_id": id,
                "output": "src/server/connection.rs\n".repeat(20)}));
        }
    }
    http::post(address, &body)
}

fn body(model: &str, is_stream: bool, tools: Tools) -> Value {
    let mut list = vec![function("exec_command", "Runs a command.")];
    if tools == Tools::Namespaced {
        list.push(
            json!({"type": "namespace", "name": "mcp__files", "description": "Files.",
            "tools": [function("read", "Reads a file.")]}),
        );
    }
    json!({
        "model": model,
        "instructions": "You are a coding agent.",
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi."}]}],
        "tools": list,
        "tool_choice": "auto",
        "store": false,
        "stream": is_stream,
    })
}

fn function(name: &str, description: &str) -> Value {
    json!({"type": "function", "name": name, "description": description, "strict": false,
        "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]}})
}
