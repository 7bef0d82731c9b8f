//! Four Codex releases, three request dialects: one turn each with a command, a patch and an MCP tool.

use std::fs;

use anyhow::Result;
use codex_bridge_e2e::{
    codex::Codex,
    event::{ev_function_call, ev_message},
    invariants, mcp,
    rig::Rig,
    script::Reply,
};
use pretty_assertions::assert_eq;
use serde_json::json;

async fn command_patch_and_mcp_tool(version: &str) -> Result<()> {
    let patch = "*** Begin Patch\n*** Add File: patched.txt\n+patched\n*** End Patch";
    let rig = Rig::in_order(vec![
        Reply::started()
            .item(ev_function_call(
                "call_1",
                "exec_command",
                &json!({"cmd": "echo ran > ran.txt"}),
            ))
            .completed(),
        Reply::started()
            .item(ev_function_call(
                "call_2",
                "apply_patch",
                &json!({"input": patch}),
            ))
            .completed(),
        Reply::started()
            .item(ev_function_call(
                "call_3",
                "mcp__fixture__echo",
                &json!({"text": "echoed"}),
            ))
            .completed(),
        Reply::started().item(ev_message("All three.")).completed(),
    ])
    .await?;
    let codex = Codex::new(version, &rig.bridge.base_url())?;
    let journal = codex.home().join("mcp.jsonl");
    let codex = codex.mcp_stdio("fixture", &mcp::binary()?, &[&journal.to_string_lossy()]);

    let turn = codex.exec("do three things").await?;

    turn.assert_completed();
    assert_eq!(turn.messages(), ["All three."]);
    assert_eq!(fs::read_to_string(codex.work().join("ran.txt"))?, "ran\n");
    assert_eq!(
        fs::read_to_string(codex.work().join("patched.txt"))?,
        "patched\n"
    );
    assert_eq!(mcp::calls(&journal)?.len(), 1);
    let outputs = invariants::outputs(&rig.asked(4)?[3].body);
    assert_eq!(outputs.len(), 3);
    assert!(outputs[2].contains("echoed"), "{outputs:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn codex_0_120_with_flat_tools() -> Result<()> {
    command_patch_and_mcp_tool("0.120.0").await
}

#[tokio::test(flavor = "multi_thread")]
async fn codex_0_146_with_namespaces_and_instructions() -> Result<()> {
    command_patch_and_mcp_tool("0.146.1").await
}

#[tokio::test(flavor = "multi_thread")]
async fn codex_0_160_with_namespaces_and_instructions() -> Result<()> {
    command_patch_and_mcp_tool("0.160.0").await
}

#[tokio::test(flavor = "multi_thread")]
async fn codex_0_171_with_developer_messages() -> Result<()> {
    command_patch_and_mcp_tool("0.171.0").await
}
