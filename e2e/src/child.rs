//! A child process whose output is collected while it runs, and which never outlives its owner.
//!
//! Dropping it asks politely first (SIGTERM), waits a little, then kills: so a server under test gets to drain, and a
//! stuck one cannot hang a test.

use std::{
    process::{ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Command,
    sync::watch,
    time,
};

/// From SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_secs(5);

/// The two outputs apart: joined as they come, a line of one could land inside a line of the other.
#[derive(Debug, Clone, Default)]
struct Log {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Log {
    fn text(&self) -> String {
        [&self.stdout, &self.stderr]
            .map(|bytes| String::from_utf8_lossy(bytes))
            .concat()
    }

    fn find<T>(&self, find: impl Fn(&str) -> Option<T>) -> Option<T> {
        [&self.stdout, &self.stderr]
            .into_iter()
            .find_map(|bytes| find(&String::from_utf8_lossy(bytes)))
    }
}

#[derive(Debug)]
pub struct Child {
    name: &'static str,
    process: tokio::process::Child,
    log: watch::Receiver<Log>,
}

impl Child {
    /// Starts `command` with an empty standard input; both its outputs are kept.
    pub fn spawn(name: &'static str, mut command: Command) -> Result<Self> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut process = command
            .spawn()
            .with_context(|| format!("start {command:?}"))?;
        let (writer, log) = watch::channel(Log::default());
        if let Some(stdout) = process.stdout.take() {
            tokio::spawn(collect(stdout, writer.clone(), |log| &mut log.stdout));
        }
        if let Some(stderr) = process.stderr.take() {
            tokio::spawn(collect(stderr, writer, |log| &mut log.stderr));
        }
        Ok(Self { name, process, log })
    }

    pub fn pid(&self) -> Option<u32> {
        self.process.id()
    }

    /// All it has printed so far.
    pub fn log(&self) -> String {
        self.log.borrow().text()
    }

    /// Waits until one of its outputs contains what `find` looks for. A child that ends first, or is too slow, is an error with
    /// its log.
    pub async fn wait_for<T>(
        &self,
        limit: Duration,
        find: impl Fn(&str) -> Option<T>,
    ) -> Result<T> {
        let mut log = self.log.clone();
        let found = time::timeout(limit, log.wait_for(|log| log.find(&find).is_some())).await;
        let printed = match found {
            Ok(Ok(log)) => log.clone(),
            Ok(Err(_)) => bail!("{} ended early; it printed:\n{}", self.name, self.log()),
            Err(_) => bail!(
                "{} was not ready after {limit:?}; it printed:\n{}",
                self.name,
                self.log()
            ),
        };
        printed
            .find(find)
            .with_context(|| format!("{} took back what it printed", self.name))
    }

    /// Asks it to stop, waits for the end, and tells how it ended.
    pub async fn stop(mut self, limit: Duration) -> Result<ExitStatus> {
        self.signal("TERM");
        match time::timeout(limit, self.process.wait()).await {
            Ok(status) => Ok(status?),
            Err(_) => bail!(
                "{} did not stop within {limit:?}; it printed:\n{}",
                self.name,
                self.log()
            ),
        }
    }

    /// SIGKILL: what no process can prepare for. Returns when it is gone.
    pub async fn kill(mut self) -> Result<()> {
        self.process.start_kill()?;
        self.process.wait().await?;
        Ok(())
    }

    /// SIGTERM, without waiting.
    pub fn terminate(&self) {
        self.signal("TERM");
    }

    /// Waits for the end, and tells how it ended.
    pub async fn wait(mut self, limit: Duration) -> Result<ExitStatus> {
        match time::timeout(limit, self.process.wait()).await {
            Ok(status) => Ok(status?),
            Err(_) => bail!(
                "{} still ran after {limit:?}; it printed:\n{}",
                self.name,
                self.log()
            ),
        }
    }

    /// `kill(1)` on this very process; the standard library can only send SIGKILL.
    fn signal(&self, signal: &str) {
        if let Some(pid) = self.pid() {
            let _ = std::process::Command::new("kill")
                .args(["-s", signal, &pid.to_string()])
                .status();
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !matches!(self.process.try_wait(), Ok(None)) {
            return;
        }
        self.signal("TERM");
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline && matches!(self.process.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(5));
        }
        let _ = self.process.start_kill();
    }
}

/// The lines of a log that are complete; the last one may still be on its way.
pub fn lines(log: &str) -> impl Iterator<Item = &str> {
    log.split_inclusive('\n')
        .filter_map(|line| line.strip_suffix('\n'))
}

async fn collect(
    mut output: impl AsyncRead + Unpin,
    log: watch::Sender<Log>,
    part: fn(&mut Log) -> &mut Vec<u8>,
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = output.read(&mut buffer).await {
        log.send_modify(|log| part(log).extend_from_slice(&buffer[..length]));
    }
}
