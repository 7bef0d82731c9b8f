//! Codex, the bridge, and a real llama.cpp server whose model is scripted: whole agent turns on a real engine.

use std::fs;

use anyhow::Result;
use codex_bridge_e2e::{
    bridge::Bridge,
    codex::{Codex, Turn},
    gguf::Script,
    install,
    llama::Llama,
    models,
};
use pretty_assertions::assert_eq;
use serde_json::json;

async fn turn(script: &Script) -> Result<(Codex, Turn)> {
    let llama = Llama::scripted(script).await?;
    let bridge = Bridge::start(&llama.base_url(), json!({})).await?;
    let codex = Codex::new(install::CODEX, &bridge.base_url())?.slim();
    let turn = codex.exec("make a file").await?;
    turn.assert_completed();
    Ok((codex, turn))
}

#[tokio::test(flavor = "multi_thread")]
async fn called_command_runs() -> Result<()> {
    let (codex, turn) = turn(&models::command()).await?;

    assert_eq!(turn.messages(), ["The command has run."]);
    assert_eq!(fs::read_to_string(codex.work().join("ran.txt"))?, "ran\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn command_called_in_the_form_of_llama_31_runs() -> Result<()> {
    let (codex, turn) = turn(&models::bare_command()).await?;

    assert_eq!(turn.messages(), ["The command has run."]);
    assert_eq!(fs::read_to_string(codex.work().join("ran.txt"))?, "ran\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn thinking_and_words_before_a_call_are_kept_apart() -> Result<()> {
    let (codex, turn) = turn(&models::thinking_command()).await?;

    assert_eq!(turn.messages().len(), 2, "{:?}", turn.messages());
    assert_eq!(turn.messages()[0].trim(), "I make it.");
    assert_eq!(turn.items("command_execution").count(), 1);
    assert!(codex.work().join("ran.txt").exists());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_commands_both_run() -> Result<()> {
    let (codex, turn) = turn(&models::two_commands()).await?;

    assert_eq!(turn.messages(), ["Both have run."]);
    assert_eq!(
        fs::read_to_string(codex.work().join("first.txt"))?,
        "first\n"
    );
    assert_eq!(
        fs::read_to_string(codex.work().join("second.txt"))?,
        "second\n"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn patch_written_by_the_model_changes_files() -> Result<()> {
    let (codex, turn) = turn(&models::patch()).await?;

    assert_eq!(turn.messages(), ["The file is made."]);
    assert_eq!(
        fs::read_to_string(codex.work().join("made.txt"))?,
        "say \"hi\"\nback\\slash\n"
    );
    Ok(())
}
