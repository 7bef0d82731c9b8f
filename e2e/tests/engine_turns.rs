//! One thread of the real Codex on the small real model, turn after turn: none fails, none hangs, and none leaves memory behind.

use std::env;

use anyhow::{Context, Result};
use codex_bridge_e2e::{
    bench::process,
    bridge::Bridge,
    client,
    codex::{Codex, Turn},
    engine::{Options, SMOLLM2},
    install,
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// From here on nothing may be added.
const WARM_UP: usize = 5;

/// Tokens of the model's window.
const WINDOW: usize = 8192;

/// How many turns: a few, or what `CODEX_BRIDGE_TURNS` says, as
/// `CODEX_BRIDGE_TURNS=20 cargo test --release -p codex-bridge-e2e --test engine_turns -- --nocapture` does.
fn turns() -> Result<usize> {
    match env::var("CODEX_BRIDGE_TURNS") {
        Ok(turns) => turns.parse().context("CODEX_BRIDGE_TURNS"),
        Err(_) => Ok(WARM_UP + 2),
    }
}

const QUESTIONS: [&str; 5] = [
    "Say hello.",
    "What is a compiler? One sentence, please.",
    "And what is a linker?",
    "Name three colours.",
    "Thank you. Say it in other words.",
];

/// A prompt that fills the window has touched every page of the cache once.
async fn touch_cache(bridge: &Bridge) -> Result<()> {
    let body = json!({
        "model": SMOLLM2, "stream": true, "max_output_tokens": 1,
        "input": "word ".repeat(WINDOW - 100),
    });
    let events = client::events(&bridge.base_url(), &body).await?;
    let usage = &client::lawful(&events)?["usage"];
    assert!(
        usage["input_tokens"].as_u64() > Some(WINDOW as u64 - 200),
        "{usage}"
    );
    Ok(())
}

/// What `/health` says of the engine.
async fn engine(bridge: &Bridge) -> Result<Value> {
    let health = client::get(&format!("{}/health", bridge.origin())).await?;
    Ok(health["upstream"]["engine"].clone())
}

fn tokens(engine: &Value, key: &str) -> u64 {
    engine["tokens"][key].as_u64().unwrap_or_default()
}

fn usage(turn: &Turn) -> &Value {
    let completed = turn
        .events
        .iter()
        .find(|event| event["type"] == "turn.completed");
    completed.map_or(&Value::Null, |event| &event["usage"])
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn codex_goes_on_with_a_thread_turn_after_turn() -> Result<()> {
    let turns = turns()?;
    let bridge = Options::smollm2()
        .engine("contextLength", json!(WINDOW))
        .engine("maxBatch", json!(1))
        .start()
        .await?;
    touch_cache(&bridge).await?;
    let filled = tokens(&engine(&bridge).await?, "prompt");
    let codex = Codex::new(install::CODEX, &bridge.base_url())?
        .slim()
        .read_only()
        .catalog("context_window", json!(WINDOW));
    let pid = bridge.pid().context("the bridge runs")?;
    let mut before = f64::INFINITY;
    for number in 0..turns {
        let question = QUESTIONS[number % QUESTIONS.len()];
        let turn = match number {
            0 => codex.exec(question).await?,
            _ => codex.resume(question).await?,
        };
        turn.assert_completed();
        assert_eq!(turn.errors(), Vec::<&str>::new());
        let resident = process::resident_megabytes(pid)?;
        println!(
            "turn {}: {}, {resident:.1} MB resident",
            number + 1,
            usage(&turn)
        );
        if number + 1 == WARM_UP {
            before = resident;
        }
    }
    let after = process::resident_megabytes(pid)?;
    assert!(
        after < before + 8.0,
        "{before} MB after {WARM_UP} turns, {after} MB after {turns}"
    );
    let engine = engine(&bridge).await?;
    // What was said before is found in the cache, not computed again.
    assert!(
        tokens(&engine, "cached") > tokens(&engine, "prompt") - filled,
        "{engine}"
    );
    assert_eq!(engine["pages"]["used"], 0, "{engine}");
    Ok(())
}
