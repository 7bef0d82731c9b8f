//! The bridge against the npm bridge, a Rust gateway and no bridge at all: same traffic, alternating, one table.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use clap::Parser;
use codex_bridge_e2e::bench::{
    measure::{self, Numbers, Setting, Tools},
    plan::{Kind, Pace, Plan},
    report::Results,
    target::{Name, Programs, Target},
    upstream::Upstream,
};

/// Measures codex-bridge beside other bridges and prints a Markdown table.
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Args {
    /// Rounds; the table shows medians
    #[arg(long, default_value_t = 3)]
    rounds: usize,

    /// Starts of each program, for the start-up time
    #[arg(long, default_value_t = 10)]
    starts: usize,

    /// Where to write every single number, as JSON
    #[arg(long)]
    json: Option<PathBuf>,

    /// Only measurements whose name contains this word
    #[arg(long)]
    only: Option<String>,

    /// Only codex-bridge and no bridge
    #[arg(long)]
    ours: bool,

    /// Declare functions only, no namespace, so that the gateway may pass bytes through unread
    #[arg(long)]
    flat_tools: bool,
}

#[derive(Debug, Clone, Copy)]
enum Measurement {
    Requests,
    LargeRequests,
    RequestRate,
    FirstEvent,
    Crowd,
    Throughput(Kind, Pace, [&'static str; 2]),
    Llama,
    Delays(Kind),
    ManyStreams(Kind),
}

impl Measurement {
    const ALL: [Self; 14] = [
        Self::Requests,
        Self::LargeRequests,
        Self::RequestRate,
        Self::FirstEvent,
        Self::Crowd,
        Self::Throughput(
            Kind::Reasoning,
            Pace::Batched,
            ["reasoning_rate", "reasoning_cpu"],
        ),
        Self::Throughput(Kind::Text, Pace::Batched, ["text_rate", "text_cpu"]),
        Self::Throughput(
            Kind::Arguments,
            Pace::Batched,
            ["arguments_rate", "arguments_cpu"],
        ),
        Self::Throughput(Kind::Text, Pace::Single, ["single_rate", "single_cpu"]),
        Self::Llama,
        Self::Delays(Kind::Reasoning),
        Self::Delays(Kind::Text),
        Self::ManyStreams(Kind::Reasoning),
        Self::ManyStreams(Kind::Text),
    ];

    async fn take(self, setting: Setting<'_>) -> Result<Numbers> {
        match self {
            Self::Requests => measure::requests(setting).await,
            Self::LargeRequests => measure::large_requests(setting).await,
            Self::RequestRate => measure::request_rate(setting).await,
            Self::FirstEvent => measure::first_event(setting).await,
            Self::Crowd => measure::crowd(setting).await,
            Self::Throughput(kind, pace, keys) => {
                let plan = Plan::native(kind, 20_000, pace);
                measure::throughput(setting, plan, keys).await
            }
            Self::Llama => {
                let plan = Plan::native(Kind::Text, 20_000, Pace::Batched).llama();
                measure::throughput(setting, plan, ["llama_rate", "llama_cpu"]).await
            }
            Self::Delays(kind) => measure::delays(setting, kind).await,
            Self::ManyStreams(kind) => measure::many_streams(setting, kind).await,
        }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let programs = if args.ours {
        Programs::ours()?
    } else {
        Programs::all()?
    };
    let mut results = Results::default();
    for round in 0..args.rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        run_round(&args, &programs, round, &mut results).await?;
    }
    if args.only.is_none() {
        start_ups(&args, &programs, &mut results).await?;
        late_dones(&args, &programs, &mut results).await?;
    }
    println!("{}", results.markdown(args.rounds));
    for miss in results.misses() {
        println!("* missed: {miss}");
    }
    if let Some(path) = &args.json {
        let text = format!("{:#}\n", results.json());
        fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

fn names(args: &Args) -> Vec<Name> {
    let mut names = Name::ALL.to_vec();
    names.retain(|name| !args.ours || matches!(name, Name::Direct | Name::Ours));
    names
}

/// Every program starts anew; every measurement visits all of them before the next one begins, in an order that turns
/// with the round.
async fn run_round(
    args: &Args,
    programs: &Programs,
    round: usize,
    results: &mut Results,
) -> Result<()> {
    let native = Upstream::start(false).await?;
    let llama = Upstream::start(true).await?;
    let tools = if args.flat_tools {
        Tools::Flat
    } else {
        Tools::Namespaced
    };
    let mut names = names(args);
    let count = names.len();
    names.rotate_left(round % count);
    let mut pairs = Vec::new();
    for name in names {
        let target = Target::start(programs, name, native.address()).await?;
        tokio::time::sleep(Duration::from_millis(300)).await;
        results.add(name, vec![("idle_memory", target.resident_megabytes()?)]);
        let for_llama = Target::start(programs, name, llama.address()).await?;
        pairs.push((target, for_llama));
    }
    for measurement in Measurement::ALL {
        let word = format!("{measurement:?}").to_lowercase();
        if args
            .only
            .as_ref()
            .is_some_and(|only| !word.contains(&only.to_lowercase()))
        {
            continue;
        }
        for (target, for_llama) in &pairs {
            let (target, upstream) = match measurement {
                Measurement::Llama => (for_llama, &llama),
                _ => (target, &native),
            };
            let setting = Setting {
                target,
                upstream,
                tools,
            };
            let numbers = measurement.take(setting).await;
            let what = || format!("{measurement:?} of {}", target.name.title());
            let numbers = numbers.with_context(what)?;
            eprintln!("  {}: {numbers:.3?}", what());
            results.add(target.name, numbers);
        }
    }
    Ok(())
}

async fn start_ups(args: &Args, programs: &Programs, results: &mut Results) -> Result<()> {
    let upstream = Upstream::start(false).await?;
    for _ in 0..args.starts {
        for name in names(args) {
            let target = Target::start(programs, name, upstream.address()).await?;
            let start_up = target.start_up.as_secs_f64() * 1e3;
            results.add(name, vec![("start_up", start_up)]);
        }
    }
    Ok(())
}

/// With programs that have no connection left over from other measurements.
async fn late_dones(args: &Args, programs: &Programs, results: &mut Results) -> Result<()> {
    for name in names(args) {
        let upstream = Upstream::start(false).await?;
        let target = Target::start(programs, name, upstream.address()).await?;
        let setting = Setting {
            target: &target,
            upstream: &upstream,
            tools: Tools::Namespaced,
        };
        results.add(name, measure::late_done(setting).await?);
    }
    Ok(())
}
