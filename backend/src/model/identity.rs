//! A name for a set of files that changes when their content does, without reading the weights.

use std::{fs, path::Path, time::UNIX_EPOCH};

use xxhash_rust::xxh3::Xxh3;

use super::{ModelError, error::unreadable, file::Mapped};

/// Collects sizes, times of change and the describing bytes of each file. Tells models apart; no protection against someone who builds a collision.
#[derive(Default)]
pub(super) struct Identity {
    hash: Xxh3,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Identity")
    }
}

impl Identity {
    /// `file.len()`, its time of change and its first `head` bytes.
    pub(super) fn add(&mut self, file: &Mapped, head: usize) -> Result<(), ModelError> {
        self.add_time(file.path())?;
        self.add_bytes(&(file.len() as u64).to_le_bytes());
        self.add_bytes(&file[..head]);
        Ok(())
    }

    fn add_time(&mut self, path: &Path) -> Result<(), ModelError> {
        let changed = fs::metadata(path)
            .and_then(|metadata| metadata.modified())
            .map_err(|error| unreadable(path, &error))?;
        // Before 1970 nothing was trained.
        let since = changed.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.add_bytes(&since.as_nanos().to_le_bytes());
        Ok(())
    }

    pub(super) fn add_bytes(&mut self, bytes: &[u8]) {
        self.hash.update(&(bytes.len() as u64).to_le_bytes());
        self.hash.update(bytes);
    }

    /// 32 hex digits.
    pub(super) fn finish(&self) -> String {
        format!("{:032x}", self.hash.digest128())
    }
}
