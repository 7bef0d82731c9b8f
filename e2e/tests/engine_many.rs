//! Many requests at once on the bundled engine: none changes another's answer, and none leaves anything behind.

use anyhow::{Context, Result};
use codex_bridge_e2e::{
    client,
    engine::{Options, SMOLLM2},
};
use futures_util::future::try_join_all;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

const TOKENS: u64 = 24;

fn request(number: usize) -> Value {
    let words = "one two three four five six seven eight nine ten ".repeat(1 + number * 4);
    json!({
        "model": SMOLLM2, "stream": number.is_multiple_of(2), "max_output_tokens": TOKENS, "temperature": 0,
        "instructions": if number.is_multiple_of(3) { "You count." } else { "You answer briefly." },
        "input": format!("{words}\nWhat comes after {number}?"),
    })
}

/// The whole text of one answer.
async fn answer(base_url: &str, request: &Value) -> Result<String> {
    let response = if request["stream"] == true {
        let events = client::events(base_url, request).await?;
        client::lawful(&events)?.clone()
    } else {
        let (status, text) = client::post(base_url, request).await?;
        anyhow::ensure!(status == 200, "{status}: {text}");
        serde_json::from_str(&text)?
    };
    let text = response["output"][0]["content"][0]["text"].as_str();
    Ok(text.with_context(|| response.to_string())?.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_at_once_say_what_each_says_alone() -> Result<()> {
    let bridge = Options::smollm2()
        .engine("contextLength", json!(4096))
        .engine("maxBatch", json!(16))
        .start()
        .await?;
    let base_url = bridge.base_url();
    let requests: Vec<Value> = (0..16).map(request).collect();

    let together = try_join_all(requests.iter().map(|it| answer(&base_url, it))).await?;
    let mut alone = Vec::new();
    for request in &requests {
        alone.push(answer(&base_url, request).await?);
    }

    assert_eq!(together, alone);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_more_than_the_queue_holds_is_429_with_retry_after() -> Result<()> {
    let bridge = Options::smollm2()
        .engine("contextLength", json!(2048))
        .engine("maxBatch", json!(1))
        .engine("maxQueue", json!(1))
        .start()
        .await?;
    // One runs and one waits, both longer than it takes to ask a third time.
    let body = json!({
        "model": SMOLLM2, "stream": true, "max_output_tokens": 1500, "temperature": 0,
        "input": "Count to ten thousand, every single number.",
    });
    let http = client::client()?;
    let send = || {
        http.post(format!("{}/responses", bridge.base_url()))
            .header("content-type", "application/json")
            .body(body.to_string())
            .send()
    };

    let taken = [send().await?, send().await?];
    let refused = send().await?;

    assert_eq!(
        [taken[0].status(), taken[1].status(), refused.status()].map(|it| it.as_u16()),
        [200, 200, 429]
    );
    let seconds: u64 = refused.headers()["retry-after"].to_str()?.parse()?;
    assert!(seconds >= 1, "{seconds}");
    let error: Value = serde_json::from_str(&refused.text().await?)?;
    assert_eq!(error["error"]["code"], "rate_limit_exceeded", "{error}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_longer_than_the_window_is_refused_before_any_event() -> Result<()> {
    let bridge = Options::smollm2()
        .engine("contextLength", json!(1024))
        .start()
        .await?;
    let body = json!({"model": SMOLLM2, "stream": true, "input": "word ".repeat(3000)});

    let (status, text) = client::post(&bridge.base_url(), &body).await?;

    assert_eq!(status, 400, "{text}");
    let error: Value = serde_json::from_str(&text)?;
    assert_eq!(error["error"]["code"], "context_length_exceeded");
    let message = error["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("1024"), "{message}");
    Ok(())
}
