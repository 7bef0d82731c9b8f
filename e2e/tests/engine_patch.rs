//! Codex's own `apply_patch`, forced on a model that has never seen one: whatever it finishes is a patch.

use std::env;

use anyhow::{Context, Result, ensure};
use codex_bridge_e2e::{
    client,
    codex::Codex,
    engine::Options,
    event::ev_message,
    install, patch,
    script::{Reply, Upstream},
};
use futures_util::future::try_join_all;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// Requests that run side by side.
const AT_ONCE: usize = 4;

/// How many patches are wanted: a few, or what `CODEX_BRIDGE_CALLS` says, as
/// `CODEX_BRIDGE_CALLS=50 cargo test --release -p codex-bridge-e2e --test engine_patch -- --nocapture` does.
fn wanted() -> Result<usize> {
    match env::var("CODEX_BRIDGE_CALLS") {
        Ok(wanted) => wanted.parse().context("CODEX_BRIDGE_CALLS"),
        Err(_) => Ok(4),
    }
}

/// What Codex sends first, with its grammar in the tool; the tool must be called.
async fn request() -> Result<Value> {
    let answer = Reply::started().item(ev_message("Hello.")).completed();
    let upstream = Upstream::in_order(vec![answer]).await?;
    let codex = Codex::new(install::CODEX, &upstream.base_url())?.slim();
    codex.exec(QUESTION).await?.assert_completed();
    let mut body = upstream.wait_for(1).await?.remove(0).body;
    let mut tools = body["tools"].as_array().context("tools")?.iter();
    let tool = tools.find(|tool| tool["name"] == "apply_patch");
    assert_eq!(tool.context("apply_patch")?["format"]["syntax"], "lark");
    body["tool_choice"] = json!({"type": "custom", "name": "apply_patch"});
    body["parallel_tool_calls"] = json!(false);
    // A small model may not find the end of a line.
    body["max_output_tokens"] = json!(400);
    Ok(body)
}

const QUESTION: &str = "QUESTION";

/// The request with a question of this number; the model draws as it does for Codex, which says nothing about that.
fn numbered(body: &Value, number: usize) -> Result<Value> {
    let hunk = match number % 4 {
        0 => format!("*** Add File: list_{number}.txt\n+apples\n+pears"),
        1 => format!("*** Delete File: old/part_{number}.md"),
        2 => format!("*** Update File: count.py\n@@\n-count = {number}\n+count = 0"),
        _ => format!("*** Update File: a.txt\n*** Move to: b{number}.txt\n@@ head\n word\n+more"),
    };
    let question = format!("Apply this patch:\n*** Begin Patch\n{hunk}\n*** End Patch");
    let text = body.to_string();
    ensure!(text.contains(QUESTION), "the question is not in {text}");
    let question = json!(question).to_string();
    let mut body: Value =
        serde_json::from_str(&text.replace(QUESTION, question.trim_matches('"')))?;
    body["seed"] = json!(number);
    Ok(body)
}

/// What became of one request.
enum Outcome {
    Whole,
    /// The limit came before the end: such a call is never run.
    Cut,
}

fn outcome(response: &Value) -> Result<Outcome> {
    let output = response["output"].as_array().context("output")?;
    assert_eq!(output.len(), 1, "{response}");
    let call = &output[0];
    assert_eq!(
        (&call["type"], &call["name"], &call["status"]),
        (
            &json!("custom_tool_call"),
            &json!("apply_patch"),
            &response["status"]
        )
    );
    let input = call["input"].as_str().context("input")?;
    match response["status"].as_str() {
        Some("completed") => {
            patch::check(input).with_context(|| format!("not a patch: {input}"))?;
            Ok(Outcome::Whole)
        }
        Some("incomplete") => Ok(Outcome::Cut),
        _ => anyhow::bail!("{response}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forced_patch_is_always_a_patch() -> Result<()> {
    let wanted = wanted()?;
    let body = request().await?;
    let bridge = Options::smollm2()
        .engine("maxBatch", json!(AT_ONCE))
        .config("repairPatchMarkers", json!(false))
        .start()
        .await?;

    let base_url = bridge.base_url();
    let ask = async |number: usize| client::events(&base_url, &numbered(&body, number)?).await;
    let (mut whole, mut cut) = (0, 0);
    while whole < wanted {
        let asked = whole + cut;
        let numbers = asked..asked + AT_ONCE.min(wanted - whole);
        for events in try_join_all(numbers.map(&ask)).await? {
            match outcome(client::lawful(&events)?)? {
                Outcome::Whole => whole += 1,
                Outcome::Cut => cut += 1,
            }
        }
        ensure!(
            cut <= wanted,
            "{cut} answers were cut, and {whole} were not"
        );
    }
    println!("{whole} patches, all of the grammar; {cut} more answers were cut by the limit");
    Ok(())
}
