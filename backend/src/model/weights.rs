//! Weights as they lie in the file, named by what they do. Nothing is dequantised here: a [`Tensor`] is a view of mapped bytes.

use std::{fmt, ops::Range, sync::Arc};

use super::file::Mapped;

/// How the numbers of a tensor are stored. Block formats are those of ggml (`ggml-common.h`): a row is a whole number of blocks.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Format {
    F32,
    F16,
    Bf16,
    Q8_0,
    Q4_0,
    Q4_1,
    Q4K,
    Q5K,
    Q6K,
}

/// A matrix (or a vector, with `rows == 1`) in row-major order: `[rows, cols]`, `cols` is the dimension that is summed over.
#[derive(Clone)]
pub struct Tensor {
    pub name: String,
    pub format: Format,
    pub rows: usize,
    pub cols: usize,
    file: Arc<Mapped>,
    range: Range<usize>,
}

impl Tensor {
    /// `range` must be `rows` whole rows of `format` inside `file`.
    pub fn new(
        name: String,
        format: Format,
        rows: usize,
        cols: usize,
        file: Arc<Mapped>,
        range: Range<usize>,
    ) -> Tensor {
        debug_assert_eq!(range.len(), rows * format.row_bytes(cols));
        Tensor {
            name,
            format,
            rows,
            cols,
            file,
            range,
        }
    }

    /// Are these the same bytes of the same file?
    pub fn is_same(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.file, &other.file) && self.range == other.range
    }

    /// All bytes, `rows * format.row_bytes(cols)`.
    pub fn bytes(&self) -> &[u8] {
        &self.file[self.range.clone()]
    }

    /// See [`Mapped::release`]: for when the tensor has been repacked.
    pub fn release(&self) {
        self.file.release(self.range.clone());
    }

    pub fn row(&self, row: usize) -> &[u8] {
        let bytes = self.format.row_bytes(self.cols);
        &self.bytes()[row * bytes..(row + 1) * bytes]
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} [{}, {}] {:?}",
            self.name, self.rows, self.cols, self.format
        )
    }
}

impl Format {
    pub const ALL: [Format; 9] = [
        Format::F32,
        Format::F16,
        Format::Bf16,
        Format::Q8_0,
        Format::Q4_0,
        Format::Q4_1,
        Format::Q4K,
        Format::Q5K,
        Format::Q6K,
    ];

    /// The number GGUF gives to the format (`enum ggml_type`).
    pub fn ggml_id(self) -> u32 {
        match self {
            Format::F32 => 0,
            Format::F16 => 1,
            Format::Q4_0 => 2,
            Format::Q4_1 => 3,
            Format::Q8_0 => 8,
            Format::Q4K => 12,
            Format::Q5K => 13,
            Format::Q6K => 14,
            Format::Bf16 => 30,
        }
    }

    /// All names, for messages.
    pub(crate) fn list() -> String {
        Format::ALL.map(Format::name).join(", ")
    }

    pub fn from_ggml_id(id: u32) -> Option<Format> {
        Format::ALL
            .into_iter()
            .find(|format| format.ggml_id() == id)
    }

    /// As ggml writes it: `Q4_1`, `Q6_K`.
    pub fn name(self) -> &'static str {
        match self {
            Format::F32 => "F32",
            Format::F16 => "F16",
            Format::Bf16 => "BF16",
            Format::Q8_0 => "Q8_0",
            Format::Q4_0 => "Q4_0",
            Format::Q4_1 => "Q4_1",
            Format::Q4K => "Q4_K",
            Format::Q5K => "Q5_K",
            Format::Q6K => "Q6_K",
        }
    }

    /// Numbers in a block; 1 for the plain formats.
    pub fn block_len(self) -> usize {
        match self {
            Format::F32 | Format::F16 | Format::Bf16 => 1,
            Format::Q8_0 | Format::Q4_0 | Format::Q4_1 => 32,
            Format::Q4K | Format::Q5K | Format::Q6K => 256,
        }
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        match self {
            Format::F32 => 4,
            Format::F16 | Format::Bf16 => 2,
            Format::Q8_0 => 34,
            Format::Q4_0 => 18,
            Format::Q4_1 => 20,
            Format::Q4K => 144,
            Format::Q5K => 176,
            Format::Q6K => 210,
        }
    }

    /// Bytes of a row of `cols` numbers; `cols` is a multiple of [`Format::block_len`].
    pub fn row_bytes(self, cols: usize) -> usize {
        cols / self.block_len() * self.block_bytes()
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// All tensors of a Llama model. Shapes are `[rows, cols]`, in the terms of [`super::config::LlamaConfig`]; `q = heads * head_dim`, `kv = kv_heads * head_dim`.
#[derive(Clone, Debug)]
pub struct Weights {
    /// `[vocab, hidden]`
    pub embedding: Tensor,
    pub layers: Vec<Layer>,
    /// `[1, hidden]`; norms are F32, F16 or BF16
    pub final_norm: Tensor,
    /// `[vocab, hidden]`; the same bytes as `embedding` when tied.
    pub output: Tensor,
}

#[derive(Clone, Debug)]
pub struct Layer {
    /// `[1, hidden]`
    pub attention_norm: Tensor,
    /// `[q, hidden]`
    pub q: Tensor,
    /// `[kv, hidden]`
    pub k: Tensor,
    /// `[kv, hidden]`
    pub v: Tensor,
    /// `[hidden, q]`
    pub attention_output: Tensor,
    /// `[1, hidden]`
    pub ffn_norm: Tensor,
    /// `[ffn, hidden]`
    pub gate: Tensor,
    /// `[ffn, hidden]`
    pub up: Tensor,
    /// `[hidden, ffn]`
    pub down: Tensor,
}

impl Weights {
    /// Every tensor once: `output` is left out where it is the embedding.
    pub fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        let tied = self.output.is_same(&self.embedding);
        let output = (!tied).then_some(&self.output);
        [&self.embedding, &self.final_norm]
            .into_iter()
            .chain(output)
            .chain(self.layers.iter().flat_map(Layer::tensors))
    }

    /// Numbers in all tensors.
    pub fn parameters(&self) -> u64 {
        self.tensors()
            .map(|tensor| tensor.rows as u64 * tensor.cols as u64)
            .sum()
    }

    /// Bytes of all tensors.
    pub fn bytes(&self) -> u64 {
        self.tensors()
            .map(|tensor| tensor.bytes().len() as u64)
            .sum()
    }

    /// Formats that occur, with tensors and bytes, most bytes first.
    pub fn formats(&self) -> Vec<(Format, usize, u64)> {
        let mut formats: Vec<_> = Format::ALL
            .into_iter()
            .map(|format| {
                self.tensors()
                    .filter(|tensor| tensor.format == format)
                    .fold((format, 0, 0), |(format, count, bytes), tensor| {
                        (format, count + 1, bytes + tensor.bytes().len() as u64)
                    })
            })
            .filter(|(_, count, _)| *count > 0)
            .collect();
        formats.sort_by_key(|(_, _, bytes)| std::cmp::Reverse(*bytes));
        formats
    }

    /// The format with most bytes.
    pub fn main_format(&self) -> Format {
        self.formats()
            .first()
            .map_or(self.embedding.format, |(format, _, _)| *format)
    }
}

impl Layer {
    pub fn tensors(&self) -> [&Tensor; 9] {
        [
            &self.attention_norm,
            &self.q,
            &self.k,
            &self.v,
            &self.attention_output,
            &self.ffn_norm,
            &self.gate,
            &self.up,
            &self.down,
        ]
    }
}
