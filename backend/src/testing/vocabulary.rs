//! A byte-level BPE vocabulary in GPT-2's manner: every text can be written with it.

use serde_json::{Value, json};

use super::gguf::{self, Gguf};

/// GGUF's numbers for what a token is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    Normal = 1,
    Control = 3,
    UserDefined = 4,
}

/// Tokens, what they are, and merges.
#[derive(Clone, Debug)]
pub struct Vocabulary {
    pub tokens: Vec<(String, Kind)>,
    /// Pairs that become one token, strongest first; both sides and the result are tokens.
    pub merges: Vec<(String, String)>,
}

impl Vocabulary {
    pub const END_OF_TEXT: u32 = 0;
    pub const IM_START: u32 = 1;
    pub const IM_END: u32 = 2;
    /// Byte `b` is token `FIRST_BYTE + b`.
    pub const FIRST_BYTE: u32 = 3;

    /// `<|endoftext|>`, `<|im_start|>`, `<|im_end|>`, 256 bytes, and the result of each merge. `merges` are in the vocabulary's own letters: a space is `Ġ`.
    ///
    /// # Panics
    /// If a merge uses what is not a token yet.
    pub fn new(merges: &[(&str, &str)]) -> Vocabulary {
        let control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
        let mut vocabulary = Vocabulary {
            tokens: control
                .iter()
                .map(|text| ((*text).to_owned(), Kind::Control))
                .collect(),
            merges: Vec::new(),
        };
        for byte in 0..=u8::MAX {
            vocabulary.push(byte_letter(byte).to_string(), Kind::Normal);
        }
        for (left, right) in merges {
            for side in [left, right] {
                assert!(vocabulary.contains(side), "{side} is no token");
            }
            vocabulary.push(format!("{left}{right}"), Kind::Normal);
            vocabulary
                .merges
                .push(((*left).to_owned(), (*right).to_owned()));
        }
        vocabulary
    }

    /// A few English merges.
    pub fn english() -> Vocabulary {
        Vocabulary::new(&[
            ("Ġ", "t"),
            ("h", "e"),
            ("i", "n"),
            ("Ġt", "he"),
            ("e", "r"),
            ("a", "n"),
            ("Ġ", "a"),
            ("Ġ", "Ġ"),
            ("ĠĠ", "ĠĠ"),
            ("o", "u"),
            ("l", "l"),
            ("he", "ll"),
            ("hell", "o"),
            ("Ġa", "n"),
            ("Ġan", "d"),
            ("in", "g"),
        ])
    }

    pub fn contains(&self, text: &str) -> bool {
        self.tokens.iter().any(|(known, _)| known == text)
    }

    /// # Panics
    /// If the text is a token already.
    pub fn push(&mut self, text: String, kind: Kind) -> u32 {
        assert!(!self.contains(&text), "{text:?} is a token already");
        self.tokens.push((text, kind));
        self.tokens.len() as u32 - 1
    }

    /// Fills up to `size` tokens with control tokens that mean nothing.
    pub fn pad(&mut self, size: usize) {
        while self.tokens.len() < size {
            self.push(format!("<|reserved_{}|>", self.tokens.len()), Kind::Control);
        }
    }

    /// Writes `tokenizer.ggml.*`.
    pub fn describe(&self, file: &mut Gguf) {
        let texts = |texts: &mut dyn Iterator<Item = String>| gguf::Value::Texts(texts.collect());
        file.set("tokenizer.ggml.model", "gpt2");
        file.set("tokenizer.ggml.pre", "gpt-2");
        let mut tokens = self.tokens.iter().map(|(text, _)| text.clone());
        file.set("tokenizer.ggml.tokens", texts(&mut tokens));
        let kinds = self.tokens.iter().map(|(_, kind)| *kind as i32).collect();
        file.set("tokenizer.ggml.token_type", gguf::Value::I32s(kinds));
        let mut merges = self
            .merges
            .iter()
            .map(|(left, right)| format!("{left} {right}"));
        file.set("tokenizer.ggml.merges", texts(&mut merges));
        file.set(
            "tokenizer.ggml.bos_token_id",
            gguf::Value::U32(Vocabulary::IM_START),
        );
        file.set(
            "tokenizer.ggml.eos_token_id",
            gguf::Value::U32(Vocabulary::IM_END),
        );
        file.set(
            "tokenizer.ggml.padding_token_id",
            gguf::Value::U32(Vocabulary::END_OF_TEXT),
        );
        file.set("tokenizer.ggml.add_bos_token", gguf::Value::Bool(false));
    }

    /// `tokenizer.json`.
    pub fn json(&self) -> Value {
        let mut vocab = serde_json::Map::new();
        let mut added = Vec::new();
        for (id, (text, kind)) in self.tokens.iter().enumerate() {
            if *kind == Kind::Normal {
                vocab.insert(text.clone(), json!(id));
            } else {
                added.push(json!({
                    "id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
                    "special": *kind == Kind::Control,
                }));
            }
        }
        let merges: Vec<Value> = self
            .merges
            .iter()
            .map(|(left, right)| json!([left, right]))
            .collect();
        json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
            "post_processor": null,
            "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
            "model": {
                "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
                "fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": vocab, "merges": merges,
            },
        })
    }
}

/// GPT-2's printable letter for a byte: itself where it prints, else the next free code point from 256.
fn byte_letter(byte: u8) -> char {
    let prints = |byte: u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    if prints(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|other| !prints(*other)).count() as u32;
    char::from_u32(256 + before).unwrap_or('\u{fffd}')
}
