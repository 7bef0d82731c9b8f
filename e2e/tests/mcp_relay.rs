//! An MCP server over Streamable HTTP, reached through the bridge's `/mcp/<server>`.

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
async fn relay_carries_the_session_and_the_event_stream() -> Result<()> {
    let server = mcp::Fixture::start().await?;
    let upstream = Upstream::in_order(vec![
        Reply::started()
            .item(ev_function_call(
                "call_1",
                "mcp__fixture__echo",
                &json!({"text": "relayed"}),
            ))
            .completed(),
        Reply::started().item(ev_message("Echoed.")).completed(),
    ])
    .await?;
    let base = format!("{}/servers", server.origin());
    let rig = Rig::new(upstream, json!({"mcpProxy": {"baseUrl": base}})).await?;
    let codex = rig
        .codex()?
        .mcp_http("fixture", &format!("{}/mcp/fixture", rig.bridge.origin()));

    let turn = codex.exec("echo it").await?;

    turn.assert_completed();
    let outputs = invariants::outputs(&rig.asked(2)?[1].body);
    assert!(
        outputs.len() == 1 && outputs[0].contains("relayed"),
        "{outputs:?}"
    );
    assert_eq!(server.calls().len(), 1);
    let seen = server.seen();
    assert!(
        seen.iter()
            .all(|exchange| exchange.path == "/servers/fixture/mcp"),
        "{seen:#?}"
    );
    let after_opening = seen
        .iter()
        .filter(|exchange| exchange.message["method"] != "initialize");
    let sessions: Vec<_> = after_opening
        .map(|exchange| exchange.headers.get("mcp-session-id"))
        .collect();
    assert!(
        sessions
            .iter()
            .all(|session| session.is_some_and(|session| session == mcp::SESSION)),
        "{sessions:?}"
    );
    Ok(())
}
