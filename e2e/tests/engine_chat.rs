//! The small real model on the bundled engine: what it says is its own affair, that it arrives is ours.

use anyhow::{Context, Result};
use codex_bridge_e2e::{
    bench::process,
    client,
    codex::Codex,
    engine::{Options, SMOLLM2},
    install,
};
use pretty_assertions::assert_eq;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn smollm2_answers_codex() -> Result<()> {
    let bridge = Options::smollm2().start().await?;

    let turn = Codex::new(install::CODEX, &bridge.base_url())?
        .slim()
        .read_only()
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

#[tokio::test(flavor = "multi_thread")]
async fn health_and_models_tell_what_is_served() -> Result<()> {
    let bridge = Options::smollm2()
        .engine("contextLength", json!(4096))
        .engine("threads", json!(1))
        .start()
        .await?;

    let health = client::get(&format!("{}/health", bridge.origin())).await?;
    assert_eq!(health["status"], "ready");
    let upstream = &health["upstream"];
    assert_eq!(
        (&upstream["kind"], &upstream["model"], &upstream["context"]),
        (&json!("bundled"), &json!(SMOLLM2), &json!(4096))
    );
    let engine = &upstream["engine"];
    assert_eq!(
        (&engine["model"]["format"], &engine["model"]["parameters"]),
        (&json!("Q4_1"), &json!(134_515_008))
    );
    assert_eq!(engine["device"]["threads"], 1);
    assert_eq!(engine["queue"], json!({"waiting": 0, "running": 0}));
    assert!(
        engine["pages"]["total"]
            .as_u64()
            .is_some_and(|pages| pages >= 4096 / 16),
        "{engine}"
    );
    assert_eq!(engine["pages"]["used"], 0);

    let list = client::get(&format!("{}/models", bridge.base_url())).await?;
    assert_eq!(
        (&list["data"][0]["id"], &list["data"][0]["meta"]["n_ctx"]),
        (&json!(SMOLLM2), &json!(4096))
    );
    assert_eq!(
        (
            &list["models"][0]["slug"],
            &list["models"][0]["context_window"]
        ),
        (&json!(SMOLLM2), &json!(4096))
    );
    Ok(())
}

/// The cache is small, so that five turns have touched all of it: from there on nothing may be added.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn twenty_turns_leave_no_error_and_no_memory() -> Result<()> {
    const WARM_UP: usize = 8;
    let bridge = Options::smollm2()
        .engine("contextLength", json!(1024))
        .engine("maxBatch", json!(1))
        .start()
        .await?;
    let pid = bridge.pid().context("the bridge runs")?;
    let mut before = 0.0;
    for turn in 0..20 {
        if turn == WARM_UP {
            before = process::resident_megabytes(pid)?;
        }
        let body = json!({
            "model": SMOLLM2, "stream": true, "max_output_tokens": 128, "temperature": 0,
            "instructions": "You answer in one short sentence.",
            "input": format!("Tell me something about the number {turn}."),
        });
        let events = client::events(&bridge.base_url(), &body).await?;
        let response = client::lawful(&events)?;
        assert_ne!(response["status"], "failed", "{response}");
    }
    let after = process::resident_megabytes(pid)?;
    assert!(
        after < before + 8.0,
        "{before} MB after {WARM_UP} turns, {after} MB after 20"
    );
    let health = client::get(&format!("{}/health", bridge.origin())).await?;
    let engine = &health["upstream"]["engine"];
    assert_eq!(engine["pages"]["used"], 0, "{health}");
    let bytes = |key: &str| engine["model"][key].as_f64().unwrap_or_default();
    let planned = (bytes("weightBytes") + bytes("kvBytes")) / 1e6;
    assert!(
        after < planned + 157.0,
        "{after} MB resident, {planned} MB of weights and cache"
    );
    Ok(())
}
