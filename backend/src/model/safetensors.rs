//! The container of Hugging Face's weights. Only its header is read here, and checked against the bytes that are there.
//!
//! ```text
//! length u64 | header: length bytes of JSON | tensor data
//! header: {"__metadata__": {…}, NAME: {"dtype": "BF16", "shape": [rows, cols], "data_offsets": [begin, end]}, …}
//! ```
//!
//! Offsets count from the end of the header; the tensors fill the data without gap or overlap. Data may lie at any address: tensors are not aligned.

use std::{collections::HashSet, fmt, ops::Range};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};

use super::{error::Fault, weights::Format};

/// Headers of all shards of a model together. The largest known models have some thousand tensors, 150 bytes each.
pub(super) const MOST_HEADER_BYTES: usize = 8 << 20;
const MOST_DIMS: usize = 4;

#[derive(Debug)]
pub(super) struct Header {
    pub(super) tensors: Vec<Entry>,
    /// Where the header ends.
    pub(super) end: usize,
}

/// A tensor that lies in the file, whole.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) format: Format,
    /// 1 to 4 lengths of at least 1, slowest first.
    pub(super) dims: Vec<usize>,
    pub(super) range: Range<usize>,
}

impl Header {
    /// `most`: bytes that the header may take.
    pub(super) fn parse(file: &[u8], most: usize) -> Result<Header, Fault> {
        let field = "header";
        let announced = file
            .first_chunk::<8>()
            .map(|bytes| u64::from_le_bytes(*bytes))
            .ok_or_else(|| {
                Fault::new(
                    field,
                    format_args!("a file of {} bytes", file.len()),
                    "safetensors files, which begin with the header's length",
                )
            })?;
        let left = file.len() as u64 - 8;
        if announced > left.min(most as u64) {
            return Err(Fault::new(
                field,
                format_args!("a header of {announced} bytes, and {left} bytes in the file"),
                format_args!(
                    "complete safetensors files with at most {MOST_HEADER_BYTES} bytes of headers"
                ),
            ));
        }
        let end = 8 + announced as usize;
        let rows: Rows = serde_json::from_slice(&file[8..end])
            .map_err(|error| Fault::new(field, error, "the JSON header of safetensors"))?;
        let length = file.len() - end;
        let mut tensors = rows
            .0
            .into_iter()
            .map(|(name, row)| row.place(name, end, length))
            .collect::<Result<Vec<_>, _>>()?;
        side_by_side(&mut tensors, end, file.len())?;
        Ok(Header { tensors, end })
    }
}

/// Every name once, in the order of the tensors' places, which fill the data.
fn side_by_side(tensors: &mut [Entry], start: usize, end: usize) -> Result<(), Fault> {
    tensors.sort_by_key(|tensor| tensor.range.start);
    let mut names = HashSet::with_capacity(tensors.len());
    let mut at = start;
    for tensor in &*tensors {
        if !names.insert(tensor.name.as_str()) {
            return Err(Fault::new(
                &tensor.name,
                "this tensor twice",
                "every tensor once",
            ));
        }
        if tensor.range.start != at {
            return Err(Fault::new(
                format_args!("data_offsets of {}", tensor.name),
                format_args!("{} where {} is due", tensor.range.start - start, at - start),
                "tensors side by side, without gap or overlap",
            ));
        }
        at = tensor.range.end;
    }
    if at == end {
        return Ok(());
    }
    Err(Fault::new(
        "tensor data",
        format_args!("{} bytes after the last tensor", end - at),
        "files that the tensors fill",
    ))
}

/// The header's members in order, so that a name that comes twice is seen.
#[derive(Debug)]
struct Rows(Vec<(String, Row)>);

#[derive(Debug, Deserialize)]
struct Row {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

impl<'de> Deserialize<'de> for Rows {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Rows, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Rows;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Rows, A::Error> {
                let mut rows = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<IgnoredAny>()?;
                    } else {
                        rows.push((name, map.next_value()?));
                    }
                }
                Ok(Rows(rows))
            }
        }

        deserializer.deserialize_map(Members)
    }
}

impl Row {
    /// Finds the tensor in a file whose data begins at `start` and is `length` bytes long.
    fn place(self, name: String, start: usize, length: usize) -> Result<Entry, Fault> {
        let format = match self.dtype.as_str() {
            "F32" => Format::F32,
            "F16" => Format::F16,
            "BF16" => Format::Bf16,
            other => {
                return Err(Fault::new(
                    format_args!("dtype of {name}"),
                    other,
                    "F32, F16, BF16",
                ));
            }
        };
        if !(1..=MOST_DIMS).contains(&self.shape.len()) || self.shape.contains(&0) {
            return Err(Fault::new(
                format_args!("shape of {name}"),
                format_args!("{:?}", &self.shape[..self.shape.len().min(8)]),
                format_args!("1 to {MOST_DIMS} lengths of at least 1"),
            ));
        }
        let bytes = self
            .shape
            .iter()
            .try_fold(format.block_bytes() as u64, |product, length| {
                product.checked_mul(*length)
            });
        let [from, to] = self.data_offsets;
        if from > to || to > length as u64 || Some(to - from) != bytes {
            return Err(Fault::new(
                format_args!("data_offsets of {name}"),
                format_args!(
                    "[{from}, {to}] for {:?} of {format}, in {length} bytes of data",
                    self.shape
                ),
                "offsets inside the file that match the shape: is it complete?",
            ));
        }
        Ok(Entry {
            name,
            format,
            // Each is at most the file's length.
            dims: self.shape.iter().map(|length| *length as usize).collect(),
            range: start + from as usize..start + to as usize,
        })
    }
}
