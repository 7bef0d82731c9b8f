//! The bundled engine from start to end: a model that is no model, a stop signal, a kill, and the start after it.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use codex_bridge_backend::testing::TinyLlama;
use codex_bridge_e2e::{
    bridge::Bridge,
    client,
    engine::{self, Options, SMOLLM2},
    script::PATIENCE,
};
use futures_util::StreamExt;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::time::timeout;

/// A standing prompt of about 3 000 tokens, as Codex sends one before every conversation, and a short question.
fn request(question: &str) -> Value {
    ask(150, question)
}

/// The same with about 800 tokens, enough to be kept on disk.
fn short_request(question: &str) -> Value {
    ask(40, question)
}

fn ask(rules: usize, question: &str) -> Value {
    let rule = |number: usize| {
        format!("Rule {number}: look at the file before you change it, and say what you did. ")
    };
    let instructions: String = (0..rules).map(rule).collect();
    json!({
        "model": SMOLLM2, "stream": true, "max_output_tokens": 8, "temperature": 0,
        "instructions": instructions, "input": question,
    })
}

/// From the request to the first text.
async fn time_to_first_token(bridge: &Bridge, body: &Value) -> Result<Duration> {
    let began = Instant::now();
    let mut first = None;
    let mut seen = String::new();
    let mut chunks = open(bridge, body).await?.bytes_stream();
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

/// When the engine is killed.
#[derive(Debug, Clone, Copy)]
enum Kill {
    /// While it writes the standing prompt to disk.
    Writing,
    /// After so many events of an answer.
    Events(usize),
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_moment_it_starts_again_and_says_the_same() -> Result<()> {
    let body = short_request("Say hello.");
    let bridge = Options::smollm2().start().await?;
    let expected = text(&bridge, &body).await?;
    bridge.stop().await?;
    assert!(!expected.is_empty());

    let store = tempfile::tempdir()?;
    let options = Options::smollm2().warm_start(store.path());
    let mut writes_cut = 0;
    for kill in [
        Kill::Writing,
        Kill::Events(3),
        Kill::Writing,
        Kill::Events(1),
        Kill::Events(8),
    ] {
        if matches!(kill, Kill::Writing) {
            forget(store.path())?;
        }
        let bridge = options.start().await?;
        match kill {
            Kill::Writing => {
                let answer = tokio::spawn({
                    let base_url = bridge.base_url();
                    let body = body.clone();
                    async move { client::events(&base_url, &body).await }
                });
                let part = async {
                    while files(store.path(), "part")?.is_empty() {
                        tokio::task::yield_now().await;
                    }
                    anyhow::Ok(())
                };
                timeout(PATIENCE, part)
                    .await
                    .context("nothing is written")??;
                bridge.kill().await?;
                // The answer may have been whole or cut, and so the file: on a busy machine the kill can come late.
                drop(answer.await);
                let (cut, whole) = (files(store.path(), "part")?, files(store.path(), "kv")?);
                assert_eq!(cut.len() + whole.len(), 1, "{cut:?} {whole:?}");
                writes_cut += cut.len();
            }
            Kill::Events(count) => {
                assert_eq!(text(&bridge, &body).await?, expected, "before {kill:?}");
                let mut stream = open(&bridge, &short_request("And now in French.")).await?;
                let mut seen = String::new();
                while seen.matches("event: ").count() < count {
                    let chunk = stream.chunk().await?.context("more events")?;
                    seen.push_str(&String::from_utf8_lossy(&chunk));
                }
                bridge.kill().await?;
            }
        }
    }
    assert!(writes_cut > 0, "no kill came in time");
    let bridge = options.start().await?;
    assert_eq!(text(&bridge, &body).await?, expected, "after the last");
    bridge.stop().await?;
    // What was cut is gone, and what a stop waits for is there.
    let (cut, whole) = (files(store.path(), "part")?, files(store.path(), "kv")?);
    assert_eq!((cut.len(), whole.len()), (0, 1), "{cut:?} {whole:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_store_is_thrown_away() -> Result<()> {
    let store = tempfile::tempdir()?;
    let options = Options::smollm2().warm_start(store.path());
    let body = short_request("Say hello.");
    let bridge = options.start().await?;
    let expected = text(&bridge, &body).await?;
    bridge.stop().await?;
    let mut damaged = Vec::new();
    for path in files(store.path(), "kv")? {
        let mut bytes = fs::read(&path)?;
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x55;
        fs::write(&path, &bytes)?;
        damaged.push((path, bytes));
    }
    assert_eq!(damaged.len(), 1, "the standing prompt was stored");

    let bridge = options.start().await?;
    let answered = text(&bridge, &body).await?;
    bridge.stop().await?;

    assert_eq!(answered, expected);
    for (path, bytes) in damaged {
        // Removed, or written anew.
        assert!(
            fs::read(&path).ok() != Some(bytes),
            "{} is still damaged",
            path.display()
        );
    }
    Ok(())
}

/// Begins a streamed answer.
async fn open(bridge: &Bridge, body: &Value) -> Result<reqwest::Response> {
    let response = client::client()?
        .post(format!("{}/responses", bridge.base_url()))
        .header("content-type", "application/json")
        .body(body.to_string())
        .send()
        .await?;
    Ok(response.error_for_status()?)
}

/// The text of a whole answer.
async fn text(bridge: &Bridge, body: &Value) -> Result<String> {
    let events = client::events(&bridge.base_url(), body).await?;
    let response = client::lawful(&events)?;
    let text = response["output"][0]["content"][0]["text"].as_str();
    Ok(text.with_context(|| response.to_string())?.to_owned())
}

/// The files of a folder with this extension. One that vanishes meanwhile is none.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path, extension)?);
        } else if path.extension().is_some_and(|it| it == extension) {
            found.push(path);
        }
    }
    Ok(found)
}

/// Removes what is stored, so that it is written again.
fn forget(folder: &Path) -> Result<()> {
    for path in files(folder, "kv")? {
        fs::remove_file(path)?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_signal_ends_open_streams_with_a_word() -> Result<()> {
    let bridge = Options::smollm2()
        .config("shutdownGrace", json!("300ms"))
        .start()
        .await?;
    let mut body = request("Count to ten thousand, every single number.");
    body["max_output_tokens"] = json!(4000);
    let mut chunks = open(&bridge, &body).await?.bytes_stream();
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
    let health = client::client()?
        .get(format!("{}/health", bridge.origin()))
        .send()
        .await?;
    let health: Value = serde_json::from_str(&health.text().await?)?;
    assert_eq!(health["upstream"]["engine"]["state"], "loading", "{health}");

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
    let line = refused(&path).await?;
    assert!(line.contains("cut.gguf"), "{line}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_that_would_fill_the_memory_ends_the_start_within_seconds_and_one_line()
-> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("bomb.gguf");
    let bomb = "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}";
    let model = TinyLlama {
        chat_template: Some(bomb.to_owned()),
        ..TinyLlama::default()
    };
    model.write_gguf(&path)?;
    let line = refused(&path).await?;
    assert!(line.contains("chat template: it does more work"), "{line}");
    Ok(())
}

/// The one line with which the start ends, within the 5 s that it may take.
async fn refused(model: &Path) -> Result<String> {
    let mut command = engine::command()?;
    command
        .args(["--listen", "127.0.0.1:0", "--model"])
        .arg(model);

    let began = Instant::now();
    let output = command.output().await?;

    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(output.status.code(), Some(65));
    let stderr = String::from_utf8_lossy(&output.stderr);
    // The first line says where it listens.
    let lines: Vec<&str> = stderr.lines().skip(1).collect();
    assert_eq!(lines.len(), 1, "{stderr}");
    Ok(lines[0].to_owned())
}
