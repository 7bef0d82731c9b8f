//! Codex and the bundled engine, whose model is scripted: whole agent turns, each ending in the right file or output.

use std::fs;

use anyhow::Result;
use codex_bridge_e2e::{
    bridge::Bridge,
    codex::{Codex, Turn},
    engine,
    gguf::Script,
    install, mcp,
    models::{self, bundled},
};
use pretty_assertions::assert_eq;
use serde_json::json;

async fn turn(script: &Script) -> Result<(Codex, Turn, Bridge)> {
    let bridge = engine::scripted(script).await?;
    let codex = Codex::new(install::CODEX, &bridge.base_url())?.slim();
    let turn = codex.exec("make a file").await?;
    turn.assert_completed();
    Ok((codex, turn, bridge))
}

#[tokio::test(flavor = "multi_thread")]
async fn words_reach_the_user() -> Result<()> {
    let (_, turn, _) = turn(&models::text()).await?;

    assert_eq!(turn.messages(), ["Plain words only."]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn called_command_runs() -> Result<()> {
    let (codex, turn, _) = turn(&bundled::command()).await?;

    assert_eq!(turn.messages(), ["The command has run."]);
    assert_eq!(fs::read_to_string(codex.work().join("ran.txt"))?, "ran\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn command_called_in_the_form_of_llama_31_runs() -> Result<()> {
    let (codex, turn, _) = turn(&bundled::bare_command()).await?;

    assert_eq!(turn.messages(), ["The command has run."]);
    assert_eq!(fs::read_to_string(codex.work().join("ran.txt"))?, "ran\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn thinking_and_words_before_a_call_are_kept_apart() -> Result<()> {
    let (codex, turn, _) = turn(&bundled::thinking_command()).await?;

    assert_eq!(turn.messages().len(), 2, "{:?}", turn.messages());
    assert_eq!(turn.messages()[0].trim(), "I make it.");
    assert_eq!(turn.items("command_execution").count(), 1);
    assert!(codex.work().join("ran.txt").exists());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_commands_both_run() -> Result<()> {
    let (codex, turn, _) = turn(&bundled::two_commands()).await?;

    assert_eq!(turn.messages(), ["Both have run."]);
    for (file, content) in [("first.txt", "first\n"), ("second.txt", "second\n")] {
        assert_eq!(fs::read_to_string(codex.work().join(file))?, content);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn patch_written_by_the_model_changes_files() -> Result<()> {
    let (codex, turn, _) = turn(&bundled::patch()).await?;

    assert_eq!(turn.messages(), ["The file is made."]);
    assert_eq!(
        fs::read_to_string(codex.work().join("made.txt"))?,
        "say \"hi\"\nback\\slash\n"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_of_an_mcp_server_is_called() -> Result<()> {
    let bridge = engine::scripted(&bundled::mcp_echo()).await?;
    let codex = Codex::new(install::CODEX, &bridge.base_url())?.slim();
    let journal = codex.home().join("mcp.jsonl");
    let codex = codex.mcp_stdio("fixture", &mcp::binary()?, &[&journal.to_string_lossy()]);

    let turn = codex.exec("use the tool").await?;

    turn.assert_completed();
    assert_eq!(turn.messages(), ["It echoes."]);
    let calls = mcp::calls(&journal)?;
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert_eq!(
        (&calls[0]["name"], &calls[0]["arguments"]),
        (&json!("echo"), &json!({"text": "through and through"}))
    );
    Ok(())
}
