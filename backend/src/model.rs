//! A Llama model file, opened: configuration, weights as they lie in the file, and the raw parts that tokenizer and chat template are made of.
//!
//! Two containers are read: a GGUF file (`gguf`, split files too) and a Hugging Face folder (`hf`). Files are not trusted: every length, offset and
//! shape is checked before it is used, nothing is allocated for bytes that are not there, and whatever is not supported is refused by a [`ModelError`]
//! that names the file, the field, what was found and what is supported.

use std::path::{Path, PathBuf};

use crate::sample::SamplingParams;

mod bind;
pub mod config;
mod error;
pub mod file;
mod finite;
mod gguf;
mod hf;
mod identity;
pub mod inspect;
pub(crate) mod names;
pub mod plan;
pub mod quant;
mod safetensors;
pub(crate) mod template;
pub mod weights;

pub use error::ModelError;
pub(crate) use error::OneLine;

use config::LlamaConfig;
use error::Fault;
use weights::Weights;

/// An opened model. The weights stay mapped for as long as any [`weights::Tensor`] of it lives.
#[derive(Debug)]
pub struct Model {
    pub config: LlamaConfig,
    pub weights: Weights,
    pub tokenizer: TokenizerSource,
    /// The Jinja source of the chat template, as the file has it.
    pub chat_template: Option<String>,
    pub generation: GenerationDefaults,
    /// What the file calls the model, or else the name of the file or folder.
    pub name: String,
    /// The format that holds most of the weights' bytes: `Q4_1`, `BF16`.
    pub format: String,
    /// All files that were opened, the first first.
    pub files: Vec<PathBuf>,
    /// Names this set of files in 32 hex digits, cheaply: a hash over sizes, times of change, metadata and tensor tables, not over the weights.
    pub fingerprint: String,
    /// Numbers in all tensors; a tied output matrix counts once.
    pub parameters: u64,
    /// Bytes of all tensors; a tied output matrix counts once.
    pub weight_bytes: u64,
}

/// What a tokenizer is made of.
#[derive(Clone, Debug)]
pub enum TokenizerSource {
    Gguf(GgufVocabulary),
    Json {
        tokenizer_json: PathBuf,
        /// `tokenizer_config.json`, or null where there is none.
        config: serde_json::Value,
    },
}

/// `tokenizer.ggml.*` of a GGUF file, as it stands there. `tokens`, `token_types` and `scores` have one entry a token; the last two may be empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GgufVocabulary {
    /// `gpt2` (byte-level BPE), `llama` (SentencePiece), …
    pub model: String,
    /// Names the pre-tokenizer: `llama-bpe`, `smollm`, `gpt-2`, …
    pub pre: Option<String>,
    pub tokens: Vec<String>,
    /// 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte.
    pub token_types: Vec<i32>,
    pub scores: Vec<f32>,
    /// Two tokens separated by a space, strongest first.
    pub merges: Vec<String>,
    /// Beginning of text. All of these ids are below `tokens.len()`.
    pub bos: Option<u32>,
    /// End of text.
    pub eos: Option<u32>,
    /// End of turn.
    pub eot: Option<u32>,
    /// End of message: a turn that goes on after a tool's result.
    pub eom: Option<u32>,
    pub unknown: Option<u32>,
    pub padding: Option<u32>,
    pub add_bos: Option<bool>,
    pub add_eos: Option<bool>,
    pub add_space_prefix: Option<bool>,
}

/// How the model's makers want it sampled.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerationDefaults {
    pub sampling: SamplingParams,
    /// `eos_token_id` of `generation_config.json` or `config.json`; empty for GGUF, whose vocabulary names them. All below the vocabulary's size.
    pub end_tokens: Vec<u32>,
}

impl Default for GenerationDefaults {
    /// What `generation_config.json` of every Llama 3 release says, for files that say nothing.
    fn default() -> GenerationDefaults {
        GenerationDefaults {
            sampling: SamplingParams {
                temperature: 0.6,
                top_p: 0.9,
                ..SamplingParams::default()
            },
            end_tokens: Vec::new(),
        }
    }
}

/// Sampling values as a file states them.
#[derive(Debug)]
struct Stated {
    temperature: Option<f32>,
    top_k: Option<usize>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    repetition_penalty: Option<f32>,
}

impl GenerationDefaults {
    /// Takes what is stated over. `prefix` leads to the field, for messages.
    fn set(&mut self, prefix: &str, stated: &Stated) -> Result<(), Fault> {
        let sampling = &mut self.sampling;
        for (field, value, allowed, target) in [
            (
                "temperature",
                stated.temperature,
                0.0..=100.0,
                &mut sampling.temperature,
            ),
            ("top_p", stated.top_p, 0.0..=1.0, &mut sampling.top_p),
            ("min_p", stated.min_p, 0.0..=1.0, &mut sampling.min_p),
            // It divides.
            (
                "repetition_penalty",
                stated.repetition_penalty,
                0.01..=100.0,
                &mut sampling.repetition_penalty,
            ),
        ] {
            let Some(value) = value else { continue };
            if !allowed.contains(&value) {
                return Err(Fault::new(
                    format_args!("{prefix}{field}"),
                    value,
                    format_args!("{} to {}", allowed.start(), allowed.end()),
                ));
            }
            *target = value;
        }
        sampling.top_k = stated.top_k.unwrap_or(sampling.top_k);
        Ok(())
    }
}

/// Opens a GGUF file (the first of a split one) or a Hugging Face folder.
///
/// Checks everything that can be checked without computing: container, shapes against the configuration, finite block scales (all of them up to 1 GiB of
/// weights, an even sample beyond). Memory is bounded by the metadata; weights are only mapped.
pub fn open(path: &Path) -> Result<Model, ModelError> {
    if path.is_dir() {
        return hf::open(path);
    }
    if path
        .extension()
        .is_some_and(|extension| extension == "safetensors")
    {
        let fault = Fault::new(
            "file",
            "safetensors alone",
            "the folder it lies in, with config.json and tokenizer.json",
        );
        return Err(fault.in_file(path));
    }
    gguf::open(path)
}
