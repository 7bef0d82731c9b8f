//! How the engine schedules on the CPU device: `cargo run --release -p codex-bridge-backend --example engine -- FILE [THREADS]`.
//!
//! Prints what a client would see: speed of one stream, the longest wait between two tokens of three streams beside a prompt of 6,000 tokens, what guesses
//! bring for repeated text, and the time to the first token of a prompt whose prefix was computed, cached, or read from disk after a restart.

use std::{
    error::Error,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use codex_bridge_backend::{
    cpu::{Cpu, CpuOptions},
    device::PAGE_TOKENS,
    engine::{
        Engine, EngineOptions, Generation, WarmStart,
        request::{GenerateRequest, Output},
    },
    model::{self, Model},
    sample::SamplingParams,
};

const CONTEXT: usize = 16_384;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(arguments.next().ok_or("a model file is needed")?);
    let threads = arguments.next().map_or(Ok(0), |n| n.parse())?;
    let model = model::open(&path)?;
    let store = std::env::temp_dir().join(format!("engine-example-{}", std::process::id()));
    let begin = |drafts| start(&model, threads, drafts, &store);

    let engine = begin(false)?;
    println!("{}", engine.status().device);
    let (first, rest) = timed(engine.submit(request(&model, 1, 512, 128))?);
    println!(
        "512 + 128 tokens: first after {first:.2?}, then {:.1} tok/s",
        127.0 / rest.as_secs_f64()
    );

    let mut streams = Vec::new();
    for seed in 0..3 {
        let mut stream = engine.submit(request(&model, 10 + seed, 100, 4000))?;
        wait_for_tokens(&mut stream);
        streams.push(std::thread::spawn(move || longest_wait(stream)));
    }
    let (first, _) = timed(engine.submit(request(&model, 20, 6000, 1))?);
    println!("6000 tokens beside three streams: first after {first:.2?}");
    engine.shutdown();
    for stream in streams {
        let (tokens, wait) = stream.join().map_err(|_| "a reader panicked")?;
        println!("  a stream had {tokens} tokens, the longest wait between two was {wait:.0?}");
    }
    drop(engine);

    for drafts in [false, true] {
        let engine = begin(drafts)?;
        let mut repeats = request(&model, 1, 60, 400);
        repeats.prompt = repeats.prompt.repeat(5);
        let (_, rest) = timed(engine.submit(repeats)?);
        let status = engine.status();
        println!(
            "repeated text, guesses {drafts}: {:.1} tok/s, {} of {} guesses right",
            399.0 / rest.as_secs_f64(),
            status.accepted_tokens,
            status.drafted_tokens
        );
    }

    let long = |own| {
        let mut long = request(&model, 30, 6000, 2);
        long.stable_prefix = 6000;
        long.prompt.extend(request(&model, own, 50, 1).prompt);
        long
    };
    let engine = begin(true)?;
    let (cold, _) = timed(engine.submit(long(40))?);
    let (cached, _) = timed(engine.submit(long(41))?);
    while engine.status().prefixes_stored == 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    // The next can have the directory once this one has ended.
    engine.shutdown();
    tokio::runtime::Builder::new_current_thread()
        .build()?
        .block_on(engine.stopped());
    let again = begin(true)?;
    let (warm, _) = timed(again.submit(long(42))?);
    println!(
        "6000 + 50 tokens: first after {cold:.2?} cold, {cached:.2?} cached, {warm:.2?} after a restart ({} prefix read)",
        again.status().prefixes_loaded
    );
    again.shutdown();
    std::fs::remove_dir_all(&store)?;
    Ok(())
}

fn start(
    model: &Model,
    threads: usize,
    drafts: bool,
    store: &Path,
) -> Result<Engine, Box<dyn Error>> {
    let options = CpuOptions {
        threads,
        pages: CONTEXT / PAGE_TOKENS,
        kv: Cpu::usual_kv(&model.config),
        ..CpuOptions::default()
    };
    let cpu = Cpu::new(model, &options)?;
    let options = EngineOptions {
        context: CONTEXT,
        drafts,
        output_buffer: 4096,
        warm_start: Some(WarmStart {
            dir: store.to_path_buf(),
            max_bytes: 1 << 32,
            model: model.fingerprint.clone(),
            min_tokens: 256,
        }),
        ..EngineOptions::default()
    };
    Ok(Engine::start(Box::new(cpu), options))
}

fn request(model: &Model, seed: u32, prompt: u32, max_tokens: usize) -> GenerateRequest {
    let vocab = model.config.vocab as u32;
    let token = |i: u32| (seed * 7919 + i).wrapping_mul(2_654_435_761) % vocab;
    GenerateRequest {
        prompt: (0..prompt).map(token).collect(),
        stable_prefix: 0,
        sampling: SamplingParams {
            temperature: 0.0,
            ..SamplingParams::default()
        },
        max_tokens,
        end_tokens: Arc::from([]),
        constraint: None,
        top_logprobs: 0,
    }
}

/// Time to the first token, and from there to the end.
fn timed(mut generation: Generation) -> (Duration, Duration) {
    let start = Instant::now();
    let mut first = None;
    while let Some(output) = generation.blocking_next() {
        if matches!(output, Output::Tokens(_)) {
            first.get_or_insert_with(|| start.elapsed());
        }
    }
    let first = first.unwrap_or_default();
    (first, start.elapsed() - first)
}

fn wait_for_tokens(generation: &mut Generation) {
    while let Some(output) = generation.blocking_next() {
        if matches!(output, Output::Tokens(_)) {
            return;
        }
    }
}

/// Tokens to the end, and the longest time between two.
fn longest_wait(mut generation: Generation) -> (usize, Duration) {
    let mut last = Instant::now();
    let mut longest = Duration::ZERO;
    let mut count = 0;
    while let Some(output) = generation.blocking_next() {
        if let Output::Tokens(tokens) = output {
            count += tokens.len();
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
    }
    (count, longest)
}
