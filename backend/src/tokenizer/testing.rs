//! Small vocabularies that tests write themselves.

use super::Tokenizer;
use crate::model::{GgufVocabulary, TokenizerSource};

/// One token a byte (`token == byte`), then control tokens of the known families.
pub(crate) fn bytes_only() -> Tokenizer {
    with_controls(&[
        "<|im_start|>",
        "<|im_end|>",
        "<|begin_of_text|>",
        "<|end_of_text|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|python_tag|>",
    ])
}

/// One token a byte, then these control tokens; `bos` is `<|begin_of_text|>` or else the first, `eos` the second.
pub(crate) fn with_controls(controls: &[&str]) -> Tokenizer {
    let mut tokens: Vec<String> = (0..=255u8)
        .map(|byte| super::pre::character_of(byte).to_string())
        .collect();
    tokens.extend(controls.iter().map(|&text| text.to_owned()));
    let mut token_types = vec![1; 256];
    token_types.extend(controls.iter().map(|_| 3));
    let begin = controls
        .iter()
        .position(|text| *text == "<|begin_of_text|>");
    Tokenizer::new(&TokenizerSource::Gguf(GgufVocabulary {
        model: "gpt2".to_owned(),
        pre: Some("llama-bpe".to_owned()),
        tokens,
        token_types,
        bos: Some(256 + begin.unwrap_or(0) as u32),
        eos: Some(257),
        add_bos: Some(false),
        ..GgufVocabulary::default()
    }))
    .unwrap()
}
