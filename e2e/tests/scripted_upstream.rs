//! The harness itself: the scripted upstream waits, notices a client that leaves, and refuses what the script lacks.

use anyhow::Result;
use codex_bridge_e2e::{
    client,
    event::ev_message,
    script::{End, Gate, Reply, Upstream},
};
use pretty_assertions::assert_eq;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn whole_answer_is_lawful_and_seen_to_be_sent() -> Result<()> {
    let upstream = Upstream::in_order(vec![
        Reply::started().item(ev_message("One two.")).completed(),
    ])
    .await?;

    let events =
        client::events(&upstream.base_url(), &json!({"model": "m", "input": "hi"})).await?;

    assert_eq!(
        client::lawful(&events)?["output"][0]["content"][0]["text"],
        "One two."
    );
    assert_eq!(upstream.asked()[0].end().await?, End::Sent);
    let (status, _) = client::post(
        &upstream.base_url(),
        &json!({"model": "m", "input": "more"}),
    )
    .await?;
    assert_eq!(status, 400);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_leaves_at_a_gate_is_noticed() -> Result<()> {
    let never = Gate::closed();
    let upstream = Upstream::in_order(vec![Reply::started().wait(&never).completed()]).await?;
    let url = upstream.base_url();

    let client =
        tokio::spawn(
            async move { client::post(&url, &json!({"model": "m", "input": "hi"})).await },
        );
    let asked = upstream.wait_for(1).await?;
    client.abort();

    assert_eq!(asked[0].end().await?, End::ClientLeft);
    Ok(())
}
