//! A real model on a real server: what it says is its own affair, that it arrives is ours.

use anyhow::Result;
use codex_bridge_e2e::{
    bridge::Bridge,
    codex::Codex,
    install,
    llama::{Llama, Options},
};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn smollm2_answers_codex() -> Result<()> {
    let options = Options {
        longest_answer: 48,
        ..Options::smollm2()?
    };
    let llama = Llama::start(&options).await?;
    let bridge = Bridge::start(&llama.base_url(), json!({})).await?;

    let turn = Codex::new(install::CODEX, &bridge.base_url())?
        .slim()
        .exec("Say hello.")
        .await?;

    turn.assert_completed();
    let messages = turn.messages();
    assert!(
        messages.len() == 1 && !messages[0].trim().is_empty(),
        "{messages:?}"
    );
    Ok(())
}
