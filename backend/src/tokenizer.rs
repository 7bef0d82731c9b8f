//! Text to tokens and back. Byte-level BPE (GPT-2's, as in Llama 3 and SmolLM2) and SentencePiece BPE (Llama 2), from a `tokenizer.json` or from
//! the metadata of a GGUF file.
//!
//! Invariant: [`Tokenizer::encode_text`] never yields a control token, whatever the text spells. Only [`Tokenizer::encode_template`] does, and it is
//! given nothing but the text of a chat template.

use std::sync::Arc;

mod detokenize;

pub use detokenize::Detokenizer;

use crate::model::TokenizerSource;

/// A model's vocabulary and the way into it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {}

/// A tokenizer this program cannot reproduce exactly.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The file holds something else than what a tokenizer must be: where, and what is expected.
    #[error("{field}: {problem}")]
    Invalid { field: String, problem: String },
    /// A kind of tokenizer that is not built in; guessing would give other tokens than the model was trained on.
    #[error("{field}: \"{found}\" is not supported; supported are {supported}")]
    Unsupported {
        field: String,
        found: String,
        supported: String,
    },
    #[error("{path}: {error}")]
    Read {
        path: std::path::PathBuf,
        error: std::io::Error,
    },
}

impl Tokenizer {
    /// Builds the tokenizer of a model: about 0.3 s for the 128,000 tokens of Llama 3.
    pub fn new(source: &TokenizerSource) -> Result<Tokenizer, TokenizerError> {
        todo!()
    }

    /// The tokens of text from anywhere. Never a control token: `<|eot_id|>` becomes the tokens of its characters.
    pub fn encode_text(&self, text: &str) -> Vec<u32> {
        todo!()
    }

    /// The tokens of a chat template's own text: control tokens where they are spelled.
    pub fn encode_template(&self, text: &str) -> Vec<u32> {
        todo!()
    }

    /// The bytes a token stands for in the output; empty for control tokens and for ids beyond the vocabulary. One token may be a part of a character.
    pub fn token_bytes(&self, token: u32) -> &[u8] {
        todo!()
    }

    /// Ids are `0..vocab_len()`. Rows of logits may be longer (padding).
    pub fn vocab_len(&self) -> usize {
        todo!()
    }

    /// Is `token` one that only the template and the model may write? Padding and unused ids count too.
    pub fn is_control(&self, token: u32) -> bool {
        todo!()
    }

    /// How a control token is spelled, e.g. `<|eot_id|>`.
    pub fn control_text(&self, token: u32) -> Option<&str> {
        todo!()
    }

    /// The token whose spelling in the vocabulary is `text`; for control tokens as written in templates.
    pub fn token_id(&self, text: &str) -> Option<u32> {
        todo!()
    }

    /// Every token after which the model has nothing more to say: ascending, never empty.
    pub fn end_tokens(&self) -> Arc<[u32]> {
        todo!()
    }

    /// The token a prompt starts with.
    pub fn bos(&self) -> Option<u32> {
        todo!()
    }
}
