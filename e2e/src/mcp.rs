//! A small MCP server for scenarios: three tools, over stdio (the binary `mcp-fixture`) or Streamable HTTP.
//!
//! The JSON-RPC part is one pure function, [`answer`]; the two transports only carry it. Both keep what they were asked,
//! so that a test can tell a tool that really ran from a text that only looks so.

use serde_json::{Value, json};

mod http;
mod stdio;

pub use http::{Fixture, SESSION};
pub use stdio::{binary, calls, serve_stdio};

/// The answer to one JSON-RPC message; notifications get none.
pub fn answer(message: &Value) -> Option<Value> {
    let id = message.get("id")?;
    let params = &message["params"];
    let result = match message["method"].as_str()? {
        "initialize" => json!({
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "fixture", "version": "1"},
            "instructions": "Echoes, adds, and finds.",
        }),
        "tools/list" => json!({"tools": tools()}),
        "tools/call" => call(
            params["name"].as_str().unwrap_or_default(),
            &params["arguments"],
        ),
        "ping" => json!({}),
        other => {
            let error = json!({"code": -32601, "message": format!("no method {other}")});
            return Some(json!({"jsonrpc": "2.0", "id": id, "error": error}));
        }
    };
    Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

fn tools() -> Value {
    let number = json!({"type": "integer"});
    let text = json!({"type": "string"});
    json!([
        {
            "name": "echo",
            "description": "Gives a text back.",
            "inputSchema": {"type": "object", "properties": {"text": text}, "required": ["text"]},
            "annotations": {"readOnlyHint": true},
        },
        {
            "name": "add.numbers",
            "description": "Adds two integers.",
            "inputSchema": {"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]},
            "annotations": {"readOnlyHint": true},
        },
        {
            "name": "query",
            "description": "Searches the web.",
            "inputSchema": {"type": "object", "properties": {"query": text}, "required": ["query"]},
            "annotations": {"readOnlyHint": true},
        },
    ])
}

fn call(name: &str, arguments: &Value) -> Value {
    let text = match name {
        "echo" => arguments["text"].as_str().unwrap_or_default().to_owned(),
        "add.numbers" => match (arguments["a"].as_i64(), arguments["b"].as_i64()) {
            (Some(a), Some(b)) => (a + b).to_string(),
            _ => return failure(&format!("two integers expected, got {arguments}")),
        },
        "query" => format!("One page found for {}.", arguments["query"]),
        other => return failure(&format!("no tool {other}")),
    };
    json!({"content": [{"type": "text", "text": text}], "isError": false})
}

fn failure(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}], "isError": true})
}
