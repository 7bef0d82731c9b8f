//! The bundled engine against a natively built llama-server: same model, same API, alternating, one table.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use codex_bridge_e2e::race::{
    contestant::{Contestant, Extra, Programs},
    limit,
    report::Results,
    rows::ROWS,
    session::Session,
};

/// Measures the bundled engine beside llama-server and prints Markdown tables.
#[derive(Debug, Parser)]
#[command(name = "race")]
struct Args {
    /// Rounds; the tables show medians
    #[arg(long, default_value_t = 5)]
    rounds: usize,

    /// Only these rows, by key; rows measured in the same session come with them
    #[arg(long, value_delimiter = ',', value_parser = keys())]
    rows: Vec<String>,

    /// Only these, in every session
    #[arg(long, value_delimiter = ',')]
    contestants: Vec<Contestant>,

    /// More configuration of the bundled engine, as in `--engine kvCache=bf16`
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ' ')]
    engine: Vec<String>,

    /// More arguments of llama-server, as in `--llama "--flash-attn off"`
    #[arg(
        long,
        value_name = "ARGUMENTS",
        value_delimiter = ' ',
        allow_hyphen_values = true
    )]
    llama: Vec<String>,

    /// Where to keep every single number, as JSON. The numbers that a file holds already count as earlier rounds
    #[arg(long)]
    json: Option<PathBuf>,
}

fn keys() -> clap::builder::PossibleValuesParser {
    ROWS.iter().map(|row| row.key).collect::<Vec<_>>().into()
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let extra = Extra {
        engine: args.engine.clone(),
        llama: args.llama.clone(),
    };
    let mut results = match &args.json {
        Some(path) if path.exists() => {
            let text = fs::read_to_string(path)?;
            Results::read(&text).with_context(|| format!("read {}", path.display()))?
        }
        _ => Results::new(extra.clone()),
    };
    ensure!(
        *results.extra() == extra,
        "the earlier rounds had {:?}",
        results.extra()
    );
    let programs = Programs::install(&extra).await?;
    for round in 0..args.rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        for session in sessions(&args) {
            run(&args, &programs, session, &mut results).await?;
            if let Some(path) = &args.json {
                let text = format!("{:#}\n", results.json());
                fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
            }
        }
    }
    println!("{}", results.markdown());
    Ok(())
}

fn sessions(args: &Args) -> Vec<Session> {
    let wanted = |session: &Session| {
        let mut rows = ROWS.iter().filter(|row| row.session == *session);
        args.rows.is_empty() || rows.any(|row| args.rows.iter().any(|key| key == row.key))
    };
    Session::ALL.into_iter().filter(wanted).collect()
}

/// One after the other, each with the machine for itself, in an order that turns with the round.
async fn run(
    args: &Args,
    programs: &Programs,
    session: Session,
    results: &mut Results,
) -> Result<()> {
    let mut contestants = match args.contestants.is_empty() {
        true => session.contestants(),
        false => args.contestants.clone(),
    };
    let round = results.taken(session);
    let count = contestants.len();
    contestants.rotate_left(round % count);
    if matches!(session, Session::Short | Session::Long) {
        results.add_bandwidth(limit::bandwidth());
    }
    for contestant in contestants {
        let numbers = session.run(programs, contestant, round).await?;
        eprintln!("  {session:?} of {contestant}: {numbers:.3?}");
        results.add(contestant, numbers);
    }
    Ok(())
}
