//! `input`: the conversation so far. Every item type Codex replays becomes one the upstream takes.
//!
//! A native server only needs the calls renamed ([`calls`]). llama-server refuses most item types, so for it each item
//! is rebuilt from what reaches the chat template ([`llama`]), and calls are paired with their outputs ([`pairs`]);
//! ids, which differ between two threads that say the same, are left out.

mod calls;
mod content;
mod llama;
mod pairs;

use protocol::{FieldError, ItemKind, Object, object::str_or_empty};
use serde_json::Value;

use super::{Capabilities, Counts, Dialect, Error, element, system, tools::Offer};
use crate::config::{Policy, SystemMessages};

/// What rewriting the history depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rewriting<'a> {
    pub(super) offer: &'a Offer,
    pub(super) policy: &'a Policy,
    pub(super) upstream: &'a Capabilities,
    /// The request asks for nothing to be generated, so it need not say anything.
    pub(super) input_optional: bool,
}

/// Rewrites `input`, and merges `instructions` into it where the upstream's template needs that.
pub(super) fn write(
    body: &mut Object,
    how: &Rewriting<'_>,
    counts: &mut Counts,
) -> Result<(), Error> {
    let is_llama = how.upstream.dialect == Dialect::LlamaCpp;
    let items = match body.get_mut("input").map(Value::take) {
        Some(Value::Array(items)) => items,
        Some(Value::String(text)) if is_llama => vec![user_message(text.into())],
        None | Some(Value::Null) if is_llama && how.input_optional => Vec::new(),
        None if is_llama => {
            return Err(FieldError::missing("input", "a string or an array of items").into());
        }
        Some(other) if is_llama => {
            let expected = "a string or an array of items";
            return Err(FieldError::unexpected("input", expected, &other).into());
        }
        // A native server says itself what it thinks of it.
        Some(other) => {
            body.insert("input".into(), other);
            return Ok(());
        }
        None => return Ok(()),
    };
    counts.items = items.len();
    let mut rewritten = Vec::with_capacity(items.len());
    for (index, item) in items.into_iter().enumerate() {
        rewritten.extend(rewrite(item, index, how, counts)?);
    }
    if is_llama {
        rewritten = pairs::pair(rewritten, how.upstream.parallel_calls, counts);
    }
    let instructions = str_or_empty(body, "instructions").to_owned();
    counts.instruction_bytes = instructions.len() + system::leading_bytes(&rewritten);
    let merges = match how.policy.system_messages {
        SystemMessages::Merge => true,
        SystemMessages::Keep => false,
        SystemMessages::Auto => is_llama,
    };
    if merges {
        rewritten = system::merge(Some(&instructions), rewritten);
        body.shift_remove("instructions");
    }
    body.insert("input".into(), rewritten.into());
    Ok(())
}

/// The item for the upstream; none when it is left out.
fn rewrite(
    item: Value,
    index: usize,
    how: &Rewriting<'_>,
    counts: &mut Counts,
) -> Result<Option<Value>, Error> {
    let path = element("input", index);
    let is_llama = how.upstream.dialect == Dialect::LlamaCpp;
    let item = match item {
        Value::Object(item) => item,
        other if is_llama => {
            return Err(FieldError::unexpected(path, "an object", &other).into());
        }
        other => return Ok(Some(other)),
    };
    let item = match ItemKind::of(&item) {
        // Its tools are in the tool list by now.
        ItemKind::AdditionalTools => return Ok(None),
        ItemKind::CompactionTrigger => {
            return Err(Error::unsupported(
                format!("{path}.type"),
                "\"compaction_trigger\" asks for remote compaction, which is not offered here; Codex compacts by itself \
                 when its provider is not called \"OpenAI\"",
            ));
        }
        ItemKind::FunctionCall => Some(calls::function_call(item)),
        ItemKind::CustomToolCall => Some(calls::custom_call(item)),
        ItemKind::CustomToolCallOutput => Some(calls::custom_output(item)),
        ItemKind::ToolSearchCall => calls::search_call(item, counts),
        ItemKind::ToolSearchOutput => calls::search_output(item, index, how.offer, counts),
        _ => Some(item),
    };
    let item = match item {
        Some(item) if is_llama => llama::item(item, &path, how, counts)?,
        item => item,
    };
    Ok(item.map(Value::Object))
}

fn user_message(content: Value) -> Value {
    let message = object([
        ("type", Some("message".into())),
        ("role", Some("user".into())),
        ("content", Some(content)),
    ]);
    message.into()
}

/// An object from the fields that are there.
fn object<const N: usize>(fields: [(&str, Option<Value>); N]) -> Object {
    fields
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect()
}
