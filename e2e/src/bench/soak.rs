//! Many streams at once that end in every way: by themselves, by a client that leaves, by a server that breaks off.
//!
//! Afterwards nothing may be left: no connection to the server, no file, no held byte, and memory as before.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::{task::JoinSet, time};

use super::{
    http::Connection,
    measure::{Tools, request},
    plan::{Ending, Kind, Pace, Plan},
    process,
    target::{Name, Programs, Target},
    upstream::Upstream,
};

#[derive(Debug, Clone, Copy)]
pub struct Settings {
    pub streams: u64,
    /// The same load before the measured one, so that a bridge that has worked can be compared too.
    pub warm_up: Duration,
    pub length: Duration,
    /// The same seed makes the same choices.
    pub seed: u64,
}

/// Longer than an idle upstream connection is kept for the next request.
const SETTLE: Duration = Duration::from_secs(6);
const START: Duration = Duration::from_secs(1);
const SAMPLE: Duration = Duration::from_millis(100);
const BUFFER: usize = 8 << 10;

/// What a process holds at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Held {
    /// Resident memory.
    pub megabytes: f64,
    /// The part of it that no file stands behind.
    pub anonymous: f64,
    pub open_files: usize,
}

/// How the streams ended, as their clients saw it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ends {
    /// Read to the last byte; the server may have broken off, the bridge told it in order.
    pub whole: u64,
    /// The client left.
    pub left: u64,
    /// The bridge refused, or broke off without an end.
    pub broken: u64,
}

#[derive(Debug, Clone, Copy)]
pub struct Report {
    /// Just started; it has answered one health check.
    pub idle: Held,
    /// Idle after the warm-up; as `idle` where there was none.
    pub warm: Held,
    /// The highest of each number under load.
    pub most: Held,
    pub after: Held,
    pub ends: Ends,
    /// Connections the fake server still has.
    pub upstream_open: u64,
    /// Gauges of the bridge; the connection that asks for them is not counted.
    pub connections: f64,
    pub held_bytes: f64,
}

impl Report {
    /// What is left that should not be, in words.
    pub fn leaks(&self) -> Vec<String> {
        let mut leaks = Vec::new();
        let mut check = |is_bad: bool, text: String| {
            if is_bad {
                leaks.push(text);
            }
        };
        let open = self.upstream_open;
        check(open > 0, format!("{open} upstream connections are open"));
        let (before, after) = (self.idle.open_files, self.after.open_files);
        check(
            after > before,
            format!("{after} open files, {before} before"),
        );
        check(
            self.connections > 0.0,
            format!("{} client connections", self.connections),
        );
        check(
            self.held_bytes > 0.0,
            format!("{} bytes are held", self.held_bytes),
        );
        check(
            self.ends.broken > 0,
            format!("{} streams without an end", self.ends.broken),
        );
        leaks
    }

    /// Memory after over memory before the first request.
    pub fn growth(&self) -> f64 {
        self.after.megabytes / self.idle.megabytes
    }
}

/// Starts a bridge, loads it, and looks at what stays.
pub async fn run(settings: Settings) -> Result<Report> {
    let upstream = Upstream::start(false).await?;
    let target = Target::start(&Programs::ours()?, Name::Ours, upstream.address()).await?;
    let pid = target.pid().context("the bridge has ended")?;
    // The connection that asked for its health is gone by then.
    time::sleep(START).await;
    let idle = held(pid)?;
    let mut warm = idle;
    if !settings.warm_up.is_zero() {
        load(&settings, settings.warm_up, target.address, || Ok(())).await?;
        time::sleep(SETTLE).await;
        warm = held(pid)?;
    }
    let mut most = idle;
    let ends = load(&settings, settings.length, target.address, || {
        most.raise(held(pid)?);
        Ok(())
    })
    .await?;
    time::sleep(SETTLE).await;
    let after = held(pid)?;
    let upstream_open = upstream.open();
    let metrics = metrics(&target).await?;
    Ok(Report {
        idle,
        warm,
        most,
        after,
        ends,
        upstream_open,
        connections: gauge(&metrics, "codex_bridge_connections")? - 1.0,
        held_bytes: gauge(&metrics, "codex_bridge_held_bytes")?,
    })
}

/// Streams for as long as `length`, with a look at the bridge every [`SAMPLE`].
async fn load(
    settings: &Settings,
    length: Duration,
    address: std::net::SocketAddr,
    mut look: impl FnMut() -> Result<()>,
) -> Result<Ends> {
    let until = Instant::now() + length;
    let mut clients = JoinSet::new();
    for number in 0..settings.streams {
        let choices = Choices::new(settings.seed, number);
        clients.spawn(client(address, choices, until));
    }
    while Instant::now() < until {
        time::sleep(SAMPLE).await;
        look()?;
    }
    let mut ends = Ends::default();
    while let Some(client) = clients.join_next().await {
        let client = client??;
        ends.whole += client.whole;
        ends.left += client.left;
        ends.broken += client.broken;
    }
    Ok(ends)
}

async fn client(
    address: std::net::SocketAddr,
    mut choices: Choices,
    until: Instant,
) -> Result<Ends> {
    let mut ends = Ends::default();
    while Instant::now() < until {
        let plan = choices.plan();
        let bytes = request::stream_request(address, Tools::Namespaced, &plan);
        // A third of the clients leave, at any moment of the two seconds a stream may take.
        let patience = match choices.below(3) {
            0 => Some(Duration::from_millis(choices.below(2000))),
            _ => None,
        };
        let mut connection = Connection::open(address, BUFFER).await?;
        let whole = async {
            connection.send(&bytes).await?;
            connection.finish(|_| {}).await
        };
        let answer = match patience {
            Some(patience) => time::timeout(patience, whole).await,
            None => Ok(whole.await),
        };
        match answer {
            Ok(Ok(())) => ends.whole += 1,
            Ok(Err(_)) => ends.broken += 1,
            Err(_) => ends.left += 1,
        }
    }
    Ok(ends)
}

/// Random choices that a seed repeats (xorshift64*).
#[derive(Debug)]
struct Choices(u64);

impl Choices {
    fn new(seed: u64, number: u64) -> Self {
        let mut choices = Self((seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15)) | 1);
        for _ in 0..8 {
            choices.below(2);
        }
        choices
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit
    }

    fn plan(&mut self) -> Plan {
        let kind = match self.below(3) {
            0 => Kind::Reasoning,
            1 => Kind::Text,
            _ => Kind::Arguments,
        };
        let deltas = u32::try_from(self.below(100)).unwrap_or(0);
        let plan = Plan::native(kind, deltas, Pace::Hertz(50));
        match self.below(4) {
            0 => plan.ending(Ending::Cut),
            _ => plan,
        }
    }
}

impl Held {
    fn raise(&mut self, other: Self) {
        self.megabytes = self.megabytes.max(other.megabytes);
        self.anonymous = self.anonymous.max(other.anonymous);
        self.open_files = self.open_files.max(other.open_files);
    }
}

fn held(pid: u32) -> Result<Held> {
    Ok(Held {
        anonymous: process::anonymous_megabytes(pid)?,
        megabytes: process::resident_megabytes(pid)?,
        open_files: process::open_files(pid)?,
    })
}

async fn metrics(target: &Target) -> Result<String> {
    let address = target.address;
    let mut connection = Connection::open(address, BUFFER).await?;
    let request = format!("GET /metrics HTTP/1.1\r\nhost: {address}\r\n\r\n");
    let mut body = Vec::new();
    connection.send(request.as_bytes()).await?;
    connection
        .finish(|bytes| body.extend_from_slice(bytes))
        .await?;
    Ok(String::from_utf8(body)?)
}

fn gauge(metrics: &str, name: &str) -> Result<f64> {
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = line.with_context(|| format!("no {name} in the metrics"))?;
    Ok(value.parse()?)
}
