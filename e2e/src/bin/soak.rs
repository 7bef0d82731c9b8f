//! Five hundred streams that end in every way for a minute, and what the bridge still holds afterwards.

use std::{process::ExitCode, time::Duration};

use anyhow::Result;
use clap::Parser;
use codex_bridge_e2e::bench::soak::{self, Settings};

/// How much memory may be left over, beside the memory of an idle bridge.
const MOST_GROWTH: f64 = 1.2;

/// Loads codex-bridge with streams that are cut on either side, then looks for what was left behind.
#[derive(Debug, Parser)]
#[command(name = "soak")]
struct Args {
    /// Streams at the same time
    #[arg(long, default_value_t = 500)]
    streams: u64,

    /// Seconds of load
    #[arg(long, default_value_t = 60)]
    seconds: u64,

    /// Seconds of the same load before that, for the figure of a bridge that has worked
    #[arg(long, default_value_t = 5)]
    warm_up: u64,

    /// The same seed makes the same choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let report = soak::run(Settings {
        streams: args.streams,
        warm_up: Duration::from_secs(args.warm_up),
        length: Duration::from_secs(args.seconds),
        seed: args.seed,
    })
    .await?;
    let ends = report.ends;
    println!(
        "{} streams at a time for {} s: {} read to the end, {} left by the client, {} broken",
        args.streams, args.seconds, ends.whole, ends.left, ends.broken
    );
    let held = [report.idle, report.warm, report.most, report.after];
    println!(
        "| | just started | idle after {} s | most | idle after all |",
        args.warm_up
    );
    println!("| --- | ---: | ---: | ---: | ---: |");
    row(
        "resident MB",
        &held.map(|held| format!("{:.1}", held.megabytes)),
    );
    row(
        "of it anonymous MB",
        &held.map(|held| format!("{:.1}", held.anonymous)),
    );
    row("open files", &held.map(|held| held.open_files.to_string()));
    println!(
        "upstream connections {}, client connections {}, held bytes {}",
        report.upstream_open, report.connections, report.held_bytes
    );
    let mut leaks = report.leaks();
    if report.growth() > MOST_GROWTH {
        leaks.push(format!(
            "memory is {:.2} times that of a bridge just started",
            report.growth()
        ));
    }
    for leak in &leaks {
        println!("LEFT BEHIND: {leak}");
    }
    Ok(if leaks.is_empty() {
        println!("nothing is left behind");
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn row(name: &str, cells: &[String; 4]) {
    println!("| {name} | {} |", cells.join(" | "));
}
