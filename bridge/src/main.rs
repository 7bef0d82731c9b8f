//! The program: reads the command line and the configuration, does what was asked, and says how it went.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use clap::Parser as _;
use codex_bridge::{
    cli::{Args, Command},
    config::{Config, Environment, Loaded, Places, UpstreamConfig},
    health_check, init, inspect, pull,
    server::{self, StartError},
    telemetry,
    upstream::bundled::{Fault, FaultKind},
};
use tracing::Level;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The statuses of `sysexits.h` that service managers know.
const NOT_A_MODEL: u8 = 65;
const NO_SUCH_MODEL: u8 = 66;
const CANNOT_START: u8 = 69;
const ENGINE_FAILED: u8 = 70;
const CANNOT_PRINT: u8 = 74;
const WRONG_CONFIGURATION: u8 = 78;

/// What ends the program early: a line for the user and a status for the caller.
struct Failure(String, u8);

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(status) => status,
        Err(Failure(line, status)) => {
            telemetry::tell(Level::ERROR, &line);
            ExitCode::from(status)
        }
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        let status = match fault.kind {
            FaultKind::Missing => NO_SUCH_MODEL,
            FaultKind::Unusable => NOT_A_MODEL,
            FaultKind::Setting(_) => WRONG_CONFIGURATION,
            FaultKind::Unavailable => CANNOT_START,
            FaultKind::Failed => ENGINE_FAILED,
        };
        Self(fault.message, status)
    }
}

/// The fault, after the file, variable or flag that brought it about.
fn placed(fault: Fault, loaded: &Loaded) -> Failure {
    match fault.kind {
        FaultKind::Setting(key) => Failure(
            format!("{}: {}", loaded.place(key), fault.message),
            WRONG_CONFIGURATION,
        ),
        _ => fault.into(),
    }
}

/// One line, or several, on stdout. Who reads it may have read enough, as `head -1` has: that is no failure.
fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure(format!("stdout: {error}"), CANNOT_PRINT))
        }
        _ => Ok(()),
    }
}

fn run(args: &Args) -> Result<ExitCode, Failure> {
    match &args.command {
        Some(Command::Pull { model }) => return runtime()?.block_on(fetch(model)),
        Some(Command::Inspect { model, context }) => {
            let places = Places::new(&Environment::of_process());
            let text = inspect::run(model, *context, &places)?;
            print(text.trim_end())?;
            return Ok(ExitCode::SUCCESS);
        }
        None => {}
    }
    let loaded = args
        .sources(Environment::of_process())
        .load()
        .map_err(|error| Failure(error.to_string(), WRONG_CONFIGURATION))?;
    if args.check {
        print(&format!("{:#}", loaded.effective))?;
        return Ok(ExitCode::SUCCESS);
    }
    let runtime = runtime()?;
    match &args.init {
        _ if args.health => runtime.block_on(health(&loaded.config)),
        Some(directory) => runtime.block_on(initialise(args, directory, &loaded)),
        None => runtime.block_on(serve(&loaded)),
    }
}

/// One thread: an event crosses from the upstream's connection to the client's without waking another, which costs more
/// than all the work on it. A crowd of connections gets further threads of the same kind (`server/lane.rs`), big bodies
/// are parsed beside it, and the engine has threads of its own.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure(format!("no runtime: {error}"), CANNOT_START))
}

async fn fetch(model: &str) -> Result<ExitCode, Failure> {
    let places = Places::new(&Environment::of_process());
    let bar = pull::Bar::stderr();
    let path = pull::pull(model, &places, &move |step| bar.show(step))
        .await
        .map_err(|error| Fault::from(&error))?;
    print(&path.display().to_string())?;
    Ok(ExitCode::SUCCESS)
}

async fn health(config: &Config) -> Result<ExitCode, Failure> {
    let report = health_check::ask(&config.listen)
        .await
        .map_err(|error| Failure(error.to_string(), 1))?;
    print(&report.body)?;
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
        model: match loaded.config.upstream {
            UpstreamConfig::Http(_) => args.model.clone(),
            // There it chooses the model and is in the configuration.
            UpstreamConfig::Bundled(_) => None,
        },
        context: args.context,
    };
    let told = init::run(&wishes, loaded)
        .await
        .map_err(|error| match error {
            init::Error::Engine(fault) => placed(fault, loaded),
            init::Error::Context { .. } => Failure(error.to_string(), WRONG_CONFIGURATION),
            _ => Failure(error.to_string(), 1),
        })?;
    print(&told.join("\n"))?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(loaded: &Loaded) -> Result<ExitCode, Failure> {
    telemetry::init(&loaded.config.log)
        .map_err(|error| Failure(error.to_string(), WRONG_CONFIGURATION))?;
    match server::run(loaded.config.clone()).await {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(StartError::Engine(fault)) => Err(placed(fault, loaded)),
        Err(error) => Err(Failure(error.to_string(), CANNOT_START)),
    }
}
