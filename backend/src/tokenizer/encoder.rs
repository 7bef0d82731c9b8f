//! Text without control tokens to tokens, by the rules of the vocabulary.

use tokenizers::{
    Model, NormalizedString, Normalizer,
    models::bpe::{BPE, BpeBuilder, Vocab},
    normalizers::unicode::NFC,
};

use super::{
    TokenizerError,
    pre::{self, Pre},
    sentencepiece::Scored,
    vocabulary::{Blank, Entry, Kind, Rules, Vocabulary},
};

#[derive(Debug)]
pub(super) enum Encoder {
    ByteLevel { bpe: BPE, pre: Pre, nfc: bool },
    Merges { bpe: BPE, blank: Blank },
    Scores { scored: Scored, blank: Blank },
}

impl Encoder {
    pub(super) fn new(vocabulary: Vocabulary) -> Result<Encoder, TokenizerError> {
        let Vocabulary { entries, rules, .. } = vocabulary;
        let is_text = |kind: Kind| matches!(kind, Kind::Normal | Kind::Byte);
        match rules {
            Rules::ByteLevel {
                pre,
                merges,
                ignore_merges,
                nfc,
            } => {
                let bpe = bpe(&entries, |entry| is_text(entry.kind), merges)?
                    .ignore_merges(ignore_merges)
                    .build()
                    .map_err(|error| TokenizerError::invalid("merges", error.to_string()))?;
                Ok(Encoder::ByteLevel { bpe, pre, nfc })
            }
            Rules::SentencePieceMerges {
                merges,
                blank,
                unknown,
            } => {
                let unknown = unknown
                    .and_then(|token| entries.get(token as usize))
                    .map(|entry| entry.text.clone());
                let mut builder = bpe(
                    &entries,
                    |entry| is_text(entry.kind) || Some(&entry.text) == unknown.as_ref(),
                    merges,
                )?
                .byte_fallback(true)
                .fuse_unk(true);
                if let Some(unknown) = unknown {
                    builder = builder.unk_token(unknown);
                }
                let bpe = builder
                    .build()
                    .map_err(|error| TokenizerError::invalid("merges", error.to_string()))?;
                Ok(Encoder::Merges { bpe, blank })
            }
            Rules::SentencePieceScores {
                scores,
                blank,
                unknown,
            } => Ok(Encoder::Scores {
                scored: Scored::new(&entries, &scores, unknown)?,
                blank,
            }),
        }
    }

    pub(super) fn adds_blank(&self) -> bool {
        match self {
            Encoder::ByteLevel { .. } => false,
            Encoder::Merges { blank, .. } | Encoder::Scores { blank, .. } => *blank != Blank::Never,
        }
    }

    pub(super) fn token_id(&self, text: &str) -> Option<u32> {
        match self {
            Encoder::ByteLevel { bpe, .. } | Encoder::Merges { bpe, .. } => bpe.token_to_id(text),
            Encoder::Scores { scored, .. } => scored.token_id(text),
        }
    }

    pub(super) fn encode(&self, text: &str, first: bool, tokens: &mut Vec<u32>) {
        if text.is_empty() {
            return;
        }
        match self {
            Encoder::ByteLevel { bpe, pre, nfc } => {
                let normalized = nfc.then(|| normalize(text));
                let text = normalized.as_deref().unwrap_or(text);
                let mut word = String::new();
                pre.words(text, |bytes| {
                    word.clear();
                    word.extend(bytes.bytes().map(pre::character_of));
                    push(bpe, &word, tokens);
                });
            }
            Encoder::Merges { bpe, blank } => push(bpe, &with_blanks(text, *blank, first), tokens),
            Encoder::Scores { scored, blank } => {
                scored.encode(&with_blanks(text, *blank, first), tokens);
            }
        }
    }
}

#[expect(
    clippy::expect_used,
    reason = "without dropout the only error is an unknown token that the vocabulary lacks, and `Encoder::new` names one that it has"
)]
fn push(bpe: &BPE, word: &str, tokens: &mut Vec<u32>) {
    let pieces = bpe
        .tokenize(word)
        .expect("a vocabulary with its unknown token");
    tokens.extend(pieces.iter().map(|piece| piece.id));
}

#[expect(
    clippy::expect_used,
    reason = "every text has a normal form; the error is that of the trait"
)]
fn normalize(text: &str) -> String {
    if text.is_ascii() {
        return text.to_owned();
    }
    let mut normalized = NormalizedString::from(text);
    NFC.normalize(&mut normalized).expect("a normal form");
    normalized.get().to_owned()
}

fn with_blanks(text: &str, blank: Blank, first: bool) -> String {
    let mut marked = String::with_capacity(text.len() + text.len() / 3);
    if blank == Blank::Always || (blank == Blank::First && first) {
        marked.push('\u{2581}');
    }
    for character in text.chars() {
        marked.push(if character == ' ' {
            '\u{2581}'
        } else {
            character
        });
    }
    marked
}

/// Checks what the builder itself would panic on or drop.
fn bpe(
    entries: &[Entry],
    keep: impl Fn(&Entry) -> bool,
    merges: Vec<(String, String)>,
) -> Result<BpeBuilder, TokenizerError> {
    let vocab: Vocab = entries
        .iter()
        .enumerate()
        .filter(|(_, entry)| keep(entry))
        .map(|(token, entry)| (entry.text.clone(), token as u32))
        .collect();
    let mut joined = String::new();
    for (index, (left, right)) in merges.iter().enumerate() {
        joined.clear();
        joined.push_str(left);
        joined.push_str(right);
        for part in [left, right, &joined] {
            if !vocab.contains_key(part) {
                return Err(TokenizerError::invalid(
                    format!("merges[{index}]"),
                    format!(
                        "joins \"{left}\" and \"{right}\", but \"{part}\" is no token that text can become"
                    ),
                ));
            }
        }
    }
    Ok(BPE::builder().vocab_and_merges(vocab, merges))
}
