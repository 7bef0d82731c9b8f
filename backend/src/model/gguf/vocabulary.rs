//! `tokenizer.ggml.*` and the chat template, as they stand in the file.

use super::metadata::Metadata;
use crate::model::{GgufVocabulary, error::Fault, template};

pub(super) fn read(metadata: &Metadata<'_>) -> Result<GgufVocabulary, Fault> {
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let flag = |name: &str| metadata.boolean(&key(name));
    let model = metadata.text(&key("model"))?;
    let tokens = metadata.texts(&key("tokens"))?;
    if tokens.is_empty() {
        return Err(Fault::new(
            key("tokens"),
            "nothing",
            "models with their vocabulary",
        ));
    }
    let vocabulary = GgufVocabulary {
        model: model.unwrap_or_default().to_owned(),
        pre: metadata.text(&key("pre"))?.map(str::to_owned),
        token_types: metadata.integers(&key("token_type"))?,
        scores: metadata.floats(&key("scores"))?,
        merges: metadata.texts(&key("merges"))?,
        bos: token(metadata, "bos", tokens.len())?,
        eos: token(metadata, "eos", tokens.len())?,
        eot: token(metadata, "eot", tokens.len())?,
        eom: token(metadata, "eom", tokens.len())?,
        unknown: token(metadata, "unknown", tokens.len())?,
        padding: token(metadata, "padding", tokens.len())?,
        add_bos: flag("add_bos_token")?,
        add_eos: flag("add_eos_token")?,
        add_space_prefix: flag("add_space_prefix")?,
        tokens,
    };
    for (name, entries) in [
        ("token_type", vocabulary.token_types.len()),
        ("scores", vocabulary.scores.len()),
    ] {
        if ![0, vocabulary.tokens.len()].contains(&entries) {
            return Err(Fault::new(
                key(name),
                format_args!("{entries} entries"),
                format_args!("one for each of the {} tokens", vocabulary.tokens.len()),
            ));
        }
    }
    Ok(vocabulary)
}

/// `tokenizer.ggml.NAME_token_id`; -1 says that there is none.
fn token(metadata: &Metadata<'_>, name: &str, tokens: usize) -> Result<Option<u32>, Fault> {
    let key = format!("tokenizer.ggml.{name}_token_id");
    if let Some(super::value::Value::Signed(-1)) = metadata.get(&key) {
        return Ok(None);
    }
    match metadata.count(&key)? {
        Some(u32::MAX) | None => Ok(None),
        Some(token) if (token as usize) < tokens => Ok(Some(token)),
        Some(token) => Err(Fault::new(
            key,
            token,
            format_args!("ids of the vocabulary, below {tokens}"),
        )),
    }
}

/// `tokenizer.chat_template`, and its named companions `tokenizer.chat_template.NAME`.
pub(super) fn chat_template(metadata: &Metadata<'_>) -> Result<Option<String>, Fault> {
    let default = metadata.text("tokenizer.chat_template")?;
    let with_tools = metadata.text("tokenizer.chat_template.tool_use")?;
    Ok(template::choose(default, with_tools).map(str::to_owned))
}
