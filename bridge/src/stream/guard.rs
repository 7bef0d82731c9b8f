//! Bytes in, whole SSE frames out. This stands in front of the parser `eventsource-stream`, which panics on a byte
//! order mark, withholds everything after a bad UTF-8 byte, has no size limit and rescans what it holds.
//!
//! Invariants: every [`Frame`] is valid UTF-8, ends in one blank line, and knows no other line end than LF; no byte is
//! scanned twice; no more than the limit is ever held. Frames that arrive whole are slices of the chunk they came in.
//!
//! Source: WHATWG HTML, section 9.2.5 (one leading BOM is ignored, CR, LF and CRLF end a line, bad UTF-8 decodes to
//! U+FFFD).

use bytes::{Bytes, BytesMut};
use memchr::{memchr, memmem};

const BOM: &[u8] = b"\xef\xbb\xbf";

/// One frame: lines ended by LF, the last of them empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame(Bytes);

impl Frame {
    pub fn as_str(&self) -> &str {
        // Checked in `Guard::cut`; the fallback is never taken.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// One event grew past the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event is larger than the limit of {limit} bytes")]
pub struct TooLarge {
    pub limit: usize,
}

/// The state between two chunks.
#[derive(Debug)]
pub struct Guard {
    /// The beginning of a frame, never ending in a blank line.
    held: BytesMut,
    /// Fewer than three bytes that may yet become a BOM; `None` once the stream has begun.
    start: Option<BytesMut>,
    /// The last byte was a CR, already handed on as LF: a LF that follows belongs to it.
    after_cr: bool,
    limit: usize,
    replaced: u64,
}

impl Guard {
    /// `limit` is the largest frame in bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            held: BytesMut::new(),
            start: Some(BytesMut::new()),
            after_cr: false,
            limit,
            replaced: 0,
        }
    }

    /// How many invalid UTF-8 sequences were replaced so far.
    pub fn replaced(&self) -> u64 {
        self.replaced
    }

    pub fn held_bytes(&self) -> usize {
        self.held.len()
    }

    /// Takes one chunk and gives `each` the frames it completes.
    ///
    /// # Errors
    /// A frame, finished or not, is over the limit. The guard is of no use afterwards.
    pub fn push(&mut self, chunk: Bytes, mut each: impl FnMut(Frame)) -> Result<(), TooLarge> {
        let Some(chunk) = self.without_bom(chunk) else {
            return Ok(());
        };
        let mut rest = if self.after_cr || memchr(b'\r', &chunk).is_some() {
            self.with_lf(&chunk)
        } else {
            chunk
        };
        while !rest.is_empty() {
            let Some(length) = self.end_of_frame(&rest) else {
                self.held.extend_from_slice(&rest);
                return self.check(self.held.len());
            };
            let tail = rest.split_to(length);
            let frame = if self.held.is_empty() {
                tail
            } else {
                self.held.extend_from_slice(&tail);
                self.held.split().freeze()
            };
            self.check(frame.len())?;
            // A blank line between frames is no frame.
            if frame.iter().any(|byte| *byte != b'\n') {
                each(self.valid(frame));
            }
        }
        Ok(())
    }

    /// The end of the stream: what is held becomes a frame, as if its blank line had come, so that a complete terminal
    /// event is not lost with the connection.
    pub fn finish(&mut self) -> Option<Frame> {
        if let Some(start) = self.start.take() {
            self.held.extend_from_slice(&start);
        }
        if self.held.iter().all(|byte| *byte == b'\n') {
            return None;
        }
        while !self.held.ends_with(b"\n\n") {
            self.held.extend_from_slice(b"\n");
        }
        let frame = self.held.split().freeze();
        Some(self.valid(frame))
    }

    fn without_bom(&mut self, mut chunk: Bytes) -> Option<Bytes> {
        let Some(start) = &mut self.start else {
            return Some(chunk);
        };
        if !start.is_empty() {
            start.extend_from_slice(&chunk);
            chunk = start.split().freeze();
        }
        if chunk.len() < BOM.len() && BOM.starts_with(&chunk) {
            start.extend_from_slice(&chunk);
            return None;
        }
        self.start = None;
        if chunk.starts_with(BOM) {
            chunk = chunk.slice(BOM.len()..);
        }
        Some(chunk)
    }

    fn with_lf(&mut self, chunk: &[u8]) -> Bytes {
        let mut lines = BytesMut::with_capacity(chunk.len());
        for &byte in chunk {
            match byte {
                b'\r' => lines.extend_from_slice(b"\n"),
                b'\n' if self.after_cr => {}
                other => lines.extend_from_slice(&[other]),
            }
            self.after_cr = byte == b'\r';
        }
        lines.freeze()
    }

    /// Bytes of `rest` up to and with the blank line that ends the current frame.
    fn end_of_frame(&self, rest: &[u8]) -> Option<usize> {
        let line_is_open = self.held.is_empty() || self.held.ends_with(b"\n");
        if line_is_open && rest.starts_with(b"\n") {
            return Some(1);
        }
        memmem::find(rest, b"\n\n").map(|at| at + 2)
    }

    fn check(&self, length: usize) -> Result<(), TooLarge> {
        if length > self.limit {
            return Err(TooLarge { limit: self.limit });
        }
        Ok(())
    }

    fn valid(&mut self, frame: Bytes) -> Frame {
        if std::str::from_utf8(&frame).is_ok() {
            return Frame(frame);
        }
        let text: String = frame
            .utf8_chunks()
            .inspect(|chunk| self.replaced += u64::from(!chunk.invalid().is_empty()))
            .flat_map(|chunk| {
                let mark = if chunk.invalid().is_empty() {
                    ""
                } else {
                    "\u{fffd}"
                };
                [chunk.valid(), mark]
            })
            .collect();
        Frame(text.into())
    }
}

#[cfg(test)]
mod tests;
