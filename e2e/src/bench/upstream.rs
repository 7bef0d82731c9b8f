//! The fake model server: raw TCP, prebuilt bytes, answers chosen by the model's name.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use memchr::memmem;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time,
};

use super::{
    clock,
    plan::{Ending, Kind, Pace, Plan},
    wire::{self, Writer},
};

/// Bytes of one write, and of one HTTP chunk where frames are batched.
const WRITE: usize = 32 << 10;
/// How long after the terminal event a late `[DONE]` comes.
const LATE: Duration = Duration::from_millis(10);
const STREAM_HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";
const LAST_CHUNK: &str = "0\r\n\r\n";

#[derive(Debug, Default)]
struct Counts {
    asked: AtomicU64,
    open: AtomicU64,
}

#[derive(Debug)]
pub struct Upstream {
    address: SocketAddr,
    counts: Arc<Counts>,
    /// Dropping it closes the listener and every connection.
    _tasks: JoinSet<()>,
}

impl Upstream {
    /// `llama`: answers `/props` as llama-server does, so that a bridge takes it for one.
    pub async fn start(llama: bool) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .context("bind a loopback port")?;
        let address = listener.local_addr()?;
        let counts = Arc::new(Counts::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&counts), llama));
        Ok(Self {
            address,
            counts,
            _tasks: tasks,
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections so far that carried a request for a response; a question what the server is does not count.
    pub fn asked(&self) -> u64 {
        self.counts.asked.load(Relaxed)
    }

    /// Connections open now.
    pub fn open(&self) -> u64 {
        self.counts.open.load(Relaxed)
    }
}

async fn accept(listener: TcpListener, counts: Arc<Counts>, llama: bool) {
    let prebuilt = Arc::new(Prebuilt::default());
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        counts.open.fetch_add(1, Relaxed);
        let (counts, prebuilt) = (Arc::clone(&counts), Arc::clone(&prebuilt));
        connections.spawn(async move {
            // An error is a bridge that left.
            let _ = serve(stream, &prebuilt, &counts, llama).await;
            counts.open.fetch_sub(1, Relaxed);
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(
    mut stream: TcpStream,
    prebuilt: &Prebuilt,
    counts: &Counts,
    llama: bool,
) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut is_counted = false;
    let mut buffer = Vec::with_capacity(8 << 10);
    loop {
        let Some((head, body)) = request(&mut stream, &mut buffer).await? else {
            return Ok(());
        };
        let line = head.lines().next().unwrap_or_default();
        if !line.starts_with("post ") {
            stream.write_all(get(line, llama).as_bytes()).await?;
            continue;
        }
        if !is_counted {
            is_counted = true;
            counts.asked.fetch_add(1, Relaxed);
        }
        match plan(&body)? {
            None => stream.write_all(&prebuilt.json).await?,
            Some(plan) => answer(&mut stream, &plan, prebuilt).await?,
        }
    }
}

/// The head in lower case, and the body; `None` when the other side has left.
async fn request(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
) -> Result<Option<(String, Vec<u8>)>> {
    let head_end = loop {
        if let Some(end) = memmem::find(buffer, b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&buffer[..head_end]).to_ascii_lowercase();
    let length: usize = match head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"))
    {
        Some(length) => length.trim().parse()?,
        None if head.contains("chunked") => bail!("a chunked request"),
        None => 0,
    };
    while buffer.len() < head_end + length {
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
    let body = buffer[head_end..head_end + length].to_vec();
    buffer.drain(..head_end + length);
    Ok(Some((head, body)))
}

/// `None` for a request that wants JSON.
fn plan(body: &[u8]) -> Result<Option<Plan>> {
    let key = br#""model":""#;
    let at = memmem::find(body, key).context("no model in the request")? + key.len();
    let end = memchr::memchr(b'"', &body[at..]).context("no end of the model's name")?;
    match std::str::from_utf8(&body[at..at + end])? {
        "json" => Ok(None),
        name => name.parse().map(Some),
    }
}

fn get(line: &str, llama: bool) -> String {
    let path = line.split(' ').nth(1).unwrap_or_default();
    let (status, body) = match path {
        "/health" => ("200 OK", r#"{"status":"ok"}"#),
        "/v1/models" => (
            "200 OK",
            r#"{"object":"list","data":[{"id":"bench","object":"model","meta":{"n_ctx":131072}}]}"#,
        ),
        "/props" if llama => (
            "200 OK",
            r#"{"default_generation_settings":{"n_ctx":131072},"model_path":"bench.gguf","chat_template_caps":{"supports_tools":true,"supports_tool_calls":true,"supports_parallel_tool_calls":true,"supports_system_role":true},"modalities":{"vision":false}}"#,
        ),
        _ => (
            "404 Not Found",
            r#"{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}"#,
        ),
    };
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

async fn answer(stream: &mut TcpStream, plan: &Plan, prebuilt: &Prebuilt) -> Result<()> {
    if let Pace::Hertz(rate) = plan.pace {
        return paced(stream, plan, rate).await;
    }
    for write in prebuilt.of(plan).iter() {
        stream.write_all(write).await?;
    }
    if plan.ending == Ending::LateDone {
        time::sleep(LATE).await;
        let done = format!("{}{LAST_CHUNK}", chunk("data: [DONE]\n\n"));
        stream.write_all(done.as_bytes()).await?;
    }
    Ok(())
}

async fn paced(stream: &mut TcpStream, plan: &Plan, rate: u32) -> Result<()> {
    let mut writer = Writer::new(plan);
    writer.open();
    let mut tick = time::interval(Duration::from_secs(1) / rate);
    stream
        .write_all(format!("{STREAM_HEAD}{}", chunk(&writer.take())).as_bytes())
        .await?;
    for _ in 0..plan.deltas {
        tick.tick().await;
        writer.delta(&wire::stamp(clock::nanoseconds()));
        stream.write_all(chunk(&writer.take()).as_bytes()).await?;
    }
    if plan.ending == Ending::Cut {
        bail!("cut, as planned");
    }
    tick.tick().await;
    writer.close();
    let end = format!("{}{LAST_CHUNK}", chunk(&writer.take()));
    Ok(stream.write_all(end.as_bytes()).await?)
}

fn chunk(frames: &str) -> String {
    format!("{:x}\r\n{frames}\r\n", frames.len())
}

/// Answers made once, cut into writes.
#[derive(Debug)]
struct Prebuilt {
    json: Bytes,
    streams: Mutex<HashMap<Plan, Arc<Vec<Bytes>>>>,
}

impl Default for Prebuilt {
    fn default() -> Self {
        let body = wire::json();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
        Self {
            json: format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into(),
            streams: Mutex::default(),
        }
    }
}

impl Prebuilt {
    fn of(&self, plan: &Plan) -> Arc<Vec<Bytes>> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(
            streams
                .entry(*plan)
                .or_insert_with(|| Arc::new(build(plan))),
        )
    }
}

fn build(plan: &Plan) -> Vec<Bytes> {
    let mut writer = Writer::new(plan);
    let mut write = STREAM_HEAD.to_owned();
    let mut writes = Vec::new();
    let mut batch = String::new();
    let stamp = wire::stamp(0);
    // The arguments' brackets are deltas of their own.
    let deltas = match plan.kind {
        Kind::Arguments => plan.deltas.saturating_sub(2),
        _ => plan.deltas,
    };
    writer.open();
    for number in 0..=deltas {
        if number < deltas {
            writer.delta(&stamp);
        } else if plan.ending != Ending::Cut {
            writer.close();
        }
        let is_last = number == deltas;
        if plan.pace == Pace::Single {
            write += &chunk(&writer.take());
        } else {
            batch += &writer.take();
            if batch.len() >= WRITE || is_last {
                write += &chunk(&std::mem::take(&mut batch));
            }
        }
        if is_last && plan.ending == Ending::Plain {
            write += LAST_CHUNK;
        }
        if write.len() >= WRITE || is_last {
            writes.push(std::mem::take(&mut write).into());
        }
    }
    writes
}
