//! A silent upstream: Codex gives up after its idle timeout, unless something with data arrives.

use anyhow::Result;
use codex_bridge_e2e::{
    codex::Codex,
    event::ev_message,
    install,
    rig::Rig,
    script::{Gate, Reply, Upstream},
    tap::Tap,
};
use pretty_assertions::assert_eq;
use serde_json::json;

/// Codex's patience in these tests.
const IDLE: &str = "stream_idle_timeout_ms = 2000";

#[tokio::test(flavor = "multi_thread")]
async fn heartbeats_outlast_the_idle_timeout() -> Result<()> {
    let gate = Gate::closed();
    let upstream = Upstream::in_order(vec![
        Reply::started()
            .wait(&gate)
            .item(ev_message("At last."))
            .completed(),
    ])
    .await?;
    let rig = Rig::new(upstream, json!({"keepAlive": "500ms"})).await?;
    let tap = Tap::before(rig.bridge.origin()).await?;
    let codex = Codex::new(install::CODEX, &tap.base_url())?.provider(IDLE);

    let run = tokio::spawn(async move { codex.exec("take your time").await });
    // One every half second, so ten are five seconds: far beyond the idle timeout.
    tap.wait_for("event: response.in_progress", 11).await?;
    gate.open();
    let turn = run.await??;

    turn.assert_completed();
    assert_eq!(turn.messages(), ["At last."]);
    rig.asked(1)?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_heartbeats_codex_asks_again() -> Result<()> {
    let never = Gate::closed();
    let upstream = Upstream::in_order(vec![
        Reply::started().wait(&never).completed(),
        Reply::started().item(ev_message("Second try.")).completed(),
    ])
    .await?;
    let rig = Rig::new(upstream, json!({"keepAlive": "off"})).await?;

    let turn = rig.codex()?.provider(IDLE).exec("hurry").await?;

    turn.assert_completed();
    assert_eq!(turn.messages(), ["Second try."]);
    rig.asked(2)?;
    Ok(())
}
