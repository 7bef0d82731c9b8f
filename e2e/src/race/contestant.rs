//! Who races: an engine and a format of the model's weights. Each is started on an address of its own and watched until
//! it is healthy.

use std::{
    fmt, fs,
    net::SocketAddr,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{process::Command, time};

use crate::{
    bench::http::{self, Connection},
    bridge,
    child::Child,
    engine,
    install::native,
    script,
};

/// Both engines get as many.
pub const THREADS: u32 = 2;

/// What the model was trained for, and so the window of a conversation.
const WINDOW: u32 = 8192;

const START_LIMIT: Duration = Duration::from_secs(120);
const STOP_LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Contestant {
    #[value(name = "ours-q4_1")]
    OursQ4_1,
    #[value(name = "ours-q4_0")]
    OursQ4_0,
    #[value(name = "llama-q4_0")]
    LlamaQ4_0,
    #[value(name = "llama-q4_1")]
    LlamaQ4_1,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// As the model is packaged.
    Q4_1,
    /// llama.cpp's quickest of this model.
    Q4_0,
}

/// How many conversations a server has room for. The bundled engine always has room for eight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    One,
    Eight,
}

impl Contestant {
    pub const ALL: [Self; 4] = [
        Self::OursQ4_1,
        Self::OursQ4_0,
        Self::LlamaQ4_0,
        Self::LlamaQ4_1,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Self::OursQ4_1 => "ours, Q4_1",
            Self::OursQ4_0 => "ours, Q4_0",
            Self::LlamaQ4_0 => "llama-server, Q4_0",
            Self::LlamaQ4_1 => "llama-server, Q4_1",
        }
    }

    pub fn is_ours(self) -> bool {
        matches!(self, Self::OursQ4_1 | Self::OursQ4_0)
    }

    pub fn format(self) -> Format {
        match self {
            Self::OursQ4_1 | Self::LlamaQ4_1 => Format::Q4_1,
            Self::OursQ4_0 | Self::LlamaQ4_0 => Format::Q4_0,
        }
    }
}

/// As on the command line.
impl fmt::Display for Contestant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::OursQ4_1 => "ours-q4_1",
            Self::OursQ4_0 => "ours-q4_0",
            Self::LlamaQ4_0 => "llama-q4_0",
            Self::LlamaQ4_1 => "llama-q4_1",
        })
    }
}

/// What the contestants are told beside what all runs have in common.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extra {
    /// Keys of `upstream.bundled`, as `key=value`.
    pub engine: Vec<String>,
    /// Arguments of llama-server.
    pub llama: Vec<String>,
}

/// Where the programs and the model's files are.
#[derive(Debug)]
pub struct Programs {
    server: PathBuf,
    q4_1: PathBuf,
    q4_0: PathBuf,
    extra: Extra,
}

impl Programs {
    /// Builds ours, installs llama.cpp, and fetches the model. Both its files are read once, so that the first start
    /// finds them in the page cache like the others.
    pub async fn install(extra: &Extra) -> Result<Self> {
        bridge::build()?;
        let q4_1 = engine::pull(engine::SMOLLM2).await?;
        let programs = Self {
            server: native::llama_cpp()?.server,
            q4_0: native::q4_0(&q4_1)?,
            q4_1,
            extra: extra.clone(),
        };
        for path in [&programs.q4_1, &programs.q4_0] {
            fs::read(path).with_context(|| format!("read {}", path.display()))?;
        }
        Ok(programs)
    }

    fn model(&self, format: Format) -> &PathBuf {
        match format {
            Format::Q4_1 => &self.q4_1,
            Format::Q4_0 => &self.q4_0,
        }
    }

    fn command(
        &self,
        contestant: Contestant,
        room: Room,
        listen: SocketAddr,
        folder: &TempDir,
    ) -> Result<Command> {
        let model = self.model(contestant.format());
        if contestant.is_ours() {
            let mut options = engine::Options::file(model).engine("threads", json!(THREADS));
            for pair in &self.extra.engine {
                let (key, value) = pair
                    .split_once('=')
                    .with_context(|| format!("{pair:?}: key=value is expected"))?;
                options = options.engine(key, json!(value));
            }
            return options.command(&listen.to_string(), folder.path());
        }
        let slots = match room {
            Room::One => 1,
            Room::Eight => 8,
        };
        let mut command = Command::new(&self.server);
        command.arg("--model").arg(model);
        command.args(["--host", &listen.ip().to_string()]);
        command.args(["--port", &listen.port().to_string()]);
        command.args(["--threads", &THREADS.to_string()]);
        command.args(["--parallel", &slots.to_string()]);
        command.args(["--ctx-size", &(slots * WINDOW).to_string()]);
        command.args(&self.extra.llama);
        Ok(command)
    }
}

/// A contestant that answers.
#[derive(Debug)]
pub struct Server {
    pub contestant: Contestant,
    pub address: SocketAddr,
    /// From the start of the process until `/health` said that it is ready.
    pub start_up: Duration,
    child: Child,
    _folder: TempDir,
}

impl Server {
    pub async fn start(programs: &Programs, contestant: Contestant, room: Room) -> Result<Self> {
        let folder = tempfile::tempdir().context("a folder for the configuration")?;
        let address = script::vacant().await?;
        let command = programs.command(contestant, room, address, &folder)?;
        let began = Instant::now();
        let child = Child::spawn(contestant.title(), command)?;
        if time::timeout(START_LIMIT, healthy(address)).await.is_err() {
            bail!("{contestant} did not start:\n{}", child.log());
        }
        Ok(Self {
            contestant,
            address,
            start_up: began.elapsed(),
            child,
            _folder: folder,
        })
    }

    pub fn pid(&self) -> Result<u32> {
        self.child
            .pid()
            .with_context(|| format!("{} has ended", self.contestant))
    }

    /// What `/health` says; of the bundled engine that is much.
    pub async fn health(&self) -> Result<Value> {
        let mut connection = Connection::open(self.address, 16 << 10).await?;
        let mut body = Vec::new();
        connection.send(&http::health(self.address)).await?;
        connection
            .finish(|bytes| body.extend_from_slice(bytes))
            .await?;
        Ok(serde_json::from_slice(&body)?)
    }

    /// Ends it before the next one starts.
    pub async fn stop(self) -> Result<()> {
        self.child.stop(STOP_LIMIT).await?;
        Ok(())
    }
}

/// Asks every millisecond: more often would take the processor from the one that starts.
async fn healthy(address: SocketAddr) {
    while !http::is_healthy(address).await {
        time::sleep(Duration::from_millis(1)).await;
    }
}
