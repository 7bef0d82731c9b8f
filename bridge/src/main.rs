//! The program: reads the command line and the configuration, does what was asked, and says how it went.

use std::process::ExitCode;

use clap::Parser as _;
use codex_bridge::{
    cli::Args,
    config::{Config, Environment, Error, Loaded, UpstreamConfig},
    health_check, init, server, telemetry,
};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The statuses of `sysexits.h` that service managers know.
const CANNOT_START: u8 = 69;
const WRONG_CONFIGURATION: u8 = 78;

/// What ends the program early: a line for the user and a status for the caller.
struct Failure(String, u8);

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(status) => status,
        Err(Failure(line, status)) => {
            eprintln!("{line}");
            ExitCode::from(status)
        }
    }
}

fn run(args: &Args) -> Result<ExitCode, Failure> {
    let loaded = args
        .sources(Environment::of_process())
        .load()
        .map_err(|error| Failure(error.to_string(), WRONG_CONFIGURATION))?;
    if args.check {
        println!("{:#}", loaded.effective);
        return Ok(ExitCode::SUCCESS);
    }
    // One thread: an event crosses from the upstream's connection to the client's without waking another, which costs
    // more than all the work on it. Big bodies are parsed beside it.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure(format!("no runtime: {error}"), CANNOT_START))?;
    match &args.init {
        _ if args.health => runtime.block_on(health(&loaded.config)),
        Some(directory) => runtime.block_on(initialise(args, directory, &loaded)),
        None => runtime.block_on(serve(loaded.config)),
    }
}

async fn health(config: &Config) -> Result<ExitCode, Failure> {
    let report = health_check::ask(&config.listen)
        .await
        .map_err(|error| Failure(error.to_string(), 1))?;
    println!("{}", report.body);
    Ok(if report.healthy {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn initialise(
    args: &Args,
    directory: &std::path::Path,
    loaded: &Loaded,
) -> Result<ExitCode, Failure> {
    let wishes = init::Wishes {
        directory: directory.to_owned(),
        force: args.force,
        model: args.model.clone(),
        context: args.context,
    };
    for line in init::run(&wishes, loaded)
        .await
        .map_err(|error| Failure(error.to_string(), 1))?
    {
        println!("{line}");
    }
    Ok(ExitCode::SUCCESS)
}

async fn serve(config: Config) -> Result<ExitCode, Failure> {
    if matches!(config.upstream, UpstreamConfig::Bundled) {
        return Err(Failure(
            Error::NoBundledEngine.to_string(),
            WRONG_CONFIGURATION,
        ));
    }
    telemetry::init(&config.log)
        .map_err(|error| Failure(error.to_string(), WRONG_CONFIGURATION))?;
    server::run(config)
        .await
        .map_err(|error| Failure(error.to_string(), CANNOT_START))?;
    Ok(ExitCode::SUCCESS)
}
