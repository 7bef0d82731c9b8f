//! What goes wrong upstream, and what the user of Codex gets to see of it.

use anyhow::Result;
use codex_bridge_e2e::{
    bridge::Bridge,
    codex::Codex,
    event::ev_message,
    install,
    rig::Rig,
    script::{self, Answer, Reply, Upstream},
    tap::Tap,
};
use pretty_assertions::assert_eq;
use serde_json::json;

/// Codex repeats nothing by itself, so what succeeds has been waited for by the bridge.
fn impatient(codex: Codex) -> Codex {
    codex
        .provider("request_max_retries = 0")
        .provider("stream_max_retries = 0")
}

#[tokio::test(flavor = "multi_thread")]
async fn prompt_beyond_the_context_is_explained_and_not_repeated() -> Result<()> {
    let message =
        "request (9000 tokens) exceeds the available context size (4096 tokens), try increasing it";
    let error = json!({"code": 400, "message": message, "type": "exceed_context_size_error", "n_prompt_tokens": 9000, "n_ctx": 4096});
    let rig = Rig::in_order(vec![Answer::status(400, json!({"error": error}))]).await?;

    let turn = rig.codex()?.exec("too much").await?;

    assert!(!turn.status.success());
    let errors = turn.errors().join("\n");
    assert!(errors.contains("context window"), "{errors}");
    rig.asked(1)?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn loading_server_is_waited_for() -> Result<()> {
    let loading = || {
        Answer::status(
            503,
            json!({"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}),
        )
    };
    let rig = Rig::in_order(vec![
        loading(),
        loading(),
        Reply::started().item(ev_message("Loaded.")).completed(),
    ])
    .await?;

    let turn = impatient(rig.codex()?).exec("are you there").await?;

    turn.assert_completed();
    assert_eq!(turn.messages(), ["Loaded."]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_starts_later_is_waited_for() -> Result<()> {
    let address = script::vacant().await?;
    let bridge = Bridge::start(&script::base_url(address), json!({})).await?;
    let tap = Tap::before(bridge.origin()).await?;
    let codex = impatient(Codex::new(install::CODEX, &tap.base_url())?);

    let run = tokio::spawn(async move { codex.exec("are you there").await });
    tap.wait_for("POST /v1/responses", 1).await?;
    let answer = Reply::started().item(ev_message("Started.")).completed();
    let upstream = Upstream::in_order_on(address, vec![answer]).await?;
    let turn = run.await??;

    turn.assert_completed();
    assert_eq!(turn.messages(), ["Started."]);
    assert_eq!(upstream.asked().len(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_stream_is_repeated_a_bounded_number_of_times() -> Result<()> {
    let broken = || Reply::started().item(ev_message("Half an")).cut();
    let rig = Rig::in_order(vec![broken(), broken(), broken(), broken()]).await?;

    let turn = rig
        .codex()?
        .provider("stream_max_retries = 2")
        .exec("go on")
        .await?;

    assert!(!turn.status.success());
    rig.asked(3)?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_without_an_end_is_repeated_and_then_succeeds() -> Result<()> {
    let rig = Rig::in_order(vec![
        Reply::started().end(),
        Reply::started().item(ev_message("Whole.")).completed(),
    ])
    .await?;

    let turn = rig.codex()?.exec("go on").await?;

    turn.assert_completed();
    assert_eq!(turn.messages(), ["Whole."]);
    rig.asked(2)?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn permanent_failure_shows_its_message_once() -> Result<()> {
    let rig = Rig::in_order(vec![
        Reply::started().failed("invalid_prompt", "The prompt is not acceptable here."),
    ])
    .await?;

    let turn = rig.codex()?.exec("go on").await?;

    assert!(!turn.status.success());
    let errors = turn.errors().join("\n");
    assert!(
        errors.contains("The prompt is not acceptable here."),
        "{errors}"
    );
    rig.asked(1)?;
    Ok(())
}
