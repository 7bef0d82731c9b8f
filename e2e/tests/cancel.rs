//! Codex goes away in the middle of an answer: the upstream learns of it at once.

use anyhow::Result;
use codex_bridge_e2e::{
    event::ev_message,
    rig::Rig,
    script::{End, Gate, Reply},
};
use pretty_assertions::assert_eq;

#[tokio::test(flavor = "multi_thread")]
async fn killed_codex_ends_the_upstream_request() -> Result<()> {
    let never = Gate::closed();
    let rig = Rig::in_order(vec![
        Reply::started()
            .item(ev_message("Thinking…"))
            .wait(&never)
            .completed(),
    ])
    .await?;
    let codex = rig.codex()?;

    let run = tokio::spawn(async move { codex.exec("think long").await });
    let asked = rig.upstream.wait_for(1).await?;
    run.abort();

    assert_eq!(asked[0].end().await?, End::ClientLeft);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_bridge_leaves_with_success() -> Result<()> {
    let rig = Rig::in_order(vec![Reply::started().item(ev_message("Hi.")).completed()]).await?;
    rig.codex()?.exec("hi").await?.assert_completed();

    let status = rig.bridge.stop().await?;

    assert!(status.success(), "{status}");
    Ok(())
}
