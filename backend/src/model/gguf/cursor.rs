//! Reads from bytes that are not trusted: nothing is taken that is not there.

use std::fmt::Display;

use crate::model::error::Fault;

#[derive(Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    /// `at <= bytes.len()`
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, at: 0 }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// The next `count` bytes; `field` names what they are.
    pub(super) fn take(&mut self, count: u64, field: impl Display) -> Result<&'a [u8], Fault> {
        if count > self.left() as u64 {
            return Err(Fault::new(
                field,
                format_args!(
                    "{count} bytes announced at byte {}, and {} bytes left to read",
                    self.at,
                    self.left()
                ),
                "complete files, with at most 256 MiB of metadata and tensor tables",
            ));
        }
        let from = self.at;
        self.at += count as usize;
        Ok(&self.bytes[from..self.at])
    }

    fn array<const N: usize>(&mut self, field: impl Display) -> Result<[u8; N], Fault> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64, field)?);
        Ok(array)
    }

    pub(super) fn u32(&mut self, field: impl Display) -> Result<u32, Fault> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, field: impl Display) -> Result<u64, Fault> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// A length of 64 bits and as many bytes.
    pub(super) fn string(&mut self, field: impl Display + Copy) -> Result<&'a [u8], Fault> {
        let length = self.u64(field)?;
        self.take(length, field)
    }
}
