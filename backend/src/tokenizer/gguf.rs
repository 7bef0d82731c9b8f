//! `tokenizer.ggml.*` of a GGUF file as a [`Vocabulary`]. The file names its rules; a name that is not known here is refused.

use super::{
    TokenizerError,
    pre::Pre,
    vocabulary::{Blank, Entry, Kind, Rules, Vocabulary},
};
use crate::model::GgufVocabulary;

const MODELS: &str = "\"gpt2\" (byte-level BPE) and \"llama\" (SentencePiece)";
const PRES: &str = "\"llama-bpe\", \"llama3\", \"llama-v3\", \"smollm\", \"gpt-2\", \"qwen2\" and \"deepseek-r1-qwen\"";

pub(super) fn read(source: &GgufVocabulary) -> Result<Vocabulary, TokenizerError> {
    if source.tokens.is_empty() {
        return Err(TokenizerError::invalid("tokenizer.ggml.tokens", "is empty"));
    }
    let rules = match source.model.as_str() {
        "gpt2" => byte_level(source)?,
        "llama" => Rules::SentencePieceScores {
            scores: source.scores.clone(),
            blank: if source.add_space_prefix.unwrap_or(true) {
                Blank::Always
            } else {
                Blank::Never
            },
            unknown: source.unknown,
        },
        other => {
            return Err(TokenizerError::Unsupported {
                field: "tokenizer.ggml.model".to_owned(),
                found: format!("\"{other}\""),
                supported: MODELS.to_owned(),
            });
        }
    };
    let bos_by_default = match &rules {
        Rules::ByteLevel { pre, .. } => *pre == Pre::Llama3,
        _ => true,
    };
    Ok(Vocabulary {
        entries: entries(source)?,
        rules,
        bos: source.bos,
        eos: source.eos,
        ends: source.eot.into_iter().chain(source.eom).collect(),
        add_bos: source.add_bos.unwrap_or(bos_by_default),
    })
}

fn entries(source: &GgufVocabulary) -> Result<Vec<Entry>, TokenizerError> {
    let types = &source.token_types;
    if !types.is_empty() && types.len() != source.tokens.len() {
        return Err(TokenizerError::invalid(
            "tokenizer.ggml.token_type",
            format!(
                "has {} entries, but there are {} tokens",
                types.len(),
                source.tokens.len()
            ),
        ));
    }
    let mut entries = Vec::with_capacity(source.tokens.len());
    for (token, text) in source.tokens.iter().enumerate() {
        let mut kind = match types.get(token).copied().unwrap_or(1) {
            1 => Kind::Normal,
            2 | 3 => Kind::Control,
            4 => Kind::UserDefined,
            5 => Kind::Unused,
            6 => Kind::Byte,
            other => {
                return Err(TokenizerError::invalid(
                    format!("tokenizer.ggml.token_type[{token}]"),
                    format!("is {other}; it must be 1 to 6"),
                ));
            }
        };
        // Files made by early converters mark these as ordinary text; no merges lead to them, so they never were.
        let named = [source.bos, source.eos, source.eot, source.eom];
        let shape = text.starts_with("<|") && text.ends_with("|>");
        if kind == Kind::Normal && (shape || named.contains(&Some(token as u32))) {
            kind = Kind::Control;
        }
        entries.push(Entry {
            text: text.clone(),
            kind,
            strips: (false, false),
        });
    }
    Ok(entries)
}

fn byte_level(source: &GgufVocabulary) -> Result<Rules, TokenizerError> {
    let pre = match source.pre.as_deref() {
        Some("llama-bpe" | "llama3" | "llama-v3") => Pre::Llama3,
        Some("smollm") => Pre::SmolLm,
        Some("gpt-2") => Pre::Gpt2,
        Some("qwen2" | "deepseek-r1-qwen") => Pre::Qwen2,
        // The first files of Llama 3 do not say; its vocabulary cannot be mistaken for another.
        None | Some("default")
            if source
                .tokens
                .get(128_000)
                .is_some_and(|token| token == "<|begin_of_text|>") =>
        {
            Pre::Llama3
        }
        other => {
            return Err(TokenizerError::Unsupported {
                field: "tokenizer.ggml.pre".to_owned(),
                found: other.map_or_else(
                    || "a file without it".to_owned(),
                    |name| format!("\"{name}\""),
                ),
                supported: PRES.to_owned(),
            });
        }
    };
    let mut merges = Vec::with_capacity(source.merges.len());
    for (index, merge) in source.merges.iter().enumerate() {
        merges.push(super::vocabulary::merge(merge).ok_or_else(|| {
            TokenizerError::invalid(
                format!("tokenizer.ggml.merges[{index}]"),
                format!("is \"{merge}\"; it must be two tokens with a blank between them"),
            )
        })?);
    }
    Ok(Rules::ByteLevel {
        pre,
        merges,
        ignore_merges: pre == Pre::Llama3,
        nfc: pre == Pre::Qwen2,
    })
}
