//! A `tokenizer.json` (and `tokenizer_config.json` beside it) as a [`Vocabulary`].
//!
//! The file is a pipeline of named steps. The steps of Llama-family models are recognised as a whole; any other step is refused by name, because
//! leaving one out would give other tokens than the model was trained on.

use serde_json::{Map, Value};

use super::{
    TokenizerError,
    pre::Pre,
    vocabulary::{Blank, Entry, Kind, Rules, Vocabulary, byte_of, merge},
};

type Object = Map<String, Value>;

const PRES: &str = "ByteLevel, Digits + ByteLevel, Split by the expressions of GPT-2, Llama 3 and Qwen 2 + ByteLevel, and Metaspace without split";
const NORMALIZERS: &str = "null, NFC, and Prepend + Replace of blanks by \"▁\"";

/// What comes before the model's merges.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Steps {
    Bytes { pre: Pre, nfc: bool },
    Blanks(Blank),
}

pub(super) fn read(text: &[u8], config: &Value) -> Result<Vocabulary, TokenizerError> {
    let root: Value = serde_json::from_slice(text)
        .map_err(|error| TokenizerError::invalid("tokenizer.json", error.to_string()))?;
    let root = object(&root, "tokenizer.json")?;
    let model = object(field(root, "model"), "model")?;
    match field(model, "type") {
        Value::Null => {}
        Value::String(name) if name == "BPE" => {}
        other => return Err(unsupported("model.type", other, "\"BPE\"")),
    }
    for key in ["continuing_subword_prefix", "end_of_word_suffix", "dropout"] {
        let value = field(model, key);
        if !(value.is_null() || value == "") {
            return Err(unsupported(&format!("model.{key}"), value, "null"));
        }
    }
    let steps = steps(root)?;
    let mut entries = vocabulary(model, steps)?;
    add(root, &mut entries)?;
    let unknown = field(model, "unk_token")
        .as_str()
        .and_then(|name| find(&entries, name));
    let rules = match steps {
        Steps::Bytes { pre, nfc } => Rules::ByteLevel {
            pre,
            nfc,
            merges: merges(model)?,
            ignore_merges: flag(model, "ignore_merges"),
        },
        Steps::Blanks(_) if !flag(model, "byte_fallback") => {
            return Err(unsupported(
                "model.byte_fallback",
                field(model, "byte_fallback"),
                "true",
            ));
        }
        Steps::Blanks(blank) => Rules::SentencePieceMerges {
            merges: merges(model)?,
            blank,
            unknown,
        },
    };
    let named = |key: &str| {
        let value = &config[key];
        value
            .as_str()
            .or_else(|| value["content"].as_str())
            .and_then(|name| find(&entries, name))
    };
    let bos = named("bos_token").or_else(|| find(&entries, "<|begin_of_text|>"));
    let eos = named("eos_token");
    let add_bos = match config["add_bos_token"].as_bool() {
        Some(flag) => flag,
        None => bos.is_some() && processor_starts_with(root, bos, &entries),
    };
    Ok(Vocabulary {
        rules,
        bos,
        eos,
        ends: Vec::new(),
        add_bos,
        entries,
    })
}

fn find(entries: &[Entry], name: &str) -> Option<u32> {
    entries
        .iter()
        .position(|entry| entry.kind != Kind::Unused && entry.text == name)
        .map(|token| token as u32)
}

fn vocabulary(model: &Object, steps: Steps) -> Result<Vec<Entry>, TokenizerError> {
    let vocab = object(field(model, "vocab"), "model.vocab")?;
    let mut entries = Vec::new();
    for (text, id) in vocab {
        let is_byte = matches!(steps, Steps::Blanks(_)) && byte_of(text).is_some();
        let entry = Entry {
            text: text.clone(),
            kind: if is_byte { Kind::Byte } else { Kind::Normal },
            strips: (false, false),
        };
        place(&mut entries, id, entry, &format!("model.vocab[\"{text}\"]"))?;
    }
    Ok(entries)
}

/// Puts an entry at its id. Ids may have holes, but not so many that the file is not a vocabulary at all.
fn place(
    entries: &mut Vec<Entry>,
    id: &Value,
    entry: Entry,
    path: &str,
) -> Result<(), TokenizerError> {
    const MOST: u64 = 1 << 22;
    let Some(id) = id.as_u64().filter(|id| *id < MOST) else {
        return Err(TokenizerError::invalid(
            path,
            format!("is {id}; it must be an id below {MOST}"),
        ));
    };
    let id = id as usize;
    if entries.len() <= id {
        entries.resize_with(id + 1, Entry::default);
    }
    entries[id] = entry;
    Ok(())
}

fn add(root: &Object, entries: &mut Vec<Entry>) -> Result<(), TokenizerError> {
    let Value::Array(added) = field(root, "added_tokens") else {
        return Ok(());
    };
    for (index, token) in added.iter().enumerate() {
        let path = format!("added_tokens[{index}]");
        let token = object(token, &path)?;
        let Some(text) = field(token, "content").as_str() else {
            return Err(TokenizerError::invalid(
                format!("{path}.content"),
                "must be a string",
            ));
        };
        if flag(token, "single_word") {
            return Err(unsupported(
                &format!("{path}.single_word"),
                &Value::Bool(true),
                "false",
            ));
        }
        let entry = Entry {
            text: text.to_owned(),
            kind: if flag(token, "special") {
                Kind::Control
            } else {
                Kind::UserDefined
            },
            strips: (flag(token, "lstrip"), flag(token, "rstrip")),
        };
        place(entries, field(token, "id"), entry, &format!("{path}.id"))?;
    }
    Ok(())
}

fn merges(model: &Object) -> Result<Vec<(String, String)>, TokenizerError> {
    let Value::Array(list) = field(model, "merges") else {
        return Err(TokenizerError::invalid("model.merges", "must be an array"));
    };
    list.iter()
        .enumerate()
        .map(|(index, entry)| {
            let pair = match entry {
                Value::String(line) => merge(line),
                Value::Array(pair) => match pair.as_slice() {
                    [Value::String(left), Value::String(right)] => {
                        Some((left.clone(), right.clone()))
                    }
                    _ => None,
                },
                _ => None,
            };
            pair.ok_or_else(|| {
                TokenizerError::invalid(format!("model.merges[{index}]"), "must be two tokens")
            })
        })
        .collect()
}

fn steps(root: &Object) -> Result<Steps, TokenizerError> {
    let normalizer = normalizer(field(root, "normalizer"))?;
    let value = field(root, "pre_tokenizer");
    let refuse = || unsupported("pre_tokenizer", value, PRES);
    let parts = parts(value, "pretokenizers");
    let pre = match parts.as_slice() {
        [] => {
            return match normalizer {
                Normal::Blanks(blank) => Ok(Steps::Blanks(blank)),
                _ => Err(refuse()),
            };
        }
        [only] if kind(only) == "Metaspace" => {
            let split = only["split"].as_bool().unwrap_or(true);
            let blank = match only["prepend_scheme"].as_str() {
                Some("always") => Blank::Always,
                Some("first") => Blank::First,
                Some("never") => Blank::Never,
                _ => return Err(refuse()),
            };
            return if split || only["replacement"] != "▁" || normalizer != Normal::None {
                Err(refuse())
            } else {
                Ok(Steps::Blanks(blank))
            };
        }
        [bytes] => byte_level(bytes, true).then_some(Pre::Gpt2),
        [digits, bytes] if kind(digits) == "Digits" => {
            (digits["individual_digits"] == true && byte_level(bytes, true)).then_some(Pre::SmolLm)
        }
        [split, bytes] if kind(split) == "Split" && byte_level(bytes, false) => {
            match split["pattern"]["Regex"].as_str() {
                _ if split["behavior"] != "Isolated" || split["invert"] == true => None,
                Some(Pre::LLAMA3_PATTERN) => Some(Pre::Llama3),
                Some(Pre::QWEN2_PATTERN) => Some(Pre::Qwen2),
                Some(Pre::GPT2_PATTERN) => Some(Pre::Gpt2),
                _ => None,
            }
        }
        _ => None,
    };
    match (pre, normalizer) {
        (Some(pre), Normal::None) => Ok(Steps::Bytes { pre, nfc: false }),
        (Some(pre), Normal::Nfc) => Ok(Steps::Bytes { pre, nfc: true }),
        (Some(_), Normal::Blanks(_)) => Err(unsupported(
            "normalizer",
            field(root, "normalizer"),
            NORMALIZERS,
        )),
        (None, _) => Err(refuse()),
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Normal {
    None,
    Nfc,
    Blanks(Blank),
}

fn normalizer(value: &Value) -> Result<Normal, TokenizerError> {
    let replaces = |part: &Value| {
        kind(part) == "Replace" && part["pattern"]["String"] == " " && part["content"] == "▁"
    };
    let parts = parts(value, "normalizers");
    match parts.as_slice() {
        [] => Ok(Normal::None),
        [only] if kind(only) == "NFC" => Ok(Normal::Nfc),
        [only] if replaces(only) => Ok(Normal::Blanks(Blank::Never)),
        [first, second]
            if kind(first) == "Prepend" && first["prepend"] == "▁" && replaces(second) =>
        {
            Ok(Normal::Blanks(Blank::Always))
        }
        _ => Err(unsupported("normalizer", value, NORMALIZERS)),
    }
}

/// The steps of a `Sequence`, or the one step that stands alone.
fn parts<'a>(value: &'a Value, list: &str) -> Vec<&'a Value> {
    match value {
        Value::Null => Vec::new(),
        value if kind(value) == "Sequence" => value[list]
            .as_array()
            .map_or_else(|| vec![value], |parts| parts.iter().collect()),
        value => vec![value],
    }
}

fn kind(value: &Value) -> &str {
    value["type"].as_str().unwrap_or_default()
}

fn byte_level(value: &Value, regex: bool) -> bool {
    kind(value) == "ByteLevel"
        && value["add_prefix_space"] != true
        && value["use_regex"].as_bool().unwrap_or(true) == regex
}

/// Does the post-processor put `bos` before every text?
fn processor_starts_with(root: &Object, bos: Option<u32>, entries: &[Entry]) -> bool {
    parts(field(root, "post_processor"), "processors")
        .iter()
        .any(|part| {
            kind(part) == "TemplateProcessing"
                && part["single"][0]["SpecialToken"]["id"]
                    .as_str()
                    .is_some_and(|name| find(entries, name) == bos)
        })
}

fn field<'a>(object: &'a Object, key: &str) -> &'a Value {
    object.get(key).unwrap_or(&Value::Null)
}

fn flag(object: &Object, key: &str) -> bool {
    field(object, key) == &Value::Bool(true)
}

fn object<'a>(value: &'a Value, path: &str) -> Result<&'a Object, TokenizerError> {
    protocol::object::as_object(value, path)
        .map_err(|error| TokenizerError::invalid(error.param, error.problem))
}

fn unsupported(field: &str, found: &Value, supported: &str) -> TokenizerError {
    let mut found = found.to_string();
    if found.len() > 200 {
        let cut = (0..=200).rev().find(|at| found.is_char_boundary(*at));
        found.truncate(cut.unwrap_or(0));
        found.push('…');
    }
    TokenizerError::Unsupported {
        field: field.to_owned(),
        found,
        supported: supported.to_owned(),
    }
}

#[cfg(test)]
mod tests;
