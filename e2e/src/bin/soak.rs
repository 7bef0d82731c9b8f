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

    /// The same seed makes the same choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let report = soak::run(Settings {
        streams: args.streams,
        length: Duration::from_secs(args.seconds),
        seed: args.seed,
    })
    .await?;
    let (idle, most, after) = (report.idle, report.most, report.after);
    let ends = report.ends;
    println!(
        "{} streams at a time for {} s: {} read to the end, {} left by the client, {} broken",
        args.streams, args.seconds, ends.whole, ends.left, ends.broken
    );
    println!("| | idle before | most | idle after |\n| --- | ---: | ---: | ---: |");
    println!(
        "| resident MB | {:.1} | {:.1} | {:.1} |",
        idle.megabytes, most.megabytes, after.megabytes
    );
    println!(
        "| open files | {} | {} | {} |",
        idle.open_files, most.open_files, after.open_files
    );
    println!(
        "upstream connections {}, client connections {}, held bytes {}",
        report.upstream_open, report.connections, report.held_bytes
    );
    let mut leaks = report.leaks();
    if report.growth() > MOST_GROWTH {
        leaks.push(format!(
            "memory is {:.2} times what it was",
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
