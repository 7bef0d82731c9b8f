//! One file of the store: its header, its pages, their checksums.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use xxhash_rust::xxh3::xxh3_64;

use super::Key;
use crate::device::PAGE_TOKENS;

/// The last byte is the version of the format.
const MAGIC: &[u8; 8] = b"cbkv\0\0\0\x01";
/// Magic, build, key, page bytes, tokens.
const FIXED: usize = 8 + 8 + 8 + 4 + 4;
/// More tokens than any context holds: a header that says so is broken.
const MOST_TOKENS: u32 = 1 << 24;

fn pages_at(tokens: usize) -> u64 {
    (FIXED + 4 * tokens + 8) as u64
}

/// Bytes of a file of `tokens` tokens.
pub(super) fn size(key: &Key, tokens: usize) -> u64 {
    let pages = (tokens / PAGE_TOKENS) as u64;
    pages_at(tokens) + pages * (key.page_bytes as u64 + 8) + 8
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Opens a plain file. A link is not followed, and a pipe does not keep us waiting for its other end.
pub(super) fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = options
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(broken("not a plain file")),
    }
}

/// Opens the file that is locked, and makes it where there is none. What is in it stays.
pub(super) fn open_lock(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    open(path, &mut options).map_err(|error| {
        let name = path.display();
        io::Error::new(error.kind(), format!("{name} cannot be the lock: {error}"))
    })
}

/// Did the store make this file, in whatever version and state?
pub(super) fn is_ours(path: &Path) -> bool {
    const FORMAT: usize = MAGIC.len() - 1;
    let mut start = [0; FORMAT];
    open(path, File::options().read(true))
        .is_ok_and(|mut file| file.read_exact(&mut start).is_ok() && start == MAGIC[..FORMAT])
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Header {
    pub(super) build: u64,
    pub(super) key: u64,
    pub(super) page_bytes: u32,
    pub(super) tokens: Vec<u32>,
}

impl Header {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.build.to_le_bytes());
        bytes.extend(self.key.to_le_bytes());
        bytes.extend(self.page_bytes.to_le_bytes());
        bytes.extend((self.tokens.len() as u32).to_le_bytes());
        bytes.extend(self.tokens.iter().flat_map(|token| token.to_le_bytes()));
        let sum = xxh3_64(&bytes);
        bytes.extend(sum.to_le_bytes());
        bytes
    }

    /// Reads and checks the header, and that the file is as long as it says.
    pub(super) fn read(path: &Path) -> io::Result<Header> {
        Header::read_from(&open(path, File::options().read(true))?)
    }

    fn read_from(file: &File) -> io::Result<Header> {
        let mut reader = BufReader::new(file);
        let mut bytes = vec![0; FIXED];
        reader.read_exact(&mut bytes)?;
        if !bytes.starts_with(MAGIC) {
            return Err(broken("not a stored prefix of this format"));
        }
        let count = le_u32(&bytes[28..]);
        if count > MOST_TOKENS || !(count as usize).is_multiple_of(PAGE_TOKENS) {
            return Err(broken("a number of tokens that cannot be"));
        }
        let count = count as usize;
        let key = Key {
            build: le_u64(&bytes[8..]),
            key: le_u64(&bytes[16..]),
            page_bytes: le_u32(&bytes[24..]) as usize,
        };
        // Before any memory is asked for.
        if file.metadata()?.len() != size(&key, count) {
            return Err(broken("the file is not as long as its header says"));
        }
        bytes.resize(FIXED + 4 * count + 8, 0);
        reader.read_exact(&mut bytes[FIXED..])?;
        let (hashed, sum) = bytes.split_at(FIXED + 4 * count);
        if xxh3_64(hashed) != le_u64(sum) {
            return Err(broken("the header's checksum is wrong"));
        }
        Ok(Header {
            build: key.build,
            key: key.key,
            page_bytes: le_u32(&bytes[24..]),
            tokens: hashed[FIXED..].chunks_exact(4).map(le_u32).collect(),
        })
    }
}

fn le_u32(bytes: &[u8]) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[..4]);
    u32::from_le_bytes(word)
}

fn le_u64(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[..8]);
    u64::from_le_bytes(word)
}

/// A file in the making. Dropped before its end it leaves nothing.
#[derive(Debug)]
pub(crate) struct Writer {
    part: PathBuf,
    path: PathBuf,
    tokens: Vec<u32>,
    page_bytes: usize,
    sums: Vec<u8>,
    out: BufWriter<File>,
    is_whole: bool,
}

impl Writer {
    pub(super) fn create(
        part: PathBuf,
        path: PathBuf,
        key: Key,
        tokens: &[u32],
    ) -> io::Result<Writer> {
        let header = Header {
            build: key.build,
            key: key.key,
            page_bytes: key.page_bytes as u32,
            tokens: tokens.to_vec(),
        };
        // What is there already is not ours: a leftover went at the start.
        let out = BufWriter::with_capacity(1 << 20, File::create_new(&part)?);
        let mut writer = Writer {
            part,
            path,
            page_bytes: key.page_bytes,
            sums: Vec::new(),
            out,
            is_whole: false,
            tokens: header.tokens.clone(),
        };
        writer.out.write_all(&header.encode())?;
        Ok(writer)
    }

    /// Pages that the file still lacks.
    pub(crate) fn missing(&self) -> usize {
        self.tokens.len() / PAGE_TOKENS - self.sums.len() / 8
    }

    /// Appends the next page.
    pub(crate) fn page(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() != self.page_bytes || self.missing() == 0 {
            return Err(broken("a page that does not belong here"));
        }
        self.sums.extend(xxh3_64(bytes).to_le_bytes());
        self.out.write_all(bytes)
    }

    pub(super) fn finish(mut self) -> io::Result<(PathBuf, Vec<u32>)> {
        if self.missing() > 0 {
            return Err(broken("pages are missing"));
        }
        self.out.write_all(&self.sums)?;
        self.out.write_all(&xxh3_64(&self.sums).to_le_bytes())?;
        self.out.flush()?;
        self.out.get_ref().sync_all()?;
        fs::rename(&self.part, &self.path)?;
        self.is_whole = true;
        Ok((self.path.clone(), std::mem::take(&mut self.tokens)))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.is_whole {
            let _ = fs::remove_file(&self.part);
        }
    }
}

/// The pages of a file, one after the other, each checked before it is given out.
#[derive(Debug)]
pub(crate) struct Reader {
    path: PathBuf,
    file: File,
    page_bytes: usize,
    /// Checksums of the pages still to come, last first.
    sums: Vec<u64>,
}

impl Reader {
    pub(super) fn open(path: &Path, key: Key, tokens: &[u32], first: usize) -> io::Result<Reader> {
        let mut file = open(path, File::options().read(true))?;
        let header = Header::read_from(&file)?;
        if header.build != key.build
            || header.key != key.key
            || header.page_bytes as usize != key.page_bytes
            || !header.tokens.starts_with(tokens)
        {
            return Err(broken("it holds something else than it did"));
        }
        let all = header.tokens.len() / PAGE_TOKENS;
        let start = pages_at(header.tokens.len());
        file.seek(SeekFrom::Start(start + (all * key.page_bytes) as u64))?;
        let mut bytes = vec![0; 8 * all + 8];
        file.read_exact(&mut bytes)?;
        let (sums, sum) = bytes.split_at(8 * all);
        if xxh3_64(sums) != le_u64(sum) {
            return Err(broken("the checksum of the checksums is wrong"));
        }
        let first = first.min(all);
        file.seek(SeekFrom::Start(start + (first * key.page_bytes) as u64))?;
        let wanted = tokens.len() / PAGE_TOKENS;
        let sums = sums.chunks_exact(8).map(le_u64);
        let mut sums: Vec<u64> = sums.take(wanted).skip(first).collect();
        sums.reverse();
        Ok(Reader {
            path: path.to_path_buf(),
            file,
            page_bytes: key.page_bytes,
            sums,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The next page; `None` after the last.
    pub(crate) fn page(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some(sum) = self.sums.pop() else {
            return Ok(None);
        };
        let mut bytes = vec![0; self.page_bytes];
        self.file.read_exact(&mut bytes)?;
        if xxh3_64(&bytes) != sum {
            return Err(broken("a page's checksum is wrong"));
        }
        Ok(Some(bytes))
    }
}
