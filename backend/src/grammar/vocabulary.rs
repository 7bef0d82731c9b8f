//! [`Vocabulary`]: the model's tokens as bytes, as the grammar compiler wants them, and the tokenizer for text it forces.

use std::{fmt, sync::Arc};

use toktrie::{TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

/// Splits text into tokens, never into a control token. Canonical: the tokens the model has seen this text as.
pub type Encode = Arc<dyn Fn(&str) -> Vec<u32> + Send + Sync>;

/// A model's tokens.
#[derive(Clone)]
pub struct Vocabulary {
    /// The bytes of each token in text; for a control token its name, `<|eot_id|>`.
    pub bytes: Vec<Vec<u8>>,
    /// Tokens that are no text: they never come where a grammar wants text. As long as `bytes`.
    pub control: Vec<bool>,
    /// Every token that ends an answer; not empty.
    pub end_tokens: Vec<u32>,
    pub encode: Encode,
}

impl Vocabulary {
    /// The control token of this name.
    pub(crate) fn control_token(&self, name: &str) -> Option<u32> {
        let found = self.bytes.iter().zip(&self.control);
        let index = found
            .enumerate()
            .find(|(_, (bytes, control))| **control && bytes.as_slice() == name.as_bytes())?
            .0;
        u32::try_from(index).ok()
    }

    /// The bytes that a token adds to the text: none for a control token, or one that isn't there.
    pub(crate) fn text(&self, token: u32) -> &[u8] {
        let index = token as usize;
        match (self.bytes.get(index), self.control.get(index)) {
            (Some(bytes), Some(false)) => bytes,
            _ => &[],
        }
    }

    /// Tokens whose text begins with a digit.
    pub(crate) fn digits(&self) -> Arc<[u32]> {
        let tokens = 0..u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        let begins = |token: &u32| self.text(*token).first().is_some_and(u8::is_ascii_digit);
        tokens.filter(begins).collect()
    }

    /// Does it contradict itself? Returns how many tokens there are and the first that ends an answer.
    pub(crate) fn check(&self) -> Result<(u32, u32), String> {
        let size = u32::try_from(self.bytes.len()).map_err(|_| "too many tokens".to_owned())?;
        let Some(&first_end) = self.end_tokens.first() else {
            return Err("the vocabulary has no end token".to_owned());
        };
        if let Some(token) = self.end_tokens.iter().find(|token| **token >= size) {
            return Err(format!(
                "end token {token} is outside the vocabulary of {size}"
            ));
        }
        if self.control.len() != self.bytes.len() {
            return Err("the list of control tokens is not as long as the vocabulary".to_owned());
        }
        Ok((size, first_end))
    }

    /// The trie over all tokens, with control tokens behind the byte that no text has (0xff).
    pub(crate) fn token_env(&self) -> Result<TokEnv, String> {
        let (size, first_end) = self.check()?;
        let words: Vec<Vec<u8>> = self
            .bytes
            .iter()
            .enumerate()
            .map(|(token, bytes)| self.word(token, bytes))
            .collect();
        let trie = TokTrie::from(&TokRxInfo::new(size, first_end), &words);
        Ok(Arc::new(Environment {
            trie: trie.with_eos_tokens(&self.end_tokens),
            encode: Arc::clone(&self.encode),
        }))
    }

    /// A token's bytes in the trie.
    fn word(&self, token: usize, bytes: &[u8]) -> Vec<u8> {
        let is_end = self.end_tokens.iter().any(|end| *end as usize == token);
        if !self.control[token] && !is_end {
            return bytes.to_vec();
        }
        let mut word = vec![TokTrie::SPECIAL_TOKEN_MARKER];
        if bytes.is_empty() {
            word.extend_from_slice(format!("<[{token}]>").as_bytes());
        } else {
            word.extend_from_slice(bytes);
        }
        word
    }
}

impl fmt::Debug for Vocabulary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Vocabulary")
            .field("tokens", &self.bytes.len())
            .field("end_tokens", &self.end_tokens)
            .finish_non_exhaustive()
    }
}

struct Environment {
    trie: TokTrie,
    encode: Encode,
}

impl TokenizerEnv for Environment {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        // Forced bytes may begin or end inside a character; those go to the longest tokens that fit.
        self.trie
            .tokenize_with_greedy_fallback(bytes, |text| (self.encode)(text))
    }
}
