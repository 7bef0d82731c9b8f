//! Stable prefixes on disk, so that a restart finds them: one file a prefix, read back page by page.
//!
//! ```text
//! magic | build | key | page bytes | tokens n | n tokens | xxh3 of all before
//! n / 16 pages | xxh3 of each page | xxh3 of these
//! ```
//!
//! Invariants: a file has its name only once it is whole and on the disk (written under another name, synced, renamed), so a kill at any moment leaves the
//! old files and at most a leftover that the next start removes; a page that is given out has the checksum it was written with; what cannot be read is
//! removed. Only what the store itself made is ever removed or written to: its names, its magic, no links. Numbers are little-endian; `build` changes with
//! the program, `key` with model and page layout.

mod file;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

pub(crate) use self::file::{Reader, Writer};
use crate::device::PAGE_TOKENS;

const EXTENSION: &str = "kv";
const LEFTOVER: &str = "part";
const LOCK: &str = "lock";
/// A file is marked as used at most this often.
const TOUCH: Duration = Duration::from_secs(60);

/// What pages must agree on to be exchanged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Key {
    /// The program that wrote them: another one may round differently.
    pub(crate) build: u64,
    /// Model, layout of a page.
    pub(crate) key: u64,
    pub(crate) page_bytes: usize,
}

impl Key {
    pub(crate) fn new(model: &str, page_layout: &str, page_bytes: usize) -> Key {
        let key = format!("{model}\0{page_layout}\0{page_bytes}\0{PAGE_TOKENS}");
        Key {
            build: build(),
            key: xxh3_64(key.as_bytes()),
            page_bytes,
        }
    }
}

/// Identifies this program: its version, and size and time of its file, which a rebuild changes.
fn build() -> u64 {
    let file = std::env::current_exe().and_then(fs::metadata);
    let stamp = file.and_then(|meta| Ok((meta.len(), meta.modified()?)));
    let text = format!("{}\0{:?}", env!("CARGO_PKG_VERSION"), stamp.ok());
    xxh3_64(text.as_bytes())
}

/// Hash of the first `i + 1` pages of `tokens`, for each whole page `i`.
fn chain(key: u64, tokens: &[u32]) -> impl Iterator<Item = u64> {
    let pages = tokens.chunks_exact(PAGE_TOKENS);
    pages.scan(key, |state, page| {
        *state = xxh3_64_with_seed(bytemuck::cast_slice(page), *state);
        Some(*state)
    })
}

/// Which prefixes are on disk. Kept by the store, and a copy of it by the engine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    key: u64,
    /// Chain hash → file that has these pages, and how many they are.
    pages: HashMap<u64, (PathBuf, usize)>,
}

impl Index {
    /// The file with the longest prefix of `tokens`, and how many whole pages that is.
    pub(crate) fn longest(&self, tokens: &[u32]) -> Option<(&Path, usize)> {
        // A file has all prefixes of what it has, so the first that nobody has is the end.
        let known = chain(self.key, tokens).map_while(|hash| self.pages.get(&hash));
        known.last().map(|(path, pages)| (path.as_path(), *pages))
    }

    fn add(&mut self, path: &Path, tokens: &[u32]) {
        for (index, hash) in chain(self.key, tokens).enumerate() {
            let entry = self.pages.entry(hash);
            entry.or_insert_with(|| (path.to_path_buf(), index + 1));
        }
    }

    fn remove(&mut self, path: &Path) {
        self.pages.retain(|_, (file, _)| file != path);
    }
}

#[derive(Debug)]
pub(crate) struct Store {
    dir: PathBuf,
    max_bytes: u64,
    key: Key,
    files: HashMap<PathBuf, Entry>,
    index: Index,
    /// Held as long as the store lives: one process at a time writes and removes here.
    _lock: File,
}

#[derive(Debug)]
struct Entry {
    bytes: u64,
    used: SystemTime,
    /// Of our own model; others are only counted.
    tokens: Option<Vec<u32>>,
}

impl Store {
    /// Looks through the directory, which is made if need be, and removes what nobody can read. Files of others are left alone, whatever their names.
    pub(crate) fn open(dir: &Path, max_bytes: u64, key: Key) -> io::Result<Store> {
        fs::create_dir_all(dir)?;
        let lock = file::open_lock(&dir.join(LOCK))?;
        lock.try_lock().map_err(|error| match error {
            fs::TryLockError::WouldBlock => io::Error::other("another process uses it"),
            fs::TryLockError::Error(error) => error,
        })?;
        let mut store = Store {
            dir: dir.to_path_buf(),
            max_bytes,
            key,
            files: HashMap::new(),
            index: Index {
                key: key.key,
                pages: HashMap::new(),
            },
            _lock: lock,
        };
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            match extension_of_ours(&path) {
                // Nothing says more of a file that was only begun than its name.
                Some(LEFTOVER) if is_plain(&path) => remove(&path),
                Some(EXTENSION) => store.take_up(&path),
                _ => {}
            }
        }
        store.rebuild_index();
        store.make_room(0);
        Ok(store)
    }

    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    /// Bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.values().map(|entry| entry.bytes).sum()
    }

    fn take_up(&mut self, path: &Path) {
        let header = file::Header::read(path);
        let entry = header.and_then(|header| {
            let meta = fs::symlink_metadata(path)?;
            if header.build != self.key.build {
                return Err(io::Error::other("written by another build"));
            }
            Ok(Entry {
                bytes: meta.len(),
                used: meta.modified()?,
                tokens: (header.key == self.key.key).then_some(header.tokens),
            })
        });
        match entry {
            Ok(entry) => {
                self.files.insert(path.to_path_buf(), entry);
            }
            Err(error) if file::is_ours(path) => {
                tracing::info!(path = %path.display(), %error, "removing a stored prefix");
                remove(path);
            }
            Err(error) => {
                tracing::info!(path = %path.display(), %error, "not a stored prefix: left alone");
            }
        }
    }

    fn rebuild_index(&mut self) {
        self.index.pages.clear();
        for (path, entry) in &self.files {
            if let Some(tokens) = &entry.tokens {
                self.index.add(path, tokens);
            }
        }
    }

    /// Starts a file for `tokens`, whole pages of them. `None` if it would be larger than all files may be together.
    pub(crate) fn writer(&mut self, tokens: &[u32]) -> io::Result<Option<Writer>> {
        let bytes = file::size(&self.key, tokens.len());
        if bytes > self.max_bytes {
            return Ok(None);
        }
        self.make_room(bytes);
        let hash = chain(self.key.key, tokens).last().unwrap_or(self.key.key);
        let path = self.dir.join(format!("{hash:016x}.{EXTENSION}"));
        let part = path.with_extension(LEFTOVER);
        Writer::create(part, path, self.key, tokens).map(Some)
    }

    /// Ends a file: from now on it is found.
    pub(crate) fn finish(&mut self, writer: Writer) -> io::Result<()> {
        let (path, tokens) = writer.finish()?;
        // The name is on the disk once its directory is; a file lost here would only be computed again.
        let _ = File::open(&self.dir).and_then(|dir| dir.sync_all());
        let entry = Entry {
            bytes: fs::metadata(&path)?.len(),
            used: SystemTime::now(),
            tokens: Some(tokens),
        };
        self.index.remove(&path);
        if let Some(tokens) = &entry.tokens {
            self.index.add(&path, tokens);
        }
        self.files.insert(path, entry);
        Ok(())
    }

    /// Opens the file with the longest prefix of `tokens`; its pages come from `first` on.
    pub(crate) fn reader(&mut self, tokens: &[u32], first: usize) -> Option<Reader> {
        let (path, pages) = self.index.longest(tokens)?;
        let path = path.to_path_buf();
        let wanted = &tokens[..pages * PAGE_TOKENS];
        match Reader::open(&path, self.key, wanted, first) {
            Ok(reader) => {
                self.touch(&path);
                Some(reader)
            }
            Err(error) => {
                self.discard(&path, &error);
                None
            }
        }
    }

    /// Removes a file that turned out to be broken.
    pub(crate) fn discard(&mut self, path: &Path, error: &io::Error) {
        tracing::warn!(path = %path.display(), %error, "removing a stored prefix that cannot be read");
        self.forget(path);
    }

    /// Marks the file of this prefix as used.
    pub(crate) fn touch(&mut self, path: &Path) {
        let now = SystemTime::now();
        let Some(entry) = self.files.get_mut(path) else {
            return;
        };
        if now.duration_since(entry.used).is_ok_and(|age| age < TOUCH) {
            return;
        }
        entry.used = now;
        // Only the order of removal hangs on it.
        let _ =
            file::open(path, File::options().append(true)).and_then(|file| file.set_modified(now));
    }

    /// Removes the least recently used files until `bytes` more fit.
    fn make_room(&mut self, bytes: u64) {
        while self.bytes() + bytes > self.max_bytes {
            let oldest = self.files.iter().min_by_key(|(_, entry)| entry.used);
            let Some(path) = oldest.map(|(path, _)| path.clone()) else {
                return;
            };
            self.forget(&path);
        }
    }

    fn forget(&mut self, path: &Path) {
        self.files.remove(path);
        // Somebody may have put another file in its place.
        if file::is_ours(path) {
            remove(path);
        }
        // Other files may have pages in common with it.
        self.rebuild_index();
    }
}

/// The extension, if the store gives such names to its files: sixteen hexadecimal digits and `kv` or `part`.
fn extension_of_ours(path: &Path) -> Option<&'static str> {
    let (stem, extension) = path.file_name()?.to_str()?.split_once('.')?;
    let is_hash = stem.len() == 16 && stem.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let extension = [EXTENSION, LEFTOVER].into_iter().find(|e| *e == extension);
    extension.filter(|_| is_hash)
}

/// A file and no link to one.
fn is_plain(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file())
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        tracing::warn!(path = %path.display(), %error, "cannot remove a stored prefix");
    }
}
