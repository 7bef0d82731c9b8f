//! The folder of models: one file a model, each under a path made of its reference.
//!
//! A file is written beside its place and moved there when it is whole, under a lock that other processes respect. What
//! a broken fetch leaves behind is named after the checksum it was to have, so that only that very file is gone on with.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use tracing::Level;

use super::{digest::Digest, digest::to_hex, error::Error};
use crate::{config::Places, telemetry};

/// Kept free on the disk, beside what is fetched.
const SPARE: u64 = 64 << 20;
const LOCK_PAUSE: Duration = Duration::from_millis(200);

/// Where the file of this relative path is kept.
pub(super) fn place(places: &Places, relative: &Path) -> Result<PathBuf, Error> {
    let models = places.models.as_ref().ok_or(Error::NoHome)?;
    Ok(models.join(relative))
}

/// The right to write one file.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) path: PathBuf,
    lock_path: PathBuf,
    _lock: File,
}

impl Slot {
    /// Waits for another process that fetches the same file. `None`: it is there, by that process or an earlier one.
    pub(super) async fn claim(path: &Path) -> Result<Option<Self>, Error> {
        let folder = path.parent().unwrap_or(path);
        fs::create_dir_all(folder).map_err(|source| Error::store(folder, source))?;
        let lock_path = beside(path, ".lock");
        let failed = |source| Error::store(&lock_path, source);
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .map_err(failed)?;
        let mut told = false;
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => {
                    if !told {
                        told = true;
                        let line = format!(
                            "{}: another process is fetching it; waiting",
                            path.display()
                        );
                        telemetry::tell(Level::INFO, &line);
                    }
                    tokio::time::sleep(LOCK_PAUSE).await;
                }
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
        }
        if path.is_file() {
            return Ok(None);
        }
        Ok(Some(Self {
            path: path.to_owned(),
            lock_path,
            _lock: lock,
        }))
    }

    /// Where the file grows. With a known checksum an earlier part of it may be there.
    pub(super) fn partial(&self, sha256: Option<&Digest>) -> PathBuf {
        let name = sha256.map_or_else(
            || "new".to_owned(),
            |digest| to_hex(digest)[..16].to_owned(),
        );
        beside(&self.path, &format!(".{name}.part"))
    }

    /// Fails early when `needed` more bytes will not fit.
    pub(super) fn check_space(&self, needed: u64) -> Result<(), Error> {
        let folder = self.folder();
        let Ok(disk) = rustix::fs::statvfs(folder) else {
            // A file system that does not tell; writing will.
            return Ok(());
        };
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if free < needed.saturating_add(SPARE) {
            return Err(Error::Space {
                folder: folder.to_owned(),
                needed: needed.saturating_add(SPARE),
                free,
            });
        }
        Ok(())
    }

    /// A whole file gets its name.
    pub(super) fn keep(self, partial: &Path) -> Result<PathBuf, Error> {
        let failed = |source| Error::store(&self.path, source);
        File::open(partial)
            .and_then(|file| file.sync_all())
            .map_err(failed)?;
        fs::rename(partial, &self.path).map_err(failed)?;
        // Whoever waits for it finds the file.
        let _ = fs::remove_file(&self.lock_path);
        Ok(self.path)
    }

    pub(super) fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    /// A failed write, told as what it is.
    pub(super) fn write_error(&self, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::Full {
                folder: self.folder().to_owned(),
                source,
            },
            _ => Error::store(&self.path, source),
        }
    }
}

/// `folder/.name` + `suffix`: hidden, and beside the file, so that it can be moved there.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}{suffix}"))
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[tokio::test]
    async fn a_disk_that_became_full_is_told_in_the_words_of_the_system() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.gguf");
        let slot = Slot::claim(&path).await.unwrap().unwrap();
        let told = |kind: io::ErrorKind| slot.write_error(kind.into()).to_string();
        let folder = folder.path().display();
        assert_eq!(
            told(io::ErrorKind::StorageFull),
            format!(
                "{folder}: the disk became full: no storage space; XDG_DATA_HOME chooses another place for models"
            )
        );
        assert_eq!(
            told(io::ErrorKind::PermissionDenied),
            format!(
                "{}: permission denied; XDG_DATA_HOME chooses another place for models",
                path.display()
            )
        );
    }
}
