//! A long conversation on the bundled engine: each request finds the prompt of the one before in the cache.

use std::fs;

use anyhow::{Context, Result};
use codex_bridge_e2e::{
    client,
    codex::Codex,
    engine::Options,
    event::{ev_function_call, ev_message},
    install,
    script::{Answer, Reply, Upstream},
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

const TURNS: usize = 10;

/// Every third turn runs a command before it answers.
fn calls(turn: usize) -> bool {
    turn % 3 == 1
}

fn answers(turn: usize) -> Vec<Answer> {
    let mut answers = Vec::new();
    if calls(turn) {
        let command = json!({"cmd": format!("cat notes.txt; echo turn {turn}")});
        let call = ev_function_call(&format!("call_{turn}"), "exec_command", &command);
        let words = ev_message("Let me look at the notes.");
        answers.push(Reply::started().item(words).item(call).completed());
    }
    let text =
        format!("That was step {turn}. The notes say what is to be done next, and I have done it.");
    answers.push(Reply::started().item(ev_message(&text)).completed());
    answers
}

/// What the real Codex sends in ten turns of one thread, answered by a script.
async fn conversation() -> Result<Vec<Value>> {
    let upstream = Upstream::in_order((0..TURNS).flat_map(answers).collect()).await?;
    let codex = Codex::new(install::CODEX, &upstream.base_url())?;
    fs::write(
        codex.work().join("notes.txt"),
        "Sort the list.\nWrite a test.\n".repeat(4),
    )?;
    codex
        .exec("Work through the notes, one step at a time.")
        .await?
        .assert_completed();
    for turn in 1..TURNS {
        let turn = codex
            .resume(&format!("Go on with step {turn}, please."))
            .await?;
        turn.assert_completed();
    }
    let count = (0..TURNS).map(|turn| answers(turn).len()).sum();
    let asked = upstream.wait_for(count).await?;
    assert_eq!(asked.len(), count);
    Ok(asked.into_iter().map(|asked| asked.body).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_prompt_before_is_served_from_the_cache() -> Result<()> {
    let requests = conversation().await?;
    let bridge = Options::smollm2().start().await?;

    let mut before = None;
    let mut shares = Vec::new();
    for mut body in requests {
        // What the model says is not what Codex goes on with, so a word is enough.
        body["max_output_tokens"] = json!(4);
        let events = client::events(&bridge.base_url(), &body).await?;
        let usage = &client::lawful(&events)?["usage"];
        let input = usage["input_tokens"].as_f64().context("input_tokens")?;
        let cached = usage["input_tokens_details"]["cached_tokens"].as_f64();
        let cached = cached.context("cached_tokens")?;
        println!("{input} tokens, {cached} of them cached");
        if let Some(before) = before {
            shares.push(cached / before);
        }
        before = Some(input);
    }

    assert!(shares.len() >= TURNS);
    assert!(shares.iter().all(|share| *share >= 0.95), "{shares:?}");
    Ok(())
}
