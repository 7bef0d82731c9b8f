//! Hosted web search is served by an MCP tool.

use anyhow::Result;
use codex_bridge_e2e::{
    event::{ev_function_call, ev_message},
    invariants, mcp,
    rig::Rig,
    script::{Reply, Upstream},
};
use pretty_assertions::assert_eq;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn mapped_search_tool_stands_in_for_hosted_search() -> Result<()> {
    let upstream = Upstream::in_order(vec![
        Reply::started()
            .item(ev_function_call(
                "call_1",
                "mcp__fixture__query",
                &json!({"query": "weather"}),
            ))
            .completed(),
        Reply::started().item(ev_message("Sunny.")).completed(),
    ])
    .await?;
    let rig = Rig::new(
        upstream,
        json!({"webSearchTool": {"namespace": "mcp__fixture", "tool": "query"}}),
    )
    .await?;
    let codex = rig.codex()?.web_search("live");
    let journal = codex.home().join("mcp.jsonl");
    let codex = codex.mcp_stdio("fixture", &mcp::binary()?, &[&journal.to_string_lossy()]);

    let turn = codex.exec("how is the weather").await?;

    turn.assert_completed();
    assert_eq!(mcp::calls(&journal)?.len(), 1);
    let asked = rig.asked(2)?;
    let tools = invariants::tool_names(&asked[0].body);
    assert_eq!(
        tools
            .iter()
            .filter(|name| name.contains("query") || name.contains("web_search"))
            .count(),
        1,
        "{tools:?}"
    );
    let outputs = invariants::outputs(&asked[1].body);
    assert!(
        outputs.len() == 1 && outputs[0].contains("One page found"),
        "{outputs:?}"
    );
    Ok(())
}
