//! Speed of the CPU device on a model file, without the engine: `cargo run --release -p codex-bridge-backend --example speed -- FILE [THREADS] [KV] [ONLY]`.
//!
//! Prints tokens a second for prompts of 512 and 4096 tokens and for decoding at short and long context, medians of five.

use std::{path::PathBuf, time::Instant};

use codex_bridge_backend::{
    cpu::{Cpu, CpuOptions},
    device::{Device, PAGE_TOKENS, PageId, Span},
    model::{self, plan::KvFormat},
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(arguments.next().ok_or("a model file is needed")?);
    let threads = arguments.next().map_or(Ok(0), |n| n.parse())?;
    let kv = arguments.next();
    let only = arguments.next();
    let started = Instant::now();
    let model = model::open(&path)?;
    let opened = started.elapsed();
    let kv = match kv {
        Some(name) => KvFormat::from_name(&name).ok_or("kv is f32, f16, bf16 or q8_0")?,
        None => Cpu::usual_kv(&model.config),
    };
    let options = CpuOptions {
        threads,
        kv,
        pages: 8192 / PAGE_TOKENS,
        ..CpuOptions::default()
    };
    let mut device = Cpu::new(&model, &options)?;
    println!(
        "{}, kv {kv}: opened in {opened:.1?}, ready in {:.1?}",
        device.caps().name,
        started.elapsed()
    );
    let pages: Vec<PageId> = (0..8192 / PAGE_TOKENS as u32).map(PageId).collect();
    let tokens: Vec<u32> = (0..8192_u32)
        .map(|i| i.wrapping_mul(2_654_435_761) % model.config.vocab as u32)
        .collect();
    let mut run =
        |past: usize, len: usize, chunk: usize| -> Result<f64, Box<dyn std::error::Error>> {
            let started = Instant::now();
            for start in (past..past + len).step_by(chunk) {
                let end = (start + chunk).min(past + len);
                device.forward(&[Span {
                    tokens: &tokens[start..end],
                    past: start,
                    pages: &pages,
                    rows: usize::from(chunk == 1 || end == past + len),
                }])?;
            }
            Ok(len as f64 / started.elapsed().as_secs_f64())
        };
    let mut report = |name: &str,
                      past: usize,
                      len: usize,
                      chunk: usize,
                      times: usize|
     -> Result<(), Box<dyn std::error::Error>> {
        if only.as_ref().is_some_and(|only| !name.starts_with(only)) {
            return Ok(());
        }
        let mut speeds = (0..times)
            .map(|_| run(past, len, chunk))
            .collect::<Result<Vec<_>, _>>()?;
        speeds.sort_by(f64::total_cmp);
        println!(
            "{name}: {:.0} tok/s [{:.0}..{:.0}]",
            speeds[times / 2],
            speeds[0],
            speeds[times - 1]
        );
        Ok(())
    };
    report("prefill 512", 0, 512, 512, 5)?;
    report("decode 128", 512, 128, 1, 5)?;
    report("verify 8 x 16", 512, 128, 8, 5)?;
    report("prefill 4096", 0, 4096, 512, 1)?;
    report("prefill to 7680", 4096, 7680 - 4096, 512, 1)?;
    report("decode 64 at 7680", 7680, 64, 1, 3)?;
    Ok(())
}
