//! Local compaction: past the window Codex asks for a summary, without tools, and goes on from it.

use anyhow::Result;
use codex_bridge_e2e::{
    event::{ev_function_call, ev_message},
    invariants,
    rig::Rig,
    script::Reply,
};
use pretty_assertions::assert_eq;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn reported_usage_past_the_window_leads_to_a_summary() -> Result<()> {
    let rig = Rig::in_order(vec![
        Reply::started()
            .total_tokens(32_000)
            .item(ev_function_call(
                "call_1",
                "exec_command",
                &json!({"cmd": "echo before the summary"}),
            ))
            .completed(),
        Reply::started()
            .item(ev_message("Summary: something was echoed."))
            .completed(),
        Reply::started()
            .item(ev_message("Done after the summary."))
            .completed(),
    ])
    .await?;
    let codex = rig.codex()?.catalog("context_window", json!(32_768));

    let turn = codex.exec("echo something").await?;

    turn.assert_completed();
    assert_eq!(turn.messages().last(), Some(&"Done after the summary."));
    let asked = rig.asked(3)?;
    assert_eq!(invariants::tool_names(&asked[1].body), Vec::<&str>::new());
    assert_eq!(invariants::outputs(&asked[1].body).len(), 1);
    assert!(
        asked[2].body["input"]
            .to_string()
            .contains("Summary: something was echoed.")
    );
    assert_eq!(invariants::outputs(&asked[2].body).len(), 0);
    Ok(())
}
