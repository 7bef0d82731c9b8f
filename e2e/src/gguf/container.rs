//! The GGUF container, version 3: header, metadata, tensor table, then the tensors, each at a multiple of 32 bytes.

use anyhow::{Context, Result};

const ALIGNMENT: usize = 32;
const F32: u32 = 0;

/// A metadata value, with the numbers the format gives to their types.
#[derive(Debug)]
pub(super) enum Value {
    U32(u32),
    F32(f32),
    Bool(bool),
    Text(String),
    I32s(Vec<i32>),
    Texts(Vec<String>),
}

impl Value {
    pub(super) fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    pub(super) fn count(count: usize) -> Result<Self> {
        Ok(Self::U32(
            u32::try_from(count).context("a count above 2^32")?,
        ))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::U32(number) => tagged(out, 4, &number.to_le_bytes()),
            Self::F32(number) => tagged(out, 6, &number.to_le_bytes()),
            Self::Bool(flag) => tagged(out, 7, &[u8::from(*flag)]),
            Self::Text(text) => {
                tagged(out, 8, &[]);
                string(out, text);
            }
            Self::I32s(numbers) => {
                array(out, 5, numbers.len());
                numbers
                    .iter()
                    .for_each(|number| out.extend(number.to_le_bytes()));
            }
            Self::Texts(texts) => {
                array(out, 8, texts.len());
                texts.iter().for_each(|text| string(out, text));
            }
        }
    }
}

/// A tensor of f32. `shape[0]` is the length of a row, as GGUF counts.
#[derive(Debug)]
pub(super) struct Tensor {
    name: String,
    shape: Vec<usize>,
    /// `values.len()` is the product of `shape`.
    values: Vec<f32>,
}

impl Tensor {
    pub(super) fn zero(name: &str, shape: &[usize]) -> Self {
        Self {
            name: name.to_owned(),
            shape: shape.to_vec(),
            values: vec![0.0; shape.iter().product()],
        }
    }

    pub(super) fn ones(name: &str, length: usize) -> Self {
        Self {
            name: name.to_owned(),
            shape: vec![length],
            values: vec![1.0; length],
        }
    }

    pub(super) fn set(&mut self, column: usize, row: usize, value: f32) {
        self.values[row * self.shape[0] + column] = value;
    }
}

#[derive(Debug, Default)]
pub(super) struct Container {
    metadata: Vec<(&'static str, Value)>,
    pub(super) tensors: Vec<Tensor>,
}

impl Container {
    pub(super) fn set(&mut self, key: &'static str, value: Value) {
        self.metadata.push((key, value));
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        let mut out = b"GGUF".to_vec();
        out.extend(3u32.to_le_bytes());
        length(&mut out, self.tensors.len());
        length(&mut out, self.metadata.len());
        for (key, value) in &self.metadata {
            string(&mut out, key);
            value.encode(&mut out);
        }
        let mut offset = 0;
        for tensor in &self.tensors {
            string(&mut out, &tensor.name);
            out.extend(u32::try_from(tensor.shape.len())?.to_le_bytes());
            tensor.shape.iter().for_each(|size| length(&mut out, *size));
            out.extend(F32.to_le_bytes());
            length(&mut out, offset);
            offset += (tensor.values.len() * size_of::<f32>()).next_multiple_of(ALIGNMENT);
        }
        pad(&mut out);
        for tensor in &self.tensors {
            tensor
                .values
                .iter()
                .for_each(|value| out.extend(value.to_le_bytes()));
            pad(&mut out);
        }
        Ok(out)
    }
}

fn tagged(out: &mut Vec<u8>, kind: u32, bytes: &[u8]) {
    out.extend(kind.to_le_bytes());
    out.extend(bytes);
}

fn array(out: &mut Vec<u8>, kind: u32, count: usize) {
    tagged(out, 9, &kind.to_le_bytes());
    length(out, count);
}

fn string(out: &mut Vec<u8>, text: &str) {
    length(out, text.len());
    out.extend(text.as_bytes());
}

fn length(out: &mut Vec<u8>, length: usize) {
    out.extend((length as u64).to_le_bytes());
}

fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
}
