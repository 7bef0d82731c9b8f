//! The load generator's side of HTTP/1.1: just enough, and with no cost to speak of.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// The request for a response.
pub fn post(address: SocketAddr, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let length = body.len();
    format!(
        "POST /v1/responses HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// The request whether a server is ready.
pub fn health(address: SocketAddr) -> Vec<u8> {
    format!("GET /health HTTP/1.1\r\nhost: {address}\r\n\r\n").into_bytes()
}

/// Asks once.
pub async fn is_healthy(address: SocketAddr) -> bool {
    let asked = async {
        let mut connection = Connection::open(address, 4096).await?;
        connection.send(&health(address)).await?;
        connection.finish(|_| {}).await
    };
    asked.await.is_ok()
}

/// What is left of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Head,
    Bytes(usize),
    ChunkLine,
    Chunk(usize),
    /// The line break behind a chunk.
    ChunkEnd(usize),
    /// After the last chunk; the break of an empty line is one byte in.
    Trailer(usize),
    Nothing,
}

/// One kept-alive connection; one request at a time.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// `from..to` of the buffer is read but not used.
    from: usize,
    to: usize,
    line: Vec<u8>,
    left: Left,
    pub status: u16,
}

impl Connection {
    pub async fn open(address: SocketAddr, buffer: usize) -> Result<Self> {
        let stream = TcpStream::connect(address)
            .await
            .with_context(|| format!("connect to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: vec![0; buffer],
            from: 0,
            to: 0,
            line: Vec::new(),
            left: Left::Nothing,
            status: 0,
        })
    }

    pub async fn send(&mut self, request: &[u8]) -> Result<()> {
        ensure!(
            self.left == Left::Nothing,
            "the last answer was not read to its end"
        );
        self.left = Left::Head;
        self.line.clear();
        Ok(self.stream.write_all(request).await?)
    }

    /// Reads once and hands out what came of the body; false at its end.
    pub async fn receive(&mut self, body: &mut impl FnMut(&[u8])) -> Result<bool> {
        if self.from == self.to {
            self.from = 0;
            self.to = self.stream.read(&mut self.buffer).await?;
            ensure!(self.to > 0, "the connection closed inside an answer");
        }
        while self.from < self.to && self.left != Left::Nothing {
            self.step(body)?;
        }
        Ok(self.left != Left::Nothing)
    }

    /// Reads an answer to its end.
    pub async fn finish(&mut self, mut body: impl FnMut(&[u8])) -> Result<()> {
        while self.receive(&mut body).await? {}
        ensure!(self.status == 200, "status {}", self.status);
        Ok(())
    }

    fn step(&mut self, body: &mut impl FnMut(&[u8])) -> Result<()> {
        let bytes = &self.buffer[self.from..self.to];
        let (used, left) = match self.left {
            Left::Bytes(count) => {
                let part = count.min(bytes.len());
                body(&bytes[..part]);
                (
                    part,
                    if part == count {
                        Left::Nothing
                    } else {
                        Left::Bytes(count - part)
                    },
                )
            }
            Left::Chunk(count) => {
                let part = count.min(bytes.len());
                body(&bytes[..part]);
                (
                    part,
                    if part == count {
                        Left::ChunkEnd(2)
                    } else {
                        Left::Chunk(count - part)
                    },
                )
            }
            Left::ChunkEnd(count) => {
                let part = count.min(bytes.len());
                (
                    part,
                    if part == count {
                        Left::ChunkLine
                    } else {
                        Left::ChunkEnd(count - part)
                    },
                )
            }
            Left::Trailer(count) => {
                let part = count.min(bytes.len());
                (
                    part,
                    if part == count {
                        Left::Nothing
                    } else {
                        Left::Trailer(count - part)
                    },
                )
            }
            Left::Head | Left::ChunkLine => return self.line(),
            Left::Nothing => bail!("bytes behind an answer"),
        };
        self.from += used;
        self.left = left;
        Ok(())
    }

    /// Takes up to one line of the head, or the size of a chunk.
    fn line(&mut self) -> Result<()> {
        let bytes = &self.buffer[self.from..self.to];
        let Some(end) = memchr::memchr(b'\n', bytes) else {
            self.line.extend_from_slice(bytes);
            self.from = self.to;
            return Ok(());
        };
        self.line.extend_from_slice(&bytes[..=end]);
        self.from += end + 1;
        if self.left == Left::ChunkLine {
            let text = std::str::from_utf8(&self.line)?.trim_end();
            let size = usize::from_str_radix(text, 16)
                .with_context(|| format!("{text:?} is no chunk size"))?;
            self.left = if size == 0 {
                Left::Trailer(2)
            } else {
                Left::Chunk(size)
            };
            self.line.clear();
        } else if self.line.ends_with(b"\r\n\r\n") {
            self.head()?;
            self.line.clear();
        }
        Ok(())
    }

    fn head(&mut self) -> Result<()> {
        let head = std::str::from_utf8(&self.line)?.to_ascii_lowercase();
        self.status = head
            .get(9..12)
            .and_then(|status| status.parse().ok())
            .context("no status line")?;
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"));
        self.left = match length {
            Some(length) => match length.trim().parse()? {
                0 => Left::Nothing,
                length => Left::Bytes(length),
            },
            None if head.contains("chunked") => Left::ChunkLine,
            None => bail!("an answer without length: {head}"),
        };
        Ok(())
    }
}
