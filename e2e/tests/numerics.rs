//! The bundled engine's arithmetic against llama.cpp's, teacher-forced over tokens of this repository's README, with the small real model. In the same
//! run llama.cpp is compared with itself: without flash attention, and with cached keys of 8 bits.
//!
//! llama.cpp is asked for each position alone, which takes minutes for many: 300 by default, `CODEX_BRIDGE_NUMERICS_TOKENS=2000` for the whole comparison.

use anyhow::{Context, Result, ensure};
use codex_bridge_backend::{
    cpu::{Cpu, CpuOptions, Isa},
    device::{Device, PAGE_TOKENS, PageId, Span},
    model::{self, plan::KvFormat},
};
use codex_bridge_e2e::{
    client, install,
    llama::{Llama, Options},
    workspace,
};
use serde_json::{Value, json};

const FEW: usize = 300;
/// Alternatives that llama.cpp reports for each position.
const REPORTED: usize = 200;

/// The most likely next tokens at each position, likeliest first, with the natural logs of their probabilities.
type Rows = Vec<Vec<(u32, f64)>>;

#[tokio::test(flavor = "multi_thread")]
async fn logits_are_as_close_to_llama_cpp_as_llama_cpp_is_to_itself() -> Result<()> {
    let options = Options {
        context: 4096,
        ..Options::smollm2()?
    };
    let wanted = match std::env::var("CODEX_BRIDGE_NUMERICS_TOKENS") {
        Ok(count) => count.parse()?,
        Err(_) => FEW,
    };
    let text = std::fs::read_to_string(workspace::root().join("README.md"))?;
    let llama = Llama::start(&options).await?;
    let mut tokens = tokenize(&llama, &text).await?;
    ensure!(
        tokens.len() > wanted,
        "README.md has {} tokens",
        tokens.len()
    );
    tokens.truncate(wanted + 1);
    let base = ask(&llama, &tokens).await?;
    drop(llama);
    let plain = Options {
        flash_attention: Some(false),
        ..options.clone()
    };
    let plain = ask(&Llama::start(&plain).await?, &tokens).await?;
    let small = Options {
        cached_keys: 8,
        ..options.clone()
    };
    let small = ask(&Llama::start(&small).await?, &tokens).await?;

    let itself = [
        (
            "llama.cpp without flash attention",
            compare(&base, &plain, &tokens),
        ),
        ("llama.cpp with q8_0 keys", compare(&base, &small, &tokens)),
    ];
    for (name, closeness) in &itself {
        println!("{name}: {closeness:?}");
    }
    let worst = itself
        .iter()
        .map(|(_, closeness)| closeness.agreement)
        .fold(1.0, f64::min);
    // Every KV format on the instructions this machine would choose, the usual one on the others too.
    let isas = Isa::available();
    let formats = [KvFormat::F16, KvFormat::Bf16, KvFormat::Q8_0];
    let best = formats.map(|kv| (isas[0], kv));
    let others = isas[1..].iter().map(|isa| (*isa, KvFormat::Q8_0));
    for (isa, kv) in best.into_iter().chain(others) {
        let ours = compare(&base, &run(isa, kv, &tokens)?, &tokens);
        println!("bundled on {isa}, {kv} keys and values: {ours:?}");
        ensure!(
            ours.agreement >= (worst - 0.01).min(0.965),
            "{isa}, {kv}: {ours:?}, llama.cpp with itself {worst}"
        );
        ensure!(ours.loss <= 0.008, "{isa}, {kv}: {ours:?}");
        ensure!(
            (ours.perplexity - 1.0).abs() <= 0.01,
            "{isa}, {kv}: {ours:?}"
        );
    }
    Ok(())
}

#[derive(Debug)]
struct Closeness {
    /// Share of positions with the same likeliest token.
    agreement: f64,
    /// Mean of how much less likely the other's likeliest token is, in nats of the base.
    loss: f64,
    /// Perplexity of the text over that of the base, where both report the text's token.
    perplexity: f64,
}

fn compare(base: &Rows, other: &Rows, tokens: &[u32]) -> Closeness {
    let positions = base.len() as f64;
    let (mut agreed, mut loss, mut difference, mut reported) = (0, 0.0, 0.0, 0);
    let logprob = |row: &[(u32, f64)], token: u32| {
        row.iter()
            .find(|(id, _)| *id == token)
            .map(|(_, logprob)| *logprob)
    };
    for (position, (base, other)) in base.iter().zip(other).enumerate() {
        agreed += usize::from(base[0].0 == other[0].0);
        let least = base[base.len() - 1].1;
        loss += base[0].1 - logprob(base, other[0].0).unwrap_or(least);
        let next = tokens[position + 1];
        if let (Some(base), Some(other)) = (logprob(base, next), logprob(other, next)) {
            difference += base - other;
            reported += 1;
        }
    }
    Closeness {
        agreement: agreed as f64 / positions,
        loss: loss / positions,
        perplexity: (difference / f64::from(reported)).exp(),
    }
}

async fn tokenize(llama: &Llama, text: &str) -> Result<Vec<u32>> {
    let answer = post(
        llama,
        "tokenize",
        &json!({"content": text, "parse_special": false}),
    )
    .await?;
    let tokens = answer["tokens"].as_array().context("no tokens")?;
    tokens
        .iter()
        .map(|token| Ok(token.as_u64().context("a token is a number")? as u32))
        .collect()
}

/// One request a position; all but the last token of each prompt are cached.
async fn ask(llama: &Llama, tokens: &[u32]) -> Result<Rows> {
    let mut rows = Vec::with_capacity(tokens.len());
    for end in 1..tokens.len() {
        let body = json!({"prompt": tokens[..end], "n_predict": 1, "temperature": 0, "n_probs": REPORTED, "cache_prompt": true});
        let answer = post(llama, "completion", &body).await?;
        let top = answer["completion_probabilities"][0]["top_logprobs"]
            .as_array()
            .with_context(|| format!("no probabilities: {answer}"))?;
        let row: Result<Vec<(u32, f64)>> = top
            .iter()
            .map(|entry| {
                let id = entry["id"].as_u64().context("no id")?;
                let logprob: f64 = entry["logprob"].to_string().parse()?;
                Ok((id as u32, logprob))
            })
            .collect();
        rows.push(row?);
    }
    Ok(rows)
}

async fn post(llama: &Llama, path: &str, body: &Value) -> Result<Value> {
    let request = client::client()?
        .post(format!("{}/{path}", llama.origin()))
        .header("content-type", "application/json");
    let text = request.body(body.to_string()).send().await?.text().await?;
    Ok(serde_json::from_str(&text)?)
}

/// The same rows from the bundled engine's CPU device.
fn run(isa: Isa, kv: KvFormat, tokens: &[u32]) -> Result<Rows> {
    let model = model::open(&install::llama()?.smollm2)?;
    let chunk = 100;
    let options = CpuOptions {
        threads: 2,
        pages: tokens.len().div_ceil(PAGE_TOKENS),
        kv,
        max_batch_tokens: chunk,
        max_rows: chunk,
        force: Some(isa),
    };
    let mut device = Cpu::new(&model, &options)?;
    let pages: Vec<PageId> = (0..options.pages as u32).map(PageId).collect();
    let mut rows = Vec::new();
    let mut logits = vec![0.0; device.caps().vocab];
    for (index, part) in tokens[..tokens.len() - 1].chunks(chunk).enumerate() {
        device.forward(&[Span {
            tokens: part,
            past: index * chunk,
            pages: &pages,
            rows: part.len(),
        }])?;
        for row in 0..part.len() {
            device.logits(row, &mut logits)?;
            let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f64 = logits
                .iter()
                .map(|logit| f64::from(logit - largest).exp())
                .sum();
            let mut all: Vec<(u32, f64)> = (0..)
                .zip(&logits)
                .map(|(id, logit)| (id, f64::from(logit - largest) - sum.ln()))
                .collect();
            all.select_nth_unstable_by(REPORTED, |a, b| b.1.total_cmp(&a.1));
            all.truncate(REPORTED);
            all.sort_by(|a, b| b.1.total_cmp(&a.1));
            rows.push(all);
        }
    }
    Ok(rows)
}
