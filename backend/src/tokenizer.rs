//! Text to tokens and back. Byte-level BPE (GPT-2's, as in Llama 3 and SmolLM2) and SentencePiece BPE (Llama 2), from a `tokenizer.json` or from
//! the metadata of a GGUF file.
//!
//! Invariant: [`Tokenizer::encode_text`] never yields a control token, whatever the text spells: the encoder below does not hold them. Only
//! `Tokenizer::split` finds them, and it is given nothing but a chat template's output, in which `prompt::escape::Guard` has made the spellings in a
//! request's own text unrecognisable.

mod detokenize;
mod encoder;
mod gguf;
mod json;
mod pre;
mod sentencepiece;
mod special;
#[cfg(test)]
pub(crate) mod testing;
mod vocabulary;

use std::{collections::HashMap, path::PathBuf, sync::Arc};

pub use detokenize::Detokenizer;
use encoder::Encoder;
use special::Spellings;
use vocabulary::{Kind, Vocabulary};

use crate::model::TokenizerSource;

/// A model's vocabulary and the way into it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    inner: Arc<Inner>,
    end_tokens: Arc<[u32]>,
}

/// Bytes of a token that is matched by its spelling. Real ones have a few dozen, and an automaton is built of all.
const MAX_SPELLED: usize = 1024;

#[derive(Debug)]
struct Inner {
    encoder: Encoder,
    /// Every token that is matched by its spelling and not by merges; what a template's text may become.
    template: Spellings,
    /// Those of them that mean nothing to a model but their own text (runs of blanks and the like): matched in any text.
    plain: Spellings,
    kinds: Vec<Kind>,
    /// Bytes of token `t` are `bytes[starts[t]..starts[t + 1]]`.
    bytes: Vec<u8>,
    starts: Vec<u32>,
    /// Bytes of the longest token.
    longest: usize,
    /// Spellings that are not plain.
    markup: Vec<String>,
    /// Spellings of control and user-defined tokens.
    spelled: HashMap<u32, String>,
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: bool,
}

/// A tokenizer this program cannot reproduce exactly.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The file holds something else than what a tokenizer must be: where, and what is expected.
    #[error("{field}: {problem}")]
    Invalid { field: String, problem: String },
    /// A kind of tokenizer that is not built in; guessing would give other tokens than the model was trained on.
    #[error("{field}: {found} is not supported; supported are {supported}")]
    Unsupported {
        field: String,
        found: String,
        supported: String,
    },
    #[error("{}: {error}", path.display())]
    Read {
        path: PathBuf,
        error: std::io::Error,
    },
}

impl TokenizerError {
    fn invalid(field: impl Into<String>, problem: impl Into<String>) -> TokenizerError {
        TokenizerError::Invalid {
            field: field.into(),
            problem: problem.into(),
        }
    }
}

/// A piece of a rendered template.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Piece<'a> {
    Text(&'a str),
    Token(u32),
}

impl Tokenizer {
    /// Builds the tokenizer of a model.
    pub fn new(source: &TokenizerSource) -> Result<Tokenizer, TokenizerError> {
        let vocabulary = match source {
            TokenizerSource::Gguf(vocabulary) => gguf::read(vocabulary)?,
            TokenizerSource::Json {
                tokenizer_json,
                config,
            } => {
                let text = std::fs::read(tokenizer_json).map_err(|error| TokenizerError::Read {
                    path: tokenizer_json.clone(),
                    error,
                })?;
                json::read(&text, config)?
            }
        };
        Tokenizer::build(vocabulary)
    }

    fn build(vocabulary: Vocabulary) -> Result<Tokenizer, TokenizerError> {
        pre::prepare();
        let end_tokens = vocabulary.end_tokens().into();
        let mut bytes = Vec::new();
        let mut starts = Vec::with_capacity(vocabulary.entries.len() + 1);
        for token in 0..vocabulary.entries.len() {
            starts.push(bytes.len() as u32);
            vocabulary.push_bytes(token, &mut bytes);
            if bytes.len() > u32::MAX as usize {
                return Err(TokenizerError::invalid(
                    "vocabulary",
                    "its tokens are longer than 4 GiB together",
                ));
            }
        }
        starts.push(bytes.len() as u32);
        let spelled = vocabulary.spelled();
        if let Some(long) = spelled.iter().find(|entry| entry.text.len() > MAX_SPELLED) {
            let (token, bytes) = (long.token, long.text.len());
            let problem = format!(
                "token {token}, which stands for its own text, has {bytes} bytes; at most {MAX_SPELLED} are allowed"
            );
            return Err(TokenizerError::invalid("vocabulary", problem));
        }
        let longest = starts.windows(2).map(|ends| (ends[1] - ends[0]) as usize);
        let longest = longest.chain(spelled.iter().map(|entry| entry.text.len()));
        let longest = longest.max().unwrap_or(0);
        let inner = Inner {
            template: Spellings::new(spelled.iter().copied()),
            plain: Spellings::new(spelled.iter().copied().filter(|entry| entry.is_plain())),
            markup: spelled
                .iter()
                .filter(|entry| !entry.is_plain())
                .map(|entry| entry.text.to_owned())
                .collect(),
            kinds: vocabulary.entries.iter().map(|entry| entry.kind).collect(),
            bytes,
            starts,
            longest,
            spelled: spelled
                .iter()
                .map(|entry| (entry.token, entry.text.to_owned()))
                .collect(),
            bos: vocabulary.bos,
            eos: vocabulary.eos,
            add_bos: vocabulary.add_bos,
            encoder: Encoder::new(vocabulary)?,
        };
        Ok(Tokenizer {
            inner: Arc::new(inner),
            end_tokens,
        })
    }

    /// Bytes of the longest token.
    pub(crate) fn longest(&self) -> usize {
        self.inner.longest
    }

    /// The same tokenizer with more end tokens: those of `generation_config.json`. Ids beyond the vocabulary are left out.
    pub fn with_end_tokens(mut self, more: &[u32]) -> Tokenizer {
        let mut all = self.end_tokens.to_vec();
        all.extend(
            more.iter()
                .filter(|token| (**token as usize) < self.vocab_len()),
        );
        all.sort_unstable();
        all.dedup();
        self.end_tokens = all.into();
        self
    }

    /// The tokens of text from anywhere. Never a control token: `<|eot_id|>` becomes the tokens of its characters.
    pub fn encode_text(&self, text: &str) -> Vec<u32> {
        let mut tokens = Vec::with_capacity(text.len() / 3);
        self.encode_fragment(text, true, &mut tokens);
        tokens
    }

    /// The tokens of a chat template's own text: control tokens where they are spelled.
    #[cfg(test)]
    pub(crate) fn encode_template(&self, text: &str) -> Vec<u32> {
        let mut tokens = Vec::with_capacity(text.len() / 3);
        let mut first = true;
        self.split(text, |piece, _| {
            match piece {
                Piece::Text(text) => self.encode_fragment(text, first, &mut tokens),
                Piece::Token(token) => tokens.push(token),
            }
            first = false;
        });
        tokens
    }

    /// Cuts a template's text at its control and user-defined tokens, leftmost and longest first. Each piece comes with the byte it ends before.
    pub(crate) fn split<'a>(&self, text: &'a str, each: impl FnMut(Piece<'a>, usize)) {
        self.inner.template.split(text, each);
    }

    /// Appends the tokens of text between two control tokens; `first`: it starts the prompt.
    pub(crate) fn encode_fragment(&self, text: &str, first: bool, tokens: &mut Vec<u32>) {
        if self.inner.plain.is_empty() {
            self.inner.encoder.encode(text, first, tokens);
            return;
        }
        let mut first = first;
        self.inner.plain.split(text, |piece, _| {
            match piece {
                Piece::Text(text) => self.inner.encoder.encode(text, first, tokens),
                Piece::Token(token) => tokens.push(token),
            }
            first = false;
        });
    }

    /// The spellings that text from a request must not bring into a rendered template.
    pub(crate) fn markup(&self) -> impl Iterator<Item = &str> {
        self.inner.markup.iter().map(String::as_str)
    }

    /// The bytes a token stands for in the output; empty for control tokens and for ids beyond the vocabulary. One token may be a part of a character.
    pub fn token_bytes(&self, token: u32) -> &[u8] {
        let token = token as usize;
        match (
            self.inner.starts.get(token),
            self.inner.starts.get(token + 1),
        ) {
            (Some(&start), Some(&end)) => &self.inner.bytes[start as usize..end as usize],
            _ => &[],
        }
    }

    /// Ids are `0..vocab_len()`. Rows of logits may be longer (padding).
    pub fn vocab_len(&self) -> usize {
        self.inner.kinds.len()
    }

    /// Is `token` one that only a template and the model may write, and that has no text? Unused ids and ids beyond the vocabulary count too.
    pub fn is_control(&self, token: u32) -> bool {
        self.inner
            .kinds
            .get(token as usize)
            .is_none_or(|kind| matches!(kind, Kind::Control | Kind::Unused))
    }

    /// How a control token is spelled, e.g. `<|eot_id|>`.
    pub fn control_text(&self, token: u32) -> Option<&str> {
        if self.is_control(token) {
            self.inner.spelled.get(&token).map(String::as_str)
        } else {
            None
        }
    }

    /// The token whose spelling in the vocabulary is `text`; control tokens as written in templates, others as the vocabulary has them (`Ġthe`).
    pub fn token_id(&self, text: &str) -> Option<u32> {
        self.inner
            .template
            .exact(text)
            .or_else(|| self.inner.encoder.token_id(text))
    }

    /// Every token after which the model has nothing more to say, ascending. Empty only when the model's files name none.
    pub fn end_tokens(&self) -> Arc<[u32]> {
        Arc::clone(&self.end_tokens)
    }

    /// The token a text starts with.
    pub fn bos(&self) -> Option<u32> {
        self.inner.bos
    }

    /// The end token that the files call `eos`; [`Tokenizer::end_tokens`] has it and all others.
    pub fn eos(&self) -> Option<u32> {
        self.inner.eos
    }

    /// Does a prompt start with [`Tokenizer::bos`] even where the template does not write it?
    pub fn adds_bos(&self) -> bool {
        self.inner.add_bos
    }

    /// SentencePiece writes a blank before the first word of a text; it is not part of the text.
    fn drops_first_blank(&self) -> bool {
        self.inner.encoder.adds_blank()
    }
}

#[cfg(test)]
mod tests;
