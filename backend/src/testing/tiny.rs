//! A small Llama with random weights.

use std::{io, path::Path};

use xxhash_rust::xxh3::xxh3_64;

use super::{
    Random, Vocabulary,
    gguf::{Gguf, Tensor, Value},
    huggingface,
    quantize::quantize_row,
};
use crate::model::{
    names::{self, Name, Naming},
    weights::Format,
};

/// Shape and manner of a tiny model. The weights depend on `seed` and shapes only, so that models that differ in format, container or scaling can be
/// compared.
#[derive(Clone, Debug, PartialEq)]
pub struct TinyLlama {
    pub layers: usize,
    pub hidden: usize,
    pub ffn: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// At least this many tokens; the vocabulary of [`Vocabulary::english`] has 275, the rest are reserved control tokens.
    pub vocab: usize,
    pub context: usize,
    pub tied: bool,
    pub rope_base: f32,
    pub rope: TinyRope,
    pub norm_eps: f32,
    /// Of the matrices in the layers; norms are F32 in GGUF.
    pub format: Format,
    /// Of embedding and output.
    pub embedding_format: Format,
    pub chat_template: Option<String>,
    pub seed: u64,
}

/// Scaling of rotary positions.
#[derive(Clone, Debug, PartialEq)]
pub enum TinyRope {
    Plain,
    Linear(f32),
    Llama3 {
        factor: f32,
        low: f32,
        high: f32,
        original: usize,
    },
}

impl Default for TinyLlama {
    fn default() -> TinyLlama {
        TinyLlama {
            layers: 2,
            hidden: 64,
            ffn: 128,
            heads: 4,
            kv_heads: 2,
            head_dim: 16,
            vocab: 0,
            context: 512,
            tied: false,
            rope_base: 10_000.0,
            rope: TinyRope::Plain,
            norm_eps: 1e-5,
            format: Format::F32,
            embedding_format: Format::F32,
            chat_template: None,
            seed: 1,
        }
    }
}

/// A matrix of the model before it is quantised, `[rows, cols]` row-major, `rows == 1` for norms. Rows of Q and K are in Hugging Face's order
/// (`i` turns with `i + head_dim / 2`); [`TinyLlama::gguf`] permutes them.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    pub rows: usize,
    pub cols: usize,
    pub values: Vec<f32>,
    pub(super) name: Name,
    pub(super) layer: Option<usize>,
}

impl Matrix {
    /// `blk.0.attn_q.weight`
    pub fn gguf_name(&self) -> String {
        self.named(Naming::Gguf)
    }

    /// `model.layers.0.self_attn.q_proj.weight`
    pub fn hf_name(&self) -> String {
        self.named(Naming::HuggingFace)
    }

    fn named(&self, naming: Naming) -> String {
        match self.layer {
            Some(layer) => naming.layer(layer, self.name),
            None => naming.global(self.name),
        }
    }

    /// Lengths, longest way first in GGUF's order: a row's length first.
    fn dims(&self) -> Vec<usize> {
        if self.rows == 1 {
            vec![self.cols]
        } else {
            vec![self.cols, self.rows]
        }
    }

    fn is_in_layer(&self) -> bool {
        self.layer.is_some()
    }
}

impl TinyLlama {
    pub fn vocabulary(&self) -> Vocabulary {
        let mut vocabulary = Vocabulary::english();
        vocabulary.pad(self.vocab);
        vocabulary
    }

    /// All weights, in f32.
    pub fn matrices(&self) -> Vec<Matrix> {
        let (d, ffn) = (self.hidden, self.ffn);
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let vocab = self.vocabulary().tokens.len();
        let mut all = vec![
            self.matrix(None, names::EMBEDDING, vocab, d, 1.7),
            self.norm(None, names::FINAL_NORM),
        ];
        if !self.tied {
            let scale = 3.0 * (3.0 / d as f32).sqrt();
            all.push(self.matrix(None, names::OUTPUT, vocab, d, scale));
        }
        for layer in 0..self.layers {
            all.push(self.norm(Some(layer), names::ATTENTION_NORM));
            all.push(self.norm(Some(layer), names::FFN_NORM));
            for (name, rows, cols) in [
                (names::Q, q, d),
                (names::K, kv, d),
                (names::V, kv, d),
                (names::ATTENTION_OUTPUT, d, q),
                (names::GATE, ffn, d),
                (names::UP, ffn, d),
                (names::DOWN, d, ffn),
            ] {
                let scale = (3.0 / cols as f32).sqrt();
                all.push(self.matrix(Some(layer), name, rows, cols, scale));
            }
        }
        all
    }

    fn matrix(
        &self,
        layer: Option<usize>,
        name: Name,
        rows: usize,
        cols: usize,
        scale: f32,
    ) -> Matrix {
        let mut matrix = Matrix {
            rows,
            cols,
            values: Vec::new(),
            name,
            layer,
        };
        let mut random = Random(self.seed ^ xxh3_64(matrix.gguf_name().as_bytes()));
        matrix.values = (0..rows * cols).map(|_| random.uniform() * scale).collect();
        matrix
    }

    fn norm(&self, layer: Option<usize>, name: Name) -> Matrix {
        let mut norm = self.matrix(layer, name, 1, self.hidden, 0.3);
        norm.values.iter_mut().for_each(|value| *value += 1.0);
        norm
    }

    /// What the rotary frequencies are divided by, `[head_dim / 2]`, for [`TinyRope::Llama3`].
    fn rope_factors(&self) -> Option<Vec<f32>> {
        let TinyRope::Llama3 {
            factor,
            low,
            high,
            original,
        } = self.rope
        else {
            return None;
        };
        let dim = self.head_dim as f32;
        let factors = (0..self.head_dim / 2).map(|i| {
            let wavelength = std::f32::consts::TAU * self.rope_base.powf(2.0 * i as f32 / dim);
            let turns = original as f32 / wavelength;
            let smooth = ((turns - low) / (high - low)).clamp(0.0, 1.0);
            1.0 / ((1.0 - smooth) / factor + smooth)
        });
        Some(factors.collect())
    }

    pub fn gguf(&self) -> Gguf {
        let mut file = Gguf::default();
        file.set("general.architecture", "llama");
        file.set("general.name", "tiny");
        file.set("llama.block_count", self.layers);
        file.set("llama.context_length", self.context);
        file.set("llama.embedding_length", self.hidden);
        file.set("llama.feed_forward_length", self.ffn);
        file.set("llama.attention.head_count", self.heads);
        file.set("llama.attention.head_count_kv", self.kv_heads);
        file.set("llama.attention.key_length", self.head_dim);
        file.set("llama.attention.value_length", self.head_dim);
        file.set(
            "llama.attention.layer_norm_rms_epsilon",
            Value::F32(self.norm_eps),
        );
        file.set("llama.rope.dimension_count", self.head_dim);
        file.set("llama.rope.freq_base", Value::F32(self.rope_base));
        if let TinyRope::Linear(factor) = self.rope {
            file.set("llama.rope.scaling.type", "linear");
            file.set("llama.rope.scaling.factor", Value::F32(factor));
        }
        let vocabulary = self.vocabulary();
        file.set("llama.vocab_size", vocabulary.tokens.len());
        vocabulary.describe(&mut file);
        if let Some(template) = &self.chat_template {
            file.set("tokenizer.chat_template", template.as_str());
        }
        if let Some(factors) = self.rope_factors() {
            let bytes = quantize_row(Format::F32, &factors);
            file.tensors.push(Tensor::new(
                names::ROPE_FACTORS,
                &[factors.len()],
                Format::F32,
                bytes,
            ));
        }
        for matrix in self.matrices() {
            let format = match (matrix.rows, matrix.is_in_layer()) {
                (1, _) => Format::F32,
                (_, true) => self.format,
                (_, false) => self.embedding_format,
            };
            let bytes = interleaved(&matrix, self.head_dim)
                .chunks_exact(matrix.cols)
                .flat_map(|row| quantize_row(format, row))
                .collect();
            file.tensors.push(Tensor::new(
                &matrix.gguf_name(),
                &matrix.dims(),
                format,
                bytes,
            ));
        }
        file
    }

    pub fn write_gguf(&self, path: &Path) -> io::Result<()> {
        self.gguf().write(path)
    }

    /// Writes a Hugging Face folder: `config.json`, `tokenizer.json`, `tokenizer_config.json`, `generation_config.json` and the weights, in `shards` files.
    ///
    /// # Panics
    /// If a format is not F32, F16 or BF16.
    pub fn write_hf(&self, folder: &Path, shards: usize) -> io::Result<()> {
        huggingface::write(self, folder, shards)
    }
}

/// The values with the rows of Q and K as GGUF wants them: row `i` of a head's first half and row `i` of its second half side by side.
fn interleaved(matrix: &Matrix, head_dim: usize) -> Vec<f32> {
    if ![names::Q.gguf, names::K.gguf].contains(&matrix.name.gguf) {
        return matrix.values.clone();
    }
    let row = |row: usize| &matrix.values[row * matrix.cols..(row + 1) * matrix.cols];
    (0..matrix.rows)
        .flat_map(|to| {
            let (head, within) = (to / head_dim, to % head_dim);
            row(head * head_dim + within % 2 * (head_dim / 2) + within / 2)
        })
        .copied()
        .collect()
}
