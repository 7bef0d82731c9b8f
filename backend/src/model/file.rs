//! The one memory map. A model file is mapped read-only and shared by every tensor in it.

use std::{
    fs::{self, File},
    io,
    ops::{Deref, Range},
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
        let file = open_regular(path)?;
        // SAFETY: the map is read-only. A program that truncates the file while it is mapped raises SIGBUS here, as for every engine that maps its
        // weights; model files are replaced by renaming, not written in place.
        let map = unsafe { memmap2::Mmap::map(&file)? };
        Ok(Mapped {
            path: path.to_owned(),
            map,
        })
    }

    /// Drops the pages of `range` from this process's memory once they have been copied elsewhere; reading them again fetches them from the page cache or
    /// the disk. Pages that lie only partly in the range stay. A failure costs memory only and is not reported.
    pub fn release(&self, range: Range<usize>) {
        let page = page_size();
        let from = range.start.next_multiple_of(page);
        let to = if range.end == self.map.len() {
            range.end
        } else {
            range.end / page * page
        };
        if from < to && to <= self.map.len() {
            // SAFETY: the range lies in the map, and the map is of a file and never written to, so that dropped pages come back with the same bytes.
            drop(unsafe {
                self.map
                    .unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, from, to - from)
            });
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Opens a regular file and nothing else: opening a pipe would wait for its other end.
pub(super) fn open_regular(path: &Path) -> io::Result<File> {
    if fs::metadata(path)?.is_file() {
        return File::open(path);
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        "not a regular file",
    ))
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

fn page_size() -> usize {
    // SAFETY: `sysconf` reads a constant of the system.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096).max(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_bytes_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let bytes: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
        fs::write(&path, &bytes).unwrap();
        let file = Mapped::open(&path).unwrap();
        for range in [0..100_000, 1..99_999, 5000..5001, 0..0, 4096..8192] {
            assert_eq!(file[range.clone()], bytes[range.clone()]);
            file.release(range.clone());
            assert_eq!(file[range.clone()], bytes[range]);
        }
    }

    #[test]
    fn an_empty_file_maps_to_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, b"").unwrap();
        let file = Mapped::open(&path).unwrap();
        assert!(file.is_empty());
        file.release(0..0);
    }
}
