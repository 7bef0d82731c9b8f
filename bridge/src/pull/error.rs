//! Why there is no model file, in one line that says what to do about it.

use std::{
    io,
    path::{Path, PathBuf},
};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not a name of any kind.
    #[error("{reference:?} names no model: {problem}")]
    Reference { reference: String, problem: String },
    #[error("{}: there is no such file or folder", .0.display())]
    Missing(PathBuf),
    #[error(
        "no place to keep models: neither XDG_DATA_HOME nor HOME is set; give the path of a file"
    )]
    NoHome,
    #[error("{}: {source}; XDG_DATA_HOME chooses another place for models", path.display())]
    Store { path: PathBuf, source: io::Error },
    #[error(
        "{}: {needed} bytes are needed and {free} are free; XDG_DATA_HOME chooses another place for models",
        folder.display()
    )]
    Space {
        folder: PathBuf,
        needed: u64,
        free: u64,
    },
    #[error("{}: the disk became full: {source}; XDG_DATA_HOME chooses another place for models", folder.display())]
    Full { folder: PathBuf, source: io::Error },
    #[error("{url}: {problem}")]
    Fetch { url: String, problem: String },
    #[error(
        "{what}: the connection ended {tries} times, last after {got} of {total} bytes; pull again to go on from there"
    )]
    Cut {
        what: String,
        tries: u32,
        got: u64,
        total: u64,
    },
    #[error(
        "{what}: the file has the sha256 {got}, and {expected} was expected; it was thrown away"
    )]
    Checksum {
        what: String,
        expected: String,
        got: String,
    },
    #[error("{what}: {problem}")]
    Package { what: String, problem: String },
}

impl Error {
    pub(super) fn missing(path: &Path) -> Self {
        Self::Missing(path.to_owned())
    }

    pub(super) fn store(path: &Path, source: io::Error) -> Self {
        Self::Store {
            path: path.to_owned(),
            source,
        }
    }

    /// The user named something that is not there, as against something that could not be had.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Reference { .. } | Self::Missing(_))
    }
}
