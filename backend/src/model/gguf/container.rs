//! The container: header, metadata and tensor table of one file. Every number in it is checked against the bytes that are really there.
//!
//! ```text
//! "GGUF" | version u32 | tensors u64 | keys u64 | keys × (string, type u32, value) | tensors × (string, dims u32, dims × u64, type u32, offset u64)
//! | padding to general.alignment | tensor data, each at its offset, a multiple of the alignment
//! ```
//!
//! Work and memory are bounded before they are spent: metadata and tables take at most [`MOST_HEAD_BYTES`], counts are limited, arrays are views.

use std::{collections::HashSet, ops::Range};

use super::{cursor::Cursor, metadata::Metadata, value::Value};
use crate::model::{error::Fault, weights::Format};

/// Metadata and tensor tables of all parts of a model together. The largest vocabularies, merges included, take some 20 MiB.
pub(super) const MOST_HEAD_BYTES: usize = 256 << 20;
const MOST_KEYS: u64 = 65_536;
/// Llama 3.1 405B has 1138.
const MOST_TENSORS: u64 = 65_536;
const MOST_DIMS: u32 = 4;
const MOST_ALIGNMENT: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct Container<'a> {
    pub(super) metadata: Metadata<'a>,
    pub(super) tensors: Vec<Entry<'a>>,
    /// Where the tensor table ends: what comes before names the model.
    pub(super) head: usize,
}

/// A tensor that lies in the file, whole, and overlaps no other.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    pub(super) name: &'a str,
    pub(super) format: Format,
    /// 1 to 4 lengths of at least 1, slowest first: the reverse of how GGUF writes them.
    pub(super) dims: Vec<usize>,
    pub(super) range: Range<usize>,
}

impl<'a> Container<'a> {
    /// `most`: bytes that the head may take.
    pub(super) fn parse(file: &'a [u8], most: usize) -> Result<Container<'a>, Fault> {
        let mut cursor = Cursor::new(&file[..file.len().min(most)]);
        let magic = cursor.take(4, "header")?;
        if magic != b"GGUF" {
            return Err(Fault::new(
                "header",
                format_args!("\"{}\"", magic.escape_ascii()),
                "\"GGUF\" at the beginning",
            ));
        }
        let version = cursor.u32("version")?;
        if ![2, 3].contains(&version) {
            let swapped = [2, 3].contains(&version.swap_bytes());
            let found = if swapped {
                "a big-endian file".to_owned()
            } else {
                version.to_string()
            };
            return Err(Fault::new("version", found, "2 and 3, little-endian"));
        }
        let tensors = count(&mut cursor, "number of tensors", MOST_TENSORS)?;
        let keys = count(&mut cursor, "number of metadata keys", MOST_KEYS)?;
        let metadata = metadata(&mut cursor, keys)?;
        let alignment = alignment(&metadata)?;
        let table = (0..tensors)
            .map(|index| Row::read(&mut cursor, index))
            .collect::<Result<Vec<_>, _>>()?;
        let head = cursor.at();
        let start = (head as u64).next_multiple_of(alignment);
        let tensors = table
            .into_iter()
            .map(|row| row.place(start, alignment, file.len()))
            .collect::<Result<Vec<_>, _>>()?;
        apart(&tensors)?;
        Ok(Container {
            metadata,
            tensors,
            head,
        })
    }
}

fn count(cursor: &mut Cursor<'_>, field: &str, most: u64) -> Result<u64, Fault> {
    let count = cursor.u64(field)?;
    if count > most {
        return Err(Fault::new(field, count, format_args!("at most {most}")));
    }
    Ok(count)
}

fn metadata<'a>(cursor: &mut Cursor<'a>, keys: u64) -> Result<Metadata<'a>, Fault> {
    let mut metadata = Metadata::default();
    for index in 0..keys {
        let field = format!("metadata key {index}");
        let key = text(cursor.string(&field)?, &field)?;
        let value = Value::read(cursor, key)?;
        if !metadata.insert(key, value) {
            return Err(Fault::new(key, "this key twice", "every key once"));
        }
    }
    Ok(metadata)
}

fn text<'a>(bytes: &'a [u8], field: &str) -> Result<&'a str, Fault> {
    std::str::from_utf8(bytes).map_err(|error| Fault::new(field, error, "UTF-8"))
}

fn alignment(metadata: &Metadata<'_>) -> Result<u64, Fault> {
    let key = "general.alignment";
    let alignment = metadata.count(key)?.unwrap_or(32) as u64;
    if alignment.is_power_of_two() && (8..=MOST_ALIGNMENT).contains(&alignment) {
        return Ok(alignment);
    }
    Err(Fault::new(
        key,
        alignment,
        format_args!("powers of two from 8 to {MOST_ALIGNMENT}"),
    ))
}

/// A row of the tensor table, as it stands there.
#[derive(Debug)]
struct Row<'a> {
    name: &'a str,
    /// Fastest first.
    dims: [u64; MOST_DIMS as usize],
    used: usize,
    kind: u32,
    offset: u64,
}

impl<'a> Row<'a> {
    fn read(cursor: &mut Cursor<'a>, index: u64) -> Result<Row<'a>, Fault> {
        let field = format!("tensor {index}");
        let name = text(cursor.string(&field)?, &field)?;
        let used = cursor.u32(name)?;
        if !(1..=MOST_DIMS).contains(&used) {
            return Err(Fault::new(
                name,
                format_args!("{used} dimensions"),
                format_args!("1 to {MOST_DIMS}"),
            ));
        }
        let mut dims = [1; MOST_DIMS as usize];
        for dim in &mut dims[..used as usize] {
            *dim = cursor.u64(name)?;
        }
        Ok(Row {
            name,
            dims,
            used: used as usize,
            kind: cursor.u32(name)?,
            offset: cursor.u64(name)?,
        })
    }

    /// Finds the tensor's bytes in a file of `length` bytes whose tensor data begins at `start`.
    fn place(self, start: u64, alignment: u64, length: usize) -> Result<Entry<'a>, Fault> {
        let name = self.name;
        let format = Format::from_ggml_id(self.kind).ok_or_else(|| {
            Fault::new(
                format_args!("type of {name}"),
                type_name(self.kind),
                Format::list(),
            )
        })?;
        let used = &self.dims[..self.used];
        let shape = || format!("{used:?} of {format}");
        if self.dims.contains(&0) || !self.dims[0].is_multiple_of(format.block_len() as u64) {
            return Err(Fault::new(
                format_args!("shape of {name}"),
                shape(),
                format_args!(
                    "lengths of at least 1, rows of whole blocks of {}",
                    format.block_len()
                ),
            ));
        }
        let bytes = used[1..]
            .iter()
            .try_fold(self.dims[0], |product, dim| product.checked_mul(*dim))
            .map(|numbers| numbers / format.block_len() as u64)
            .and_then(|blocks| blocks.checked_mul(format.block_bytes() as u64));
        let range = bytes.and_then(|bytes| {
            let from = start.checked_add(self.offset)?;
            let to = from.checked_add(bytes)?;
            (to <= length as u64).then_some(from as usize..to as usize)
        });
        let Some(range) = range else {
            return Err(Fault::new(
                format_args!("place of {name}"),
                format_args!(
                    "{} at offset {} of the tensor data, in a file of {length} bytes",
                    shape(),
                    self.offset
                ),
                "tensors that lie inside the file: is it complete?",
            ));
        };
        if !self.offset.is_multiple_of(alignment) {
            return Err(Fault::new(
                format_args!("offset of {name}"),
                self.offset,
                format_args!("multiples of the alignment, {alignment}"),
            ));
        }
        Ok(Entry {
            name,
            format,
            // Each is at most the file's length.
            dims: used.iter().rev().map(|dim| *dim as usize).collect(),
            range,
        })
    }
}

/// Every name once, and no byte in two tensors.
fn apart(tensors: &[Entry<'_>]) -> Result<(), Fault> {
    let mut names = HashSet::with_capacity(tensors.len());
    for tensor in tensors {
        if !names.insert(tensor.name) {
            return Err(Fault::new(
                tensor.name,
                "this tensor twice",
                "every tensor once",
            ));
        }
    }
    let mut order: Vec<&Entry<'_>> = tensors.iter().collect();
    order.sort_by_key(|tensor| tensor.range.start);
    for pair in order.windows(2) {
        if pair[0].range.end > pair[1].range.start {
            return Err(Fault::new(
                format_args!("place of {}", pair[1].name),
                format_args!("bytes of {} in it", pair[0].name),
                "tensors that do not overlap",
            ));
        }
    }
    Ok(())
}

/// Names of formats people will try, so that the message says more than a number.
fn type_name(kind: u32) -> String {
    let name = match kind {
        6 => "Q5_0",
        7 => "Q5_1",
        9 => "Q8_1",
        10 => "Q2_K",
        11 => "Q3_K",
        15 => "Q8_K",
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        20 => "IQ4_NL",
        21 => "IQ3_S",
        22 => "IQ2_S",
        23 => "IQ4_XS",
        24..=28 => "an integer or F64",
        29 => "IQ1_M",
        34 => "TQ1_0",
        35 => "TQ2_0",
        39 => "MXFP4",
        _ => return format!("type {kind}"),
    };
    format!("{name} (type {kind})")
}
