//! The programs under test, each started on a port of its own in front of the same fake model server.

use std::{
    fs,
    net::SocketAddr,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::json;
use tempfile::TempDir;
use tokio::{process::Command, time};

use super::{http, process};
use crate::{
    bridge,
    child::Child,
    install::rivals::{self, NpmBridge},
    script,
};

const START_LIMIT: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    Direct,
    Npm,
    Gateway,
    Ours,
}

impl Name {
    pub const ALL: [Self; 4] = [Self::Direct, Self::Npm, Self::Gateway, Self::Ours];

    pub fn title(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Npm => "npm bridge 0.0.1",
            Self::Gateway => "agentic-api 0.8.0",
            Self::Ours => "codex-bridge",
        }
    }
}

/// Where the programs are.
#[derive(Debug)]
pub struct Programs {
    ours: PathBuf,
    rivals: Option<(NpmBridge, PathBuf)>,
}

impl Programs {
    /// Builds ours and installs the others.
    pub fn all() -> Result<Self> {
        Ok(Self {
            rivals: Some((rivals::npm_bridge()?, rivals::gateway()?)),
            ..Self::ours()?
        })
    }

    pub fn ours() -> Result<Self> {
        bridge::build()?;
        Ok(Self {
            ours: bridge::binary()?,
            rivals: None,
        })
    }

    fn command(
        &self,
        name: Name,
        listen: SocketAddr,
        upstream: SocketAddr,
        folder: &TempDir,
    ) -> Result<Command> {
        let path = folder.path().join("config.json");
        let base = format!("http://{upstream}/v1");
        let listen_config = json!({"host": listen.ip(), "port": listen.port()});
        let config = json!({"listen": listen_config, "upstream": base});
        fs::write(&path, config.to_string())?;
        let rivals = || self.rivals.as_ref().context("the rivals are not installed");
        let mut command = match name {
            Name::Direct => bail!("there is no program between"),
            Name::Ours => Command::new(&self.ours),
            Name::Npm => {
                let (npm, _) = rivals()?;
                let mut command = Command::new(&npm.node);
                command.arg(&npm.script);
                command
            }
            Name::Gateway => {
                let (_, gateway) = rivals()?;
                let mut command = Command::new(gateway);
                command.args(["--llm-api-base", &format!("http://{upstream}")]);
                command.args(["--gateway-host", &listen.ip().to_string()]);
                command.args(["--gateway-port", &listen.port().to_string()]);
                command.args(["--skip-llm-ready-check", "--db-url", "sqlite::memory:"]);
                // It writes to its home.
                command.env("HOME", folder.path());
                return Ok(command);
            }
        };
        command.arg(path);
        Ok(command)
    }
}

/// One of them, running; or none, for the load generator's own limit.
#[derive(Debug)]
pub struct Target {
    pub name: Name,
    pub address: SocketAddr,
    /// From the start of the process until `/health` answered, where there is one.
    pub start_up: Duration,
    child: Option<Child>,
    _folder: TempDir,
}

impl Target {
    pub async fn start(programs: &Programs, name: Name, upstream: SocketAddr) -> Result<Self> {
        let folder = tempfile::tempdir().context("a folder for the configuration")?;
        if name == Name::Direct {
            return Ok(Self {
                name,
                address: upstream,
                start_up: Duration::ZERO,
                child: None,
                _folder: folder,
            });
        }
        let address = script::vacant().await?;
        let command = programs.command(name, address, upstream, &folder)?;
        let began = Instant::now();
        let child = Child::spawn(name.title(), command)?;
        let healthy = time::timeout(START_LIMIT, healthy(address));
        if healthy.await.is_err() {
            bail!("{} did not start:\n{}", name.title(), child.log());
        }
        Ok(Self {
            name,
            address,
            start_up: began.elapsed(),
            child: Some(child),
            _folder: folder,
        })
    }

    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref()?.pid()
    }

    /// 0 where there is no process between.
    pub fn cpu_seconds(&self) -> Result<f64> {
        self.pid().map_or(Ok(0.0), process::cpu_seconds)
    }

    pub fn resident_megabytes(&self) -> Result<f64> {
        self.pid().map_or(Ok(0.0), process::resident_megabytes)
    }
}

/// Until it answers; asks several times a millisecond.
async fn healthy(address: SocketAddr) {
    while !http::is_healthy(address).await {
        // A timer of the runtime would be late by a millisecond.
        std::thread::sleep(Duration::from_micros(300));
    }
}
