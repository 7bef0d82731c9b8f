//! A process that keeps one core busy, as a compiler beside the model does.

use std::time::Instant;

use anyhow::{Context, Result};
use tokio::process::Command;

use crate::{bench::process, child::Child};

#[derive(Debug)]
pub(super) struct Spin {
    child: Child,
    began: Instant,
}

impl Spin {
    /// Pinned to core 0.
    pub(super) fn start() -> Result<Self> {
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", "0", "sh", "-c", "while :; do :; done"]);
        Ok(Self {
            child: Child::spawn("the busy process", command)?,
            began: Instant::now(),
        })
    }

    /// The share of its core that it has had so far.
    pub(super) fn share(&self) -> Result<f64> {
        let pid = self.child.pid().context("the busy process has ended")?;
        Ok(process::cpu_seconds(pid)? / self.began.elapsed().as_secs_f64())
    }
}
