//! One question, one answer.

use anyhow::Result;
use codex_bridge_e2e::{event::ev_message, invariants, rig::Rig, script::Reply};
use pretty_assertions::assert_eq;

#[tokio::test(flavor = "multi_thread")]
async fn answer_reaches_the_user_and_the_upstream_gets_a_plain_request() -> Result<()> {
    let rig = Rig::in_order(vec![
        Reply::started()
            .item(ev_message("Hello there."))
            .completed(),
    ])
    .await?;

    let turn = rig.codex()?.exec("say hello").await?;

    turn.assert_completed();
    assert_eq!(turn.messages(), ["Hello there."]);
    let asked = rig.asked(1)?;
    let body = &asked[0].body;
    assert_eq!(body["model"], "local-model");
    assert_eq!(body["stream"], true);
    let tools = invariants::tool_names(body);
    for name in ["exec_command", "apply_patch", "multi_agent_v1__spawn_agent"] {
        assert!(tools.contains(&name), "{name} is missing in {tools:?}");
    }
    assert!(body["input"].to_string().contains("say hello"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn websocket_is_never_tried() -> Result<()> {
    let rig = Rig::in_order(vec![Reply::started().item(ev_message("Fine.")).completed()]).await?;

    rig.codex()?
        .provider("supports_websockets = false")
        .exec("hi")
        .await?
        .assert_completed();

    assert!(
        !rig.upstream
            .other()
            .iter()
            .any(|request| request.ends_with("/responses")),
        "{:?}",
        rig.upstream.other()
    );
    Ok(())
}
