//! The bundled engine from start to end: a model that is no model, a stop signal, a kill, and the start after it.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use codex_bridge_e2e::{
    bridge::Bridge,
    client,
    engine::{self, Options, SMOLLM2},
};
use futures_util::StreamExt;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// A standing prompt of about 3 000 tokens, as Codex sends one before every conversation, and a short question.
fn request(question: &str) -> Value {
    let rule = |number: usize| {
        format!("Rule {number}: look at the file before you change it, and say what you did. ")
    };
    let instructions: String = (0..150).map(rule).collect();
    json!({
        "model": SMOLLM2, "stream": true, "max_output_tokens": 8, "temperature": 0,
        "instructions": instructions, "input": question,
    })
}

/// From the request to the first text.
async fn time_to_first_token(bridge: &Bridge, body: &Value) -> Result<Duration> {
    let began = Instant::now();
    let mut first = None;
    let response = client::client()?
        .post(format!("{}/responses", bridge.base_url()))
        .header("content-type", "application/json")
        .body(body.to_string())
        .send()
        .await?;
    let mut seen = String::new();
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        seen.push_str(&String::from_utf8_lossy(&chunk?));
        if first.is_none() && seen.contains("event: response.output_text.delta") {
            first = Some(began.elapsed());
        }
    }
    client::lawful(&client::parse(&seen)?)?;
    first.with_context(|| format!("no text in {seen}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_finds_the_standing_prompt_on_disk() -> Result<()> {
    let store = tempfile::tempdir()?;
    let options = Options::smollm2().warm_start(store.path());

    let bridge = options.start().await?;
    let cold = time_to_first_token(&bridge, &request("What is a compiler?")).await?;
    let status = bridge.stop().await?;
    assert!(status.success(), "{status}");
    let bridge = options.start().await?;
    let warm = time_to_first_token(&bridge, &request("What is a linker?")).await?;

    println!("first token after {cold:?} cold, {warm:?} after a restart");
    assert!(warm <= cold / 10, "{cold:?} cold, {warm:?} after a restart");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_moment_it_starts_again_and_says_the_same() -> Result<()> {
    let store = tempfile::tempdir()?;
    let options = Options::smollm2().warm_start(store.path());
    let body = request("Say hello.");
    let mut answers = Vec::new();
    for round in 0..4u32 {
        let bridge = options.start().await?;
        let events = client::events(&bridge.base_url(), &body).await?;
        let response = client::lawful(&events)?;
        answers.push(response["output"].as_array().map(|items| {
            items
                .iter()
                .map(|item| item["content"][0]["text"].clone())
                .collect::<Vec<_>>()
        }));
        // While it may be writing: the store is written after an answer, not in it.
        let again = tokio::spawn({
            let base_url = bridge.base_url();
            let body = request(&format!("Question {round}"));
            async move { client::events(&base_url, &body).await }
        });
        tokio::task::yield_now().await;
        bridge.kill().await?;
        drop(again.await);
    }
    assert!(answers[0].is_some());
    assert!(
        answers.iter().all(|answer| *answer == answers[0]),
        "{answers:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_store_is_thrown_away() -> Result<()> {
    let store = tempfile::tempdir()?;
    let options = Options::smollm2().warm_start(store.path());
    let bridge = options.start().await?;
    client::events(&bridge.base_url(), &request("Say hello.")).await?;
    bridge.stop().await?;
    let damaged = damage(store.path())?;
    assert!(damaged > 0, "nothing was stored");

    let bridge = options.start().await?;
    let events = client::events(&bridge.base_url(), &request("Say hello.")).await?;

    assert_ne!(client::lawful(&events)?["status"], "failed");
    Ok(())
}

/// Turns a byte in the middle of every file; how many there were.
fn damage(folder: &Path) -> Result<usize> {
    let mut damaged = 0;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            damaged += damage(&path)?;
            continue;
        }
        let mut bytes = fs::read(&path)?;
        if bytes.len() < 1024 {
            continue;
        }
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x55;
        fs::write(&path, bytes)?;
        damaged += 1;
    }
    Ok(damaged)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_signal_ends_open_streams_with_a_word() -> Result<()> {
    let bridge = Options::smollm2()
        .config("shutdownGrace", json!("300ms"))
        .start()
        .await?;
    let mut body = request("Count to ten thousand, every single number.");
    body["max_output_tokens"] = json!(4000);
    let response = client::client()?
        .post(format!("{}/responses", bridge.base_url()))
        .header("content-type", "application/json")
        .body(body.to_string())
        .send()
        .await?;
    let mut chunks = response.bytes_stream();
    let first = chunks.next().await.context("a first event")??;

    bridge.terminate();
    let mut seen = String::from_utf8_lossy(&first).into_owned();
    while let Some(chunk) = chunks.next().await {
        seen.push_str(&String::from_utf8_lossy(&chunk?));
    }
    let status = bridge.ended().await?;

    let events = client::parse(&seen)?;
    let response = client::lawful(&events)?;
    assert_eq!(response["status"], "failed", "{response}");
    assert!(status.success(), "{status}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_come_before_the_model_wait_for_it() -> Result<()> {
    let bridge = Options::smollm2().begin().await?;

    let mut body = request("Say hello.");
    body["instructions"] = json!("Be brief.");
    let events = client::events(&bridge.base_url(), &body).await?;

    assert_ne!(client::lawful(&events)?["status"], "failed");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_is_cut_short_ends_the_start_within_seconds_and_one_line() -> Result<()> {
    let whole = fs::read(engine::pull(SMOLLM2).await?)?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("cut.gguf");
    fs::write(&path, &whole[..whole.len() / 3])?;
    let mut command = engine::command()?;
    command
        .args(["--listen", "127.0.0.1:0", "--model"])
        .arg(&path);

    let began = Instant::now();
    let output = command.output().await?;

    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(output.status.code(), Some(65));
    let stderr = String::from_utf8_lossy(&output.stderr);
    // The first line says where it listens.
    let lines: Vec<&str> = stderr.lines().skip(1).collect();
    let last = lines.last().copied().unwrap_or_default();
    assert!(last.contains("cut.gguf"), "{stderr}");
    Ok(())
}
