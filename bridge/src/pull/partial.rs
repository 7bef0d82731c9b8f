//! The part of a file that is here already, and grows.

use std::{
    fs::{File, OpenOptions},
    io::{self, Seek, SeekFrom, Write},
    path::PathBuf,
};

use super::{
    digest::{Digest, Hasher},
    store::Slot,
};

/// Invariant: `hasher` and `length` are of all bytes in `file`.
pub(super) struct Partial {
    pub(super) path: PathBuf,
    pub(super) length: u64,
    pub(super) hasher: Hasher,
    file: File,
}

impl Partial {
    /// Goes on with what an earlier try left of the very file that has this checksum; without one, begins anew.
    pub(super) fn open(slot: &Slot, sha256: Option<&Digest>) -> io::Result<Self> {
        let path = slot.partial(sha256);
        let mut file = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .truncate(false)
            .open(&path)?;
        if sha256.is_none() {
            file.set_len(0)?;
        }
        file.seek(SeekFrom::Start(0))?;
        let mut hasher = Hasher::new();
        let length = hasher.read(&mut file)?;
        Ok(Self {
            path,
            length,
            hasher,
            file,
        })
    }

    pub(super) fn push(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.file.write_all(chunk)?;
        self.hasher.update(chunk);
        self.length += chunk.len() as u64;
        Ok(())
    }

    /// Throws away what is here.
    pub(super) fn restart(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.hasher = Hasher::new();
        self.length = 0;
        Ok(())
    }
}
