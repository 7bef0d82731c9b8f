//! MCP tools come from Codex as namespaces, reach the model as functions, and run in the MCP server.

use anyhow::Result;
use codex_bridge_e2e::{
    event::{ev_function_call, ev_message},
    invariants, mcp,
    rig::Rig,
    script::Reply,
};
use pretty_assertions::assert_eq;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn namespaced_tools_are_called_by_their_wire_names() -> Result<()> {
    let rig = Rig::in_order(vec![
        Reply::started()
            .item(ev_function_call(
                "call_1",
                "mcp__fixture__echo",
                &json!({"text": "through and through"}),
            ))
            .item(ev_function_call(
                "call_2",
                "mcp__fixture__add_numbers",
                &json!({"a": 20, "b": 22}),
            ))
            .completed(),
        Reply::started().item(ev_message("Forty-two.")).completed(),
    ])
    .await?;
    let codex = rig.codex()?;
    let journal = codex.home().join("mcp.jsonl");
    let codex = codex.mcp_stdio("fixture", &mcp::binary()?, &[&journal.to_string_lossy()]);

    let turn = codex.exec("use the tools").await?;

    turn.assert_completed();
    // Codex makes calls of one answer at the same time, so they arrive in either order.
    let mut calls = mcp::calls(&journal)?;
    calls.sort_by_key(|call| call["name"].to_string());
    let named: Vec<_> = calls
        .iter()
        .map(|call| (&call["name"], &call["arguments"]))
        .collect();
    assert_eq!(
        named,
        [
            (&json!("add.numbers"), &json!({"a": 20, "b": 22})),
            (&json!("echo"), &json!({"text": "through and through"})),
        ]
    );
    let asked = rig.asked(2)?;
    let tools = invariants::tool_names(&asked[0].body);
    assert!(
        tools.contains(&"mcp__fixture__echo") && tools.contains(&"mcp__fixture__add_numbers"),
        "{tools:?}"
    );
    let outputs = invariants::outputs(&asked[1].body);
    assert!(
        outputs[0].contains("through and through") && outputs[1].contains("42"),
        "{outputs:?}"
    );
    Ok(())
}
