//! The one memory map. A model file is mapped read-only and shared by every tensor in it.

use std::{
    fs::File,
    io,
    ops::Deref,
    path::{Path, PathBuf},
};

/// A file mapped into memory, read-only.
#[derive(Debug)]
pub struct Mapped {
    path: PathBuf,
    map: memmap2::Mmap,
}

impl Mapped {
    /// Maps the whole of a regular file.
    pub fn open(path: &Path) -> io::Result<Mapped> {
        let file = File::open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file",
            ));
        }
        // SAFETY: the map is read-only. A program that truncates the file while it is mapped raises SIGBUS here, as for every engine that maps its
        // weights; model files are replaced by renaming, not written in place.
        let map = unsafe { memmap2::Mmap::map(&file)? };
        Ok(Mapped {
            path: path.to_owned(),
            map,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}
