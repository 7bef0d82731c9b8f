//! The built `codex-bridge`, as a user starts it: a configuration file, a free port, and its ready line.

use std::{env, fs, path::PathBuf, process::ExitStatus, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::{
    child::{self, Child},
    workspace,
};

const START_LIMIT: Duration = Duration::from_secs(30);
const STOP_LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct Bridge {
    child: Child,
    origin: String,
    /// Hold the configuration file, and what else the bridge needs.
    folders: Vec<TempDir>,
}

impl Bridge {
    /// Starts it in front of `upstream` (a base URL ending in `/v1`) with further configuration keys.
    pub async fn start(upstream: &str, more: Value) -> Result<Self> {
        let mut config = json!({"upstream": upstream});
        if let (Some(config), Value::Object(more)) = (config.as_object_mut(), more) {
            config.extend(more);
        }
        let folder = tempfile::tempdir().context("a folder for the bridge")?;
        let path = folder.path().join("bridge.json");
        fs::write(&path, config.to_string())?;
        let bridge = Self::spawn(&["--listen", "127.0.0.1:0", &path.to_string_lossy()]).await?;
        Ok(bridge.holding(folder))
    }

    /// Starts it with these arguments.
    pub async fn spawn(arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new(binary()?);
        command.args(arguments);
        Self::started(command).await
    }

    /// Starts a prepared command of it, and waits until it listens.
    pub async fn started(command: Command) -> Result<Self> {
        let child = Child::spawn("codex-bridge", command)?;
        let origin = child.wait_for(START_LIMIT, ready).await?;
        Ok(Self {
            child,
            origin,
            folders: Vec::new(),
        })
    }

    /// `http://127.0.0.1:PORT`
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// `http://127.0.0.1:PORT/v1`
    pub fn base_url(&self) -> String {
        format!("{}/v1", self.origin)
    }

    pub fn log(&self) -> String {
        self.child.log()
    }

    pub fn pid(&self) -> Option<u32> {
        self.child.pid()
    }

    /// Waits until its log contains what `find` looks for.
    pub async fn wait_for<T>(
        &self,
        limit: Duration,
        find: impl Fn(&str) -> Option<T>,
    ) -> Result<T> {
        self.child.wait_for(limit, find).await
    }

    /// SIGTERM, without waiting for the end.
    pub fn terminate(&self) {
        self.child.terminate();
    }

    /// Waits for its own end.
    pub async fn ended(self) -> Result<ExitStatus> {
        self.child.wait(STOP_LIMIT).await
    }

    /// SIGKILL.
    pub async fn kill(self) -> Result<()> {
        self.child.kill().await
    }

    /// Keeps a folder for as long as the bridge runs.
    pub fn holding(mut self, folder: TempDir) -> Self {
        self.folders.push(folder);
        self
    }

    /// SIGTERM, as a service manager does it.
    pub async fn stop(self) -> Result<ExitStatus> {
        self.child.stop(STOP_LIMIT).await
    }
}

/// The executable beside the running one, or the one named by `CODEX_BRIDGE_BIN`. Builds it when it is not there;
/// `cargo nextest run --workspace` has built it already.
pub fn binary() -> Result<PathBuf> {
    if let Some(path) = env::var_os("CODEX_BRIDGE_BIN") {
        return Ok(path.into());
    }
    let folder = workspace::profile_dir()?;
    let path = folder.join("codex-bridge");
    if !path.exists() {
        build()?;
    }
    ensure!(path.exists(), "no codex-bridge in {}", folder.display());
    Ok(path)
}

/// Builds it in the profile of the running program, unless `CODEX_BRIDGE_BIN` names one that is built.
pub fn build() -> Result<()> {
    if env::var_os("CODEX_BRIDGE_BIN").is_some() {
        return Ok(());
    }
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = std::process::Command::new(cargo);
    command.args(["build", "--bin", "codex-bridge"]);
    // With this package named too, both share dependencies of the same features.
    command.args(["--package", "codex-bridge", "--package", "codex-bridge-e2e"]);
    let profile = workspace::profile_dir()?;
    if profile.ends_with("release") {
        command.arg("--release");
    }
    if let Some(target) = profile.parent() {
        command.arg("--target-dir").arg(target);
    }
    let status = command.current_dir(workspace::root()).status();
    let status = status.with_context(|| format!("start {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

/// The origin in `codex-bridge listening on http://127.0.0.1:PORT …`.
fn ready(log: &str) -> Option<String> {
    let line = child::lines(log).find(|line| line.contains("listening on http://"))?;
    let (_, rest) = line.split_once("http://")?;
    let authority = |sign: char| sign.is_ascii_alphanumeric() || ".:[]-".contains(sign);
    Some(format!(
        "http://{}",
        rest.split(|sign| !authority(sign)).next()?
    ))
}
