//! Zstandard frames, one after the other.
//!
//! The decoder must keep as many decoded bytes as a frame's header asks for (its window), so a header of a few bytes
//! could claim a hundred megabytes; one that asks for more than the body may have is refused before memory is taken.

use std::io::{self, Read};

use bytes::{Buf, Bytes};
use ruzstd::decoding::{
    FrameDecoder, StreamingDecoder,
    errors::{FrameDecoderError, ReadFrameHeaderError},
};

/// What every decoder must support, says RFC 8878 §3.1.1.1.2.
const WINDOW_ALWAYS_ALLOWED: u64 = 8 * 1024 * 1024;

const MAGIC: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();

pub(super) struct ZstdFrames {
    rest: Bytes,
    frame: Option<StreamingDecoder<bytes::buf::Reader<Bytes>, FrameDecoder>>,
    largest_window: u64,
}

impl ZstdFrames {
    pub(super) fn new(raw: Bytes, limit: u64) -> Self {
        Self {
            rest: raw,
            frame: None,
            largest_window: limit.max(WINDOW_ALWAYS_ALLOWED),
        }
    }

    /// Opens the next frame; false at the end of the body.
    fn open(&mut self) -> io::Result<bool> {
        while self.rest.has_remaining() {
            self.check_memory()?;
            match StreamingDecoder::new(self.rest.clone().reader()) {
                Ok(frame) => {
                    self.frame = Some(frame);
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let whole = (length as usize).saturating_add(8).min(self.rest.len());
                    self.rest.advance(whole);
                }
                Err(error) => return Err(io::Error::other(error.to_string())),
            }
        }
        Ok(false)
    }
}

impl ZstdFrames {
    fn check_memory(&self) -> io::Result<()> {
        match Claim::of(&self.rest) {
            Some(Claim::Content(bytes)) if bytes > self.largest_window => {
                Err(io::ErrorKind::FileTooLarge.into())
            }
            Some(Claim::Window(bytes)) if bytes > self.largest_window => {
                Err(io::Error::other(format!(
                    "it asks for a window of {bytes} bytes, the most allowed is {}",
                    self.largest_window
                )))
            }
            _ => Ok(()),
        }
    }
}

impl Read for ZstdFrames {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.frame.is_none() && !self.open()? {
                return Ok(0);
            }
            let Some(mut frame) = self.frame.take() else {
                return Ok(0);
            };
            let count = frame.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                self.frame = Some(frame);
                return Ok(count);
            }
            self.rest = frame.into_inner().into_inner();
        }
    }
}

/// What a frame header says it needs.
enum Claim {
    Window(u64),
    /// The frame gives its content size only, and the decoder takes that for the window.
    Content(u64),
}

impl Claim {
    /// `None` when this is no frame header; the decoder then says what is wrong with it.
    fn of(frame: &[u8]) -> Option<Self> {
        let (magic, header) = frame.split_first_chunk()?;
        let (&descriptor, header) = header.split_first()?;
        if *magic != MAGIC {
            return None;
        }
        if descriptor & 0b0010_0000 == 0 {
            let window = *header.first()?;
            let base = 1_u64 << (10 + (window >> 3));
            return Some(Self::Window(base + base / 8 * u64::from(window & 7)));
        }
        let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
        let size = [1, 2, 4, 8][usize::from(descriptor >> 6)];
        let mut bytes = [0; 8];
        bytes[..size].copy_from_slice(header.get(dictionary..dictionary + size)?);
        let content = u64::from_le_bytes(bytes);
        // Two bytes count from 256, since one byte reaches that far.
        Some(Self::Content(if size == 2 {
            content + 256
        } else {
            content
        }))
    }
}
