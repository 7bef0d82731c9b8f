//! Writes GGUF version 3, well-formed or, field by field, not.

use std::{fs, io, path::Path};

use crate::model::weights::Format;

/// A metadata value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    U16(u16),
    U32(u32),
    U64(u64),
    I32(i32),
    F32(f32),
    Bool(bool),
    Text(String),
    F32s(Vec<f32>),
    I32s(Vec<i32>),
    Texts(Vec<String>),
    /// A type's number and whatever bytes should follow it.
    Raw(u32, Vec<u8>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<usize> for Value {
    /// # Panics
    /// Above 2³².
    fn from(count: usize) -> Value {
        assert!(u32::try_from(count).is_ok(), "{count} is no u32");
        Value::U32(count as u32)
    }
}

impl Value {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut tagged = |kind: u32, bytes: &[u8]| {
            out.extend(kind.to_le_bytes());
            out.extend(bytes);
        };
        match self {
            Value::U16(number) => tagged(2, &number.to_le_bytes()),
            Value::U32(number) => tagged(4, &number.to_le_bytes()),
            Value::I32(number) => tagged(5, &number.to_le_bytes()),
            Value::F32(number) => tagged(6, &number.to_le_bytes()),
            Value::Bool(flag) => tagged(7, &[u8::from(*flag)]),
            Value::U64(number) => tagged(10, &number.to_le_bytes()),
            Value::Raw(kind, bytes) => tagged(*kind, bytes),
            Value::Text(text) => {
                tagged(8, &[]);
                string(out, text);
            }
            Value::I32s(numbers) => {
                array(out, 5, numbers.len());
                out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
            }
            Value::F32s(numbers) => {
                array(out, 6, numbers.len());
                out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
            }
            Value::Texts(texts) => {
                array(out, 8, texts.len());
                texts.iter().for_each(|text| string(out, text));
            }
        }
    }
}

/// An entry of the tensor table and the bytes it stands for.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub name: String,
    /// Length of a row first, as GGUF counts.
    pub dims: Vec<u64>,
    /// [`Format::ggml_id`].
    pub kind: u32,
    pub bytes: Vec<u8>,
    /// Where the table says the tensor begins; where it really lies if `None`.
    pub offset: Option<u64>,
}

impl Tensor {
    pub fn new(name: &str, dims: &[usize], format: Format, bytes: Vec<u8>) -> Tensor {
        Tensor {
            name: name.to_owned(),
            dims: dims.iter().map(|dim| *dim as u64).collect(),
            kind: format.ggml_id(),
            bytes,
            offset: None,
        }
    }
}

/// A file being put together.
#[derive(Clone, Debug, PartialEq)]
pub struct Gguf {
    pub version: u32,
    pub metadata: Vec<(String, Value)>,
    pub tensors: Vec<Tensor>,
    /// As `general.alignment` says, 32 if it says nothing.
    pub alignment: usize,
}

impl Default for Gguf {
    fn default() -> Gguf {
        Gguf {
            version: 3,
            metadata: Vec::new(),
            tensors: Vec::new(),
            alignment: 32,
        }
    }
}

impl Gguf {
    /// Sets a key, in the place it had if it was there.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        let value = value.into();
        match self.metadata.iter_mut().find(|(known, _)| known == key) {
            Some((_, known)) => *known = value,
            None => self.metadata.push((key.to_owned(), value)),
        }
    }

    pub fn remove(&mut self, key: &str) {
        self.metadata.retain(|(known, _)| known != key);
    }

    /// # Panics
    /// If there is no such tensor.
    pub fn tensor(&mut self, name: &str) -> &mut Tensor {
        let index = self.tensors.iter().position(|tensor| tensor.name == name);
        assert!(index.is_some(), "no tensor {name}");
        &mut self.tensors[index.unwrap_or_default()]
    }

    /// Header, metadata and tensor table, padded to where the tensors begin.
    pub fn head(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        length(&mut out, self.tensors.len());
        length(&mut out, self.metadata.len());
        for (key, value) in &self.metadata {
            string(&mut out, key);
            value.encode(&mut out);
        }
        let mut offset = 0;
        for tensor in &self.tensors {
            string(&mut out, &tensor.name);
            out.extend((tensor.dims.len() as u32).to_le_bytes());
            for dim in &tensor.dims {
                out.extend(dim.to_le_bytes());
            }
            out.extend(tensor.kind.to_le_bytes());
            out.extend(tensor.offset.unwrap_or(offset).to_le_bytes());
            offset += tensor.bytes.len().next_multiple_of(self.alignment) as u64;
        }
        out.resize(out.len().next_multiple_of(self.alignment), 0);
        out
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.head();
        for tensor in &self.tensors {
            out.extend(&tensor.bytes);
            out.resize(out.len().next_multiple_of(self.alignment), 0);
        }
        out
    }

    pub fn write(&self, path: &Path) -> io::Result<()> {
        fs::write(path, self.encode())
    }

    /// Writes `NAME-0000i-of-0000n.gguf` with the tensors shared out, the metadata in the first file, and returns nothing but names them in order.
    pub fn write_split(
        &self,
        folder: &Path,
        name: &str,
        parts: usize,
    ) -> io::Result<Vec<std::path::PathBuf>> {
        let share = self.tensors.len().div_ceil(parts);
        let mut paths = Vec::new();
        for part in 0..parts {
            let from = (part * share).min(self.tensors.len());
            let to = (from + share).min(self.tensors.len());
            let mut file = Gguf {
                metadata: match part {
                    0 => self.metadata.clone(),
                    _ => Vec::new(),
                },
                tensors: self.tensors[from..to].to_vec(),
                ..*self
            };
            file.set("split.no", Value::U16(part as u16));
            file.set("split.count", Value::U16(parts as u16));
            file.set("split.tensors.count", Value::I32(self.tensors.len() as i32));
            let path = folder.join(format!("{name}-{:05}-of-{parts:05}.gguf", part + 1));
            file.write(&path)?;
            paths.push(path);
        }
        Ok(paths)
    }
}

fn array(out: &mut Vec<u8>, kind: u32, count: usize) {
    out.extend(9u32.to_le_bytes());
    out.extend(kind.to_le_bytes());
    length(out, count);
}

fn string(out: &mut Vec<u8>, text: &str) {
    length(out, text.len());
    out.extend(text.as_bytes());
}

fn length(out: &mut Vec<u8>, length: usize) {
    out.extend((length as u64).to_le_bytes());
}
