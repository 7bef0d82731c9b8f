//! What is measured with one server, from its start to its end. A running server in, named numbers out.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde_json::Value;
use tokio::{task::JoinSet, time};

use super::{
    contestant::{Contestant, Programs, Room, Server},
    limit,
    report::median,
    spin::Spin,
    stream::{self, Answer},
    turn,
};
use crate::bench::process;

/// Numbers under the keys of [`super::rows::ROWS`] and [`super::rows::REMARKS`].
pub type Numbers = Vec<(&'static str, f64)>;

/// The prompt of a Codex session with long instructions, and what its next turn adds.
const LONG: usize = 7650;
const NEXT: usize = 200;
const SHORT: usize = 512;

/// Positions whose keys and values one page of the bundled engine holds.
const PAGE_TOKENS: f64 = 16.0;

/// Tokens of a measured answer, and of one that only warms up.
const ANSWER: u32 = 128;
const WARM_UP: u32 = 16;

/// Of each short measurement in a session; the session's number is their median.
const REPEATS: usize = 3;
const STREAMS: usize = 8;

/// Questions asked again when an answer was short.
const TRIES: usize = 4;

/// From the start of the busy process, or of a server, until it is as it stays.
const SETTLE: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Session {
    /// A cold prompt of 7650 tokens, the next turn, and decode behind it
    Long,
    /// Prefill of 512 tokens, decode of 128, and decode beside a busy process
    Short,
    /// Eight answers at once
    Streams,
    /// Resident memory with room for eight conversations
    Memory,
    /// From the start to healthy
    Start,
}

impl Session {
    pub const ALL: [Self; 5] = [
        Self::Start,
        Self::Short,
        Self::Streams,
        Self::Memory,
        Self::Long,
    ];

    /// Who takes part unless the command line says so: llama-server on Q4_1, a slow format of its, only where the same file is compared.
    pub fn contestants(self) -> Vec<Contestant> {
        let mut contestants = Contestant::ALL.to_vec();
        contestants.retain(|it| self == Self::Short || *it != Contestant::LlamaQ4_1);
        contestants
    }

    /// The same round asks every contestant the same.
    pub async fn run(
        self,
        programs: &Programs,
        contestant: Contestant,
        round: usize,
    ) -> Result<Numbers> {
        let began = Instant::now();
        let cpu = foreign_seconds()?;
        let numbers = self.measure(programs, contestant, round).await;
        let mut numbers = numbers.with_context(|| format!("{self:?} of {contestant}"))?;
        let cpu = foreign_seconds()? - cpu;
        let key = match self {
            Self::Long => "others_long",
            Self::Short => "others_short",
            Self::Streams => "others_streams",
            Self::Memory => "others_memory",
            Self::Start => "others_start",
        };
        numbers.push((key, cpu / began.elapsed().as_secs_f64()));
        Ok(numbers)
    }

    async fn measure(
        self,
        programs: &Programs,
        contestant: Contestant,
        round: usize,
    ) -> Result<Numbers> {
        if self == Self::Start {
            return starts(programs, contestant).await;
        }
        let room = match self {
            Self::Long | Self::Short => Room::One,
            Self::Streams | Self::Memory | Self::Start => Room::Eight,
        };
        let server = Server::start(programs, contestant, room).await?;
        let mut numbers = match self {
            Self::Long => long(&server, round).await?,
            Self::Short => short(&server, round).await?,
            Self::Streams => streams(&server, round).await?,
            Self::Memory | Self::Start => memory(&server, round).await?,
        };
        let engine = match contestant.is_ours() {
            true => server.health().await?["upstream"]["engine"].take(),
            false => Value::Null,
        };
        server.stop().await?;
        if contestant.is_ours() {
            numbers.extend(self.beside(&engine)?);
        }
        Ok(numbers)
    }

    /// How much the bundled engine guessed, and what decode of this model could reach with its keys and values and with llama-server's.
    fn beside(self, engine: &Value) -> Result<Numbers> {
        let number = |pointer: &str| -> Result<f64> {
            let value = engine.pointer(pointer).and_then(Value::as_f64);
            value.with_context(|| format!("no {pointer} in the health"))
        };
        let weights = number("/model/weightBytes")? as usize;
        let positions = number("/pages/total")? * PAGE_TOKENS;
        let kv = (number("/model/kvBytes")? / positions) as usize;
        let drafted = number("/tokens/drafted")?;
        let limits = |ours, theirs, positions| {
            [
                (ours, limit::decode(weights, positions, kv)),
                (
                    theirs,
                    limit::decode(weights, positions, limit::HALF_KV_BYTES),
                ),
            ]
        };
        let half = ANSWER as usize / 2;
        let (drafts, limits) = match self {
            Self::Long => (
                "drafted_long",
                limits("deep_limit", "deep_limit_half", LONG + NEXT + half),
            ),
            Self::Short => (
                "drafted_short",
                limits("decode_limit", "decode_limit_half", 90 + half),
            ),
            Self::Streams => return Ok(vec![("drafted_streams", drafted)]),
            Self::Memory | Self::Start => return Ok(Vec::new()),
        };
        Ok([(drafts, drafted)].into_iter().chain(limits).collect())
    }
}

/// Seconds of CPU, on all cores, that went neither to this program nor to a child of its that has ended.
fn foreign_seconds() -> Result<f64> {
    let own = process::cpu_seconds_with_children(std::process::id())?;
    Ok(process::machine_seconds()? - own)
}

async fn long(server: &Server, round: usize) -> Result<Numbers> {
    let cold = turn::cold(seed(round, 0), LONG, 1);
    let first = stream::ask(server.address, &cold).await?;
    let next = |topic| turn::next(&cold, topic, NEXT, ANSWER);
    let second = stream::ask(server.address, &next(round)).await?;
    let mut decoded = second;
    let mut topic = round;
    // Behind so much text a small model may have little to say.
    while decoded.output < ANSWER && topic < round + TRIES {
        topic += 1;
        decoded = stream::ask(server.address, &next(topic)).await?;
    }
    Ok(vec![
        ("cold", first.first_token().as_secs_f64()),
        ("cold_input", first.input.into()),
        ("next", second.first_token().as_secs_f64()),
        ("next_input", second.input.into()),
        ("next_cached", second.cached.into()),
        ("deep", decoded.decode_rate()?),
        ("deep_output", decoded.output.into()),
    ])
}

async fn short(server: &Server, round: usize) -> Result<Numbers> {
    stream::ask(server.address, &turn::question(round, WARM_UP)).await?;
    let prompt = |number| turn::cold(seed(round, 2 + number), SHORT, 1);
    stream::ask(server.address, &prompt(0)).await?;
    let prefills = repeat(server, |number| prompt(1 + number as u64)).await?;
    let question = |number| turn::question(REPEATS * round + number, ANSWER);
    let quiet = repeat(server, question).await?;
    let spin = Spin::start()?;
    time::sleep(SETTLE).await;
    let busy = repeat(server, question).await?;
    let share = spin.share()?;
    let rate = |answers: &[Answer]| {
        let rates: Result<Vec<f64>> = answers.iter().map(Answer::decode_rate).collect();
        Ok::<_, anyhow::Error>(median(&rates?))
    };
    let prefill: Vec<f64> = prefills.iter().map(Answer::prefill_rate).collect();
    Ok(vec![
        ("prefill", median(&prefill)),
        ("prefill_input", prefills[0].input.into()),
        ("decode", rate(&quiet)?),
        ("decode_output", quiet[0].output.into()),
        ("busy", rate(&busy)?),
        ("busy_keeps", 100.0 * rate(&busy)? / rate(&quiet)?),
        ("busy_share", 100.0 * share),
    ])
}

async fn repeat(server: &Server, body: impl Fn(usize) -> Value) -> Result<Vec<Answer>> {
    let mut answers = Vec::with_capacity(REPEATS);
    for number in 0..REPEATS {
        answers.push(stream::ask(server.address, &body(number)).await?);
    }
    Ok(answers)
}

async fn streams(server: &Server, round: usize) -> Result<Numbers> {
    // Prompts of the same length that share nothing with those that follow.
    let warm_up = |stream| turn::cold(seed(round, 10 + stream), 95, WARM_UP);
    at_once(server, warm_up).await?;
    let answers = at_once(server, |stream| turn::question(stream as usize, ANSWER)).await?;
    let sent = answers.iter().map(|answer| answer.sent).min();
    let first = answers.iter().map(|answer| answer.first).min();
    let last = answers.iter().map(|answer| answer.last).max();
    let (sent, first, last) = sent
        .zip(first)
        .zip(last)
        .map(|((sent, first), last)| (sent, first, last))
        .context("no answers")?;
    let tokens: u32 = answers.iter().map(|answer| answer.output).sum();
    // Each stream's first token belongs to its prompt.
    let decoded = tokens - STREAMS as u32;
    Ok(vec![
        ("streams", f64::from(decoded) / (last - first).as_secs_f64()),
        (
            "streams_sent",
            f64::from(tokens) / (last - sent).as_secs_f64(),
        ),
        ("streams_output", tokens.into()),
    ])
}

async fn at_once(server: &Server, body: impl Fn(u64) -> Value) -> Result<Vec<Answer>> {
    let mut clients = JoinSet::new();
    for stream in 0..STREAMS as u64 {
        let (address, body) = (server.address, body(stream));
        clients.spawn(async move { stream::ask(address, &body).await });
    }
    let answers = clients.join_all().await;
    answers.into_iter().collect()
}

async fn memory(server: &Server, round: usize) -> Result<Numbers> {
    time::sleep(SETTLE).await;
    let pid = server.pid()?;
    let mut numbers = vec![
        ("rss_start", mebibytes(process::resident_megabytes(pid)?)),
        (
            "anonymous_start",
            mebibytes(process::anonymous_megabytes(pid)?),
        ),
        (
            "pss_start",
            mebibytes(process::proportional_megabytes(pid)?),
        ),
    ];
    let cold = turn::cold(seed(round, 0), LONG, WARM_UP);
    stream::ask(server.address, &cold).await?;
    time::sleep(SETTLE).await;
    numbers.extend([
        ("rss_cached", mebibytes(process::resident_megabytes(pid)?)),
        (
            "anonymous_cached",
            mebibytes(process::anonymous_megabytes(pid)?),
        ),
        (
            "pss_cached",
            mebibytes(process::proportional_megabytes(pid)?),
        ),
    ]);
    Ok(numbers)
}

async fn starts(programs: &Programs, contestant: Contestant) -> Result<Numbers> {
    // The first one brings program and libraries into the page cache, if they were not there.
    let first = Server::start(programs, contestant, Room::One).await?;
    first.stop().await?;
    let mut numbers = Vec::new();
    for (key, room) in [("start", Room::Eight), ("start_one", Room::One)] {
        let server = Server::start(programs, contestant, room).await?;
        numbers.push((key, server.start_up.as_secs_f64() * 1e3));
        server.stop().await?;
    }
    Ok(numbers)
}

fn mebibytes(megabytes: f64) -> f64 {
    megabytes * 1e6 / f64::from(1 << 20)
}

fn seed(round: usize, number: u64) -> u64 {
    100 * round as u64 + number
}
