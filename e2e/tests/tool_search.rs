//! Deferred tools: the model searches for them, and what was found is in the history, not in `tools`.

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
async fn found_tools_can_be_called() -> Result<()> {
    let rig = Rig::in_order(vec![
        Reply::started()
            .item(ev_function_call(
                "call_1",
                "tool_search",
                &json!({"query": "echo a text"}),
            ))
            .completed(),
        Reply::started()
            .item(ev_function_call(
                "call_2",
                "mcp__fixture__echo",
                &json!({"text": "found"}),
            ))
            .completed(),
        Reply::started().item(ev_message("Found it.")).completed(),
    ])
    .await?;
    let codex = rig.codex()?.catalog("supports_search_tool", json!(true));
    let journal = codex.home().join("mcp.jsonl");
    let codex = codex.mcp_stdio("fixture", &mcp::binary()?, &[&journal.to_string_lossy()]);

    let turn = codex.exec("find the echo tool").await?;

    turn.assert_completed();
    assert_eq!(mcp::calls(&journal)?.len(), 1);
    let asked = rig.asked(3)?;
    let tools: Vec<_> = asked
        .iter()
        .map(|asked| invariants::tool_names(&asked.body))
        .collect();
    assert!(
        tools[0].contains(&"tool_search") && !tools[0].contains(&"mcp__fixture__echo"),
        "{:?}",
        tools[0]
    );
    assert!(tools[1].contains(&"mcp__fixture__echo"), "{:?}", tools[1]);
    assert_eq!(tools[1], tools[2]);
    let outputs = invariants::outputs(&asked[2].body);
    assert!(
        outputs.len() == 2 && outputs[1].contains("found"),
        "{outputs:?}"
    );
    Ok(())
}
