//! What every request that leaves the bridge must satisfy, whatever Codex sent: a plain Responses server can take it.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// Item types a plain server knows.
const ITEMS: [&str; 4] = [
    "message",
    "reasoning",
    "function_call",
    "function_call_output",
];

/// Checks one request body as the upstream got it; the error says where it is wrong.
pub fn check(body: &Value) -> Result<()> {
    ensure!(body["model"].is_string(), "model: not a string");
    tools(body).context("tools")?;
    match &body["input"] {
        Value::String(_) => Ok(()),
        Value::Array(items) => input(items).context("input"),
        other => bail!("input: neither text nor a list but {other}"),
    }
}

/// The tool names the upstream was offered, in order.
pub fn tool_names(body: &Value) -> Vec<&str> {
    let tools = body["tools"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    tools
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect()
}

/// What the calls in a request gave, in order; parts as JSON text.
pub fn outputs(body: &Value) -> Vec<String> {
    let items = body["input"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let outputs = items
        .iter()
        .filter(|item| item["type"] == "function_call_output");
    outputs
        .map(|item| {
            item["output"]
                .as_str()
                .map_or_else(|| item["output"].to_string(), str::to_owned)
        })
        .collect()
}

fn tools(body: &Value) -> Result<()> {
    let mut names = BTreeSet::new();
    for (index, tool) in body["tools"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
        .iter()
        .enumerate()
    {
        ensure!(
            tool["type"] == "function",
            "[{index}] is of type {}",
            tool["type"]
        );
        let name = tool["name"]
            .as_str()
            .with_context(|| format!("[{index}] has no name"))?;
        let plain = name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
        ensure!(
            plain && (1..=64).contains(&name.len()),
            "[{index}].name: {name:?}"
        );
        ensure!(names.insert(name), "[{index}].name: {name:?} twice");
        ensure!(
            tool["parameters"].is_object(),
            "[{index}] ({name}) has no parameters"
        );
        ensure!(
            tool.get("tools").is_none() && tool.get("defer_loading").is_none(),
            "[{index}] ({name}) keeps a key of Codex"
        );
    }
    Ok(())
}

/// Known types only, no namespaces, and each call paired with exactly one later output.
fn input(items: &[Value]) -> Result<()> {
    let mut open = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        let kind = item["type"].as_str().unwrap_or("message");
        ensure!(ITEMS.contains(&kind), "[{index}] is of type {kind}");
        ensure!(
            item.get("namespace").is_none(),
            "[{index}] keeps a namespace"
        );
        match kind {
            "function_call" => {
                let call = item["call_id"]
                    .as_str()
                    .with_context(|| format!("[{index}] has no call_id"))?;
                ensure!(
                    item["arguments"].is_string(),
                    "[{index}].arguments is no string"
                );
                ensure!(seen.insert(call), "[{index}] calls {call} a second time");
                open.insert(call);
            }
            "function_call_output" => {
                let call = item["call_id"]
                    .as_str()
                    .with_context(|| format!("[{index}] has no call_id"))?;
                ensure!(
                    open.remove(call),
                    "[{index}] answers {call}, which is not open"
                );
            }
            _ => {}
        }
    }
    ensure!(open.is_empty(), "no output for {open:?}");
    Ok(())
}
