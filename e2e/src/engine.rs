//! The bridge with its own engine: on a model that a test wrote, or on the small real one, which the bridge itself
//! fetches once into the cache of this checkout.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::{
    bridge::{self, Bridge},
    child,
    gguf::Script,
    workspace,
};

/// Fetching 98 MB and loading them; the rest is room for a busy machine.
const READY_LIMIT: Duration = Duration::from_secs(300);

/// The alias of the small real model, and so its name.
pub const SMOLLM2: &str = "smollm2-135m";

/// What to serve, and how.
#[derive(Debug, Clone)]
pub struct Options {
    model: String,
    /// Keys of `upstream.bundled`.
    engine: Value,
    /// Keys beside `upstream`.
    config: Value,
    warm_start: Option<PathBuf>,
}

impl Options {
    /// The small real model.
    pub fn smollm2() -> Self {
        Self::new(SMOLLM2.to_owned())
    }

    pub fn file(path: &Path) -> Self {
        Self::new(path.display().to_string())
    }

    fn new(model: String) -> Self {
        Self {
            model,
            engine: json!({}),
            config: json!({}),
            warm_start: None,
        }
    }

    /// A key of `upstream.bundled`.
    pub fn engine(mut self, key: &str, value: Value) -> Self {
        self.engine[key] = value;
        self
    }

    /// A key of the configuration.
    pub fn config(mut self, key: &str, value: Value) -> Self {
        self.config[key] = value;
        self
    }

    /// Keeps the cache of standing prompts in this folder; without one nothing is kept.
    pub fn warm_start(mut self, folder: &Path) -> Self {
        self.warm_start = Some(folder.to_owned());
        self
    }

    /// Starts the bridge and waits for the model. It answers to every model name.
    pub async fn start(&self) -> Result<Bridge> {
        let bridge = self.begin().await?;
        bridge.wait_for(READY_LIMIT, serving).await?;
        Ok(bridge)
    }

    /// Starts the bridge, and waits no longer than until it listens.
    pub async fn begin(&self) -> Result<Bridge> {
        let folder = tempfile::tempdir().context("a folder for the bridge")?;
        let command = self.command("127.0.0.1:0", folder.path())?;
        Ok(Bridge::started(command).await?.holding(folder))
    }

    /// The command that serves it at `listen`, with its configuration written into `folder`.
    pub fn command(&self, listen: &str, folder: &Path) -> Result<Command> {
        let path = folder.join("bridge.json");
        fs::write(&path, self.configuration().to_string())
            .with_context(|| format!("write {}", path.display()))?;
        let mut command = command()?;
        command.args(["--listen", listen]).arg(path);
        Ok(command)
    }

    fn configuration(&self) -> Value {
        let mut config = self.config.clone();
        let mut engine = self.engine.clone();
        engine["model"] = json!(self.model);
        match &self.warm_start {
            Some(folder) => engine["warmStartDir"] = json!(folder),
            None => engine["warmStart"] = json!(false),
        }
        config["upstream"] = json!({"bundled": engine});
        config["modelAliases"] = json!({"*": served(&self.model)});
        config
    }
}

/// A scripted model on the bundled engine.
pub async fn scripted(script: &Script) -> Result<Bridge> {
    let (folder, path) = write(script)?;
    // The file is mapped, not read: it stays as long as the bridge.
    Ok(Options::file(&path).start().await?.holding(folder))
}

/// The file of a scripted model, in a folder of its own.
pub fn write(script: &Script) -> Result<(TempDir, PathBuf)> {
    let folder = tempfile::tempdir().context("a folder for the model")?;
    let path = folder.path().join("scripted.gguf");
    script.write(&path)?;
    Ok((folder, path))
}

/// The bridge's command, with the cache of this checkout for a home of models.
pub fn command() -> Result<Command> {
    let mut command = Command::new(bridge::binary()?);
    command.env("XDG_DATA_HOME", data());
    command.env("XDG_CACHE_HOME", workspace::cache().join("xdg-cache"));
    Ok(command)
}

/// Where the bridge keeps models.
pub fn data() -> PathBuf {
    workspace::cache().join("xdg-data")
}

/// `codex-bridge pull`: the path of the model, fetched if need be.
pub async fn pull(model: &str) -> Result<PathBuf> {
    let path = run(&["pull".as_ref(), model.as_ref()]).await?;
    Ok(PathBuf::from(path.trim_end()))
}

/// Writes the files of `codex-bridge --init` into `folder`, with what the bridge knows of models fetched here.
pub async fn init(folder: &Path, arguments: &[&str]) -> Result<()> {
    let mut all: Vec<&OsStr> = vec!["--init".as_ref(), folder.as_ref()];
    all.extend(arguments.iter().map(OsStr::new));
    run(&all).await?;
    Ok(())
}

/// Runs the bridge's command to its end, and gives its output.
async fn run(arguments: &[&OsStr]) -> Result<String> {
    let mut command = command()?;
    command.args(arguments);
    let output = command
        .output()
        .await
        .with_context(|| format!("start {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?} ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).context("output that is no text")
}

/// The name a model is served under: its alias, or the file's own name.
fn served(model: &str) -> String {
    let name = model.rsplit('/').next().unwrap_or(model);
    name.strip_suffix(".gguf").unwrap_or(name).to_owned()
}

/// The line that says that the model is there.
fn serving(log: &str) -> Option<String> {
    child::lines(log)
        .find(|line| line.starts_with("serving "))
        .map(str::to_owned)
}
