//! Request bodies: counted while they come, decoded, and only then looked at.
//!
//! The limit holds for the bytes a handler gets to see, so a small compressed body that swells past it is refused like
//! a large plain one, and never held whole. A declared length over the limit is refused before a byte is read.

use std::{
    io::{ErrorKind, Read},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, Bytes, BytesMut};
use futures_util::Stream;
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, SizeHint};
use protocol::{Object, object::describe};
use serde_json::Value;
use tokio::time::{Instant, Sleep};

use self::zstd::ZstdFrames;

mod zstd;

/// How long a client may fall silent in the middle of a body.
const LONGEST_SILENCE: Duration = Duration::from_secs(30);
/// Incompressible bytes grow a little when "compressed"; this much is forgiven before decoding.
const CODING_OVERHEAD: u64 = 4096;
/// Parsing more than this may hold up the other requests of this thread.
const PARSE_INLINE: usize = 1024 * 1024;

pub(super) const ALLOWED_CODINGS: &str = "gzip, zstd, identity";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the request body has more than {limit} bytes{}", declared_as(.declared))]
    TooLarge { limit: u64, declared: Option<u64> },
    #[error("Content-Encoding {0:?} is not read here; send one of {ALLOWED_CODINGS}, and only one")]
    Coding(String),
    #[error("the request body stopped coming for {} s", .0.as_secs())]
    Idle(Duration),
    #[error("the request body ended early: {0}")]
    Cut(String),
    #[error("the request body is not {coding}: {cause}")]
    Compressed { coding: &'static str, cause: String },
    #[error("the request body is not UTF-8 at byte {0}")]
    Utf8(usize),
    #[error("the request body begins with a byte order mark; JSON has none")]
    ByteOrderMark,
    #[error("the request body is not JSON: {0}")]
    Json(serde_json::Error),
    #[error("the request body must be a JSON object, but {0} came")]
    NotAnObject(String),
    #[error("the thread that reads request bodies died")]
    Worker,
}

fn declared_as(declared: &Option<u64>) -> String {
    declared.map_or_else(String::new, |bytes| format!(": Content-Length is {bytes}"))
}

/// The chunks of a request body as the connection yields them.
pub(super) type Chunks = Pin<Box<dyn Stream<Item = Result<Bytes, warp::Error>> + Send + Sync>>;

/// A body that ends with an error once it is too long, or silent for too long.
pub struct Limited {
    chunks: Chunks,
    limit: u64,
    seen: u64,
    declared: Option<u64>,
    silence: Pin<Box<Sleep>>,
}

impl Limited {
    /// # Errors
    /// A declared length over `limit`: known before anything is read, so that `Expect: 100-continue` stays unanswered.
    pub(super) fn new(chunks: Chunks, headers: &HeaderMap, limit: u64) -> Result<Self, Error> {
        let declared = headers
            .get(header::CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok())
            .and_then(|text| text.parse().ok());
        if declared.is_some_and(|bytes| bytes > limit) {
            return Err(Error::TooLarge { limit, declared });
        }
        Ok(Self {
            chunks,
            limit,
            seen: 0,
            declared,
            silence: Box::pin(tokio::time::sleep(LONGEST_SILENCE)),
        })
    }
}

impl std::fmt::Debug for Limited {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Limited")
            .field("limit", &self.limit)
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}

impl Body for Limited {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let Poll::Ready(next) = self.chunks.as_mut().poll_next(context) else {
            ready!(self.silence.as_mut().poll(context));
            return Poll::Ready(Some(Err(Error::Idle(LONGEST_SILENCE))));
        };
        self.silence
            .as_mut()
            .reset(Instant::now() + LONGEST_SILENCE);
        let chunk = match next {
            None => return Poll::Ready(None),
            Some(Err(error)) => return Poll::Ready(Some(Err(Error::Cut(error.to_string())))),
            Some(Ok(chunk)) => chunk,
        };
        self.seen += chunk.len() as u64;
        Poll::Ready(Some(if self.seen > self.limit {
            Err(Error::TooLarge {
                limit: self.limit,
                declared: None,
            })
        } else {
            Ok(Frame::data(chunk))
        }))
    }

    fn size_hint(&self) -> SizeHint {
        match self.declared {
            Some(bytes) => SizeHint::with_exact(bytes.saturating_sub(self.seen)),
            None => SizeHint::default(),
        }
    }
}

/// The body as a JSON object; an empty body is `{}`.
///
/// # Errors
/// Any of [`Error`].
pub(super) async fn read_object(
    chunks: Chunks,
    headers: &HeaderMap,
    limit: u64,
) -> Result<Object, Error> {
    let coding = Coding::of(headers)?;
    let raw = read_limited(chunks, headers, coding.limit_before(limit)).await?;
    if coding == Coding::Identity && raw.len() <= PARSE_INLINE {
        return parse(&raw);
    }
    tokio::task::spawn_blocking(move || parse(&coding.decode(raw, limit)?))
        .await
        .map_err(|_| Error::Worker)?
}

/// The body as it came, not decoded.
async fn read_limited(chunks: Chunks, headers: &HeaderMap, limit: u64) -> Result<Bytes, Error> {
    let mut body = Limited::new(chunks, headers, limit)?;
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        if let Ok(chunk) = frame?.into_data() {
            whole.extend_from_slice(&chunk);
        }
    }
    Ok(whole.freeze())
}

/// How a body is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coding {
    Identity,
    Gzip,
    Zstd,
}

impl Coding {
    fn of(headers: &HeaderMap) -> Result<Self, Error> {
        let mut coding = Self::Identity;
        for value in headers.get_all(header::CONTENT_ENCODING) {
            let text = String::from_utf8_lossy(value.as_bytes());
            let next = match text.trim().to_ascii_lowercase().as_str() {
                "" | "identity" => continue,
                "gzip" | "x-gzip" => Self::Gzip,
                "zstd" => Self::Zstd,
                _ => return Err(Error::Coding(text.into_owned())),
            };
            if coding != Self::Identity {
                return Err(Error::Coding(
                    format!("{coding:?}, {next:?}").to_ascii_lowercase(),
                ));
            }
            coding = next;
        }
        Ok(coding)
    }

    fn limit_before(self, limit: u64) -> u64 {
        match self {
            Self::Identity => limit,
            Self::Gzip | Self::Zstd => limit.saturating_add(limit / 64 + CODING_OVERHEAD),
        }
    }

    fn decode(self, raw: Bytes, limit: u64) -> Result<Bytes, Error> {
        match self {
            Self::Identity => Ok(raw),
            Self::Gzip => read_up_to(
                flate2::read::MultiGzDecoder::new(raw.reader()),
                "gzip",
                limit,
            ),
            Self::Zstd => read_up_to(ZstdFrames::new(raw, limit), "zstd", limit),
        }
    }
}

fn read_up_to(source: impl Read, coding: &'static str, limit: u64) -> Result<Bytes, Error> {
    let mut decoded = Vec::new();
    source
        .take(limit.saturating_add(1))
        .read_to_end(&mut decoded)
        .map_err(|error| match error.kind() {
            ErrorKind::FileTooLarge => Error::TooLarge {
                limit,
                declared: None,
            },
            _ => Error::Compressed {
                coding,
                cause: error.to_string(),
            },
        })?;
    if decoded.len() as u64 > limit {
        return Err(Error::TooLarge {
            limit,
            declared: None,
        });
    }
    Ok(decoded.into())
}

fn parse(body: &[u8]) -> Result<Object, Error> {
    if body.is_empty() {
        return Ok(Object::new());
    }
    let text = std::str::from_utf8(body).map_err(|error| Error::Utf8(error.valid_up_to()))?;
    if text.starts_with('\u{feff}') {
        return Err(Error::ByteOrderMark);
    }
    match serde_json::from_str(text).map_err(Error::Json)? {
        Value::Object(object) => Ok(object),
        other => Err(Error::NotAnObject(describe(&other))),
    }
}

#[cfg(test)]
mod tests;
