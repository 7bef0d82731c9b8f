//! Opens a Hugging Face folder: `config.json` of a `LlamaForCausalLM`, `model.safetensors` or the shards that `model.safetensors.index.json` names,
//! `tokenizer.json`, and where they are there `tokenizer_config.json`, `chat_template.jinja` and `generation_config.json`.
//!
//! Every file lies in the folder itself: a name that leads elsewhere is refused.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::Value;

use super::{
    GenerationDefaults, Model, ModelError, Stated, TokenizerSource,
    bind::{Found, Tensors},
    error::{Fault, unreadable},
    file::Mapped,
    finite,
    identity::Identity,
    names::Naming,
    safetensors::{Header, MOST_HEADER_BYTES},
    template,
};

mod config;
mod json;

use json::Json;

const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const TOKENIZER: &str = "tokenizer.json";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
const TEMPLATE: &str = "chat_template.jinja";
const GENERATION: &str = "generation_config.json";

const MOST_SHARDS: usize = 1000;

pub(super) fn open(folder: &Path) -> Result<Model, ModelError> {
    let mut identity = Identity::default();
    let config = Json::required(folder, CONFIG)?;
    identity.add_bytes(config.text.as_bytes());
    let tokenizer = folder.join(TOKENIZER);
    if !tokenizer.is_file() {
        let fault = Fault::new(
            TOKENIZER,
            "no such file",
            "folders with a tokenizer.json (a tokenizer.model alone is not read)",
        );
        return Err(fault.in_file(folder));
    }

    let mut files = vec![config.path.clone()];
    let mut tensors = Tensors::new(Naming::HuggingFace);
    let mut left = MOST_HEADER_BYTES;
    for (path, expected) in shards(folder)? {
        let file = Mapped::open(&path).map_err(|error| unreadable(&path, &error))?;
        let file = Arc::new(file);
        let end = collect(&file, left, expected.as_ref(), &mut tensors)
            .map_err(|fault| fault.in_file(&path))?;
        left = left.saturating_sub(end);
        identity.add(&file, end)?;
        files.push(path);
    }
    tensors.ignore(|name| name.ends_with(".rotary_emb.inv_freq"));

    let llama = config::read(&config.value).map_err(|fault| fault.in_file(&config.path))?;
    if llama.tied_embeddings {
        // Transformers ties the output matrix whatever the file has for it.
        tensors.ignore(|name| name == super::names::OUTPUT.hf);
    }
    let weights = tensors
        .bind(&llama)
        .map_err(|fault| fault.in_file(folder))?;
    finite::check(&weights).map_err(|fault| fault.in_file(folder))?;

    let tokenizer_config = Json::optional(folder, TOKENIZER_CONFIG)?;
    let generation = Json::optional(folder, GENERATION)?;
    files.push(tokenizer.clone());
    files.extend(tokenizer_config.iter().map(|json| json.path.clone()));
    files.extend(generation.iter().map(|json| json.path.clone()));
    Ok(Model {
        chat_template: chat_template(folder, tokenizer_config.as_ref())?,
        generation: generation_defaults(generation.as_ref(), &config, llama.vocab)?,
        tokenizer: TokenizerSource::Json {
            tokenizer_json: tokenizer,
            config: tokenizer_config.map_or(Value::Null, |json| json.value),
        },
        name: name(folder),
        format: weights.main_format().to_string(),
        fingerprint: identity.finish(),
        parameters: weights.parameters(),
        weight_bytes: weights.bytes(),
        files,
        config: llama,
        weights,
    })
}

/// The folder's own name, also where it was given as `.`.
fn name(folder: &Path) -> String {
    let full = folder.canonicalize();
    let folder = full.as_deref().unwrap_or(folder);
    folder
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// The weight files in order, and the tensors the index puts into each.
type Shards = Vec<(PathBuf, Option<BTreeSet<String>>)>;

fn shards(folder: &Path) -> Result<Shards, ModelError> {
    let Some(index) = Json::optional(folder, INDEX)? else {
        let weights = folder.join(WEIGHTS);
        if !weights.is_file() {
            let fault = Fault::new(
                WEIGHTS,
                "no such file",
                "folders with model.safetensors, or with its shards and their index",
            );
            return Err(fault.in_file(folder));
        }
        return Ok(vec![(weights, None)]);
    };
    read_index(&index.value)
        .map_err(|fault| fault.in_file(&index.path))
        .map(|shards| {
            shards
                .into_iter()
                .map(|(name, tensors)| (folder.join(name), Some(tensors)))
                .collect()
        })
}

fn read_index(index: &Value) -> Result<BTreeMap<String, BTreeSet<String>>, Fault> {
    let field = "weight_map";
    let Some(map) = index.get(field).and_then(Value::as_object) else {
        return Err(Fault::new(
            field,
            "nothing",
            "an object of tensor and file names",
        ));
    };
    let mut shards: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (tensor, file) in map {
        let Some(name) = file.as_str().filter(|name| is_plain(name)) else {
            return Err(Fault::new(
                format_args!("weight_map[\"{tensor}\"]"),
                file,
                "names of .safetensors files in the folder itself",
            ));
        };
        shards
            .entry(name.to_owned())
            .or_default()
            .insert(tensor.clone());
    }
    if shards.is_empty() || shards.len() > MOST_SHARDS {
        return Err(Fault::new(
            field,
            format_args!("{} files", shards.len()),
            format_args!("1 to {MOST_SHARDS}"),
        ));
    }
    Ok(shards)
}

/// A file's name and nothing that leads out of the folder.
fn is_plain(name: &str) -> bool {
    name.ends_with(".safetensors")
        && !name.starts_with('.')
        && !name.contains(['/', '\\', '\0', ':'])
}

/// Adds the file's tensors, which must be those the index names, and says where its header ends.
fn collect(
    file: &Arc<Mapped>,
    most_header: usize,
    expected: Option<&BTreeSet<String>>,
    tensors: &mut Tensors,
) -> Result<usize, Fault> {
    let header = Header::parse(file, most_header)?;
    let mut missing = expected.cloned().unwrap_or_default();
    for entry in header.tensors {
        if !missing.remove(&entry.name) && expected.is_some() {
            return Err(Fault::new(
                entry.name,
                "a tensor that the index does not put here",
                "shards that match model.safetensors.index.json",
            ));
        }
        let found = Found {
            format: entry.format,
            dims: entry.dims,
            file: Arc::clone(file),
            range: entry.range,
        };
        tensors.insert(&entry.name, found)?;
    }
    match missing.pop_first() {
        None => Ok(header.end),
        Some(name) => Err(Fault::new(
            name,
            "no such tensor",
            "shards that match model.safetensors.index.json",
        )),
    }
}

/// `chat_template.jinja`, or `chat_template` of `tokenizer_config.json`: a text, or a list of `{"name", "template"}`.
fn chat_template(folder: &Path, config: Option<&Json>) -> Result<Option<String>, ModelError> {
    let file = json::text(folder, TEMPLATE)?;
    if file.is_some() {
        return Ok(file);
    }
    let Some(config) = config else {
        return Ok(None);
    };
    let source = match config.value.get("chat_template") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(source)) => Some(source.as_str()),
        Some(Value::Array(list)) => {
            let named = |name: &str| {
                list.iter()
                    .find(|entry| entry.get("name").and_then(Value::as_str) == Some(name))
                    .and_then(|entry| entry.get("template"))
                    .and_then(Value::as_str)
            };
            template::choose(named("default"), named("tool_use"))
        }
        Some(_) => None,
    };
    match source {
        Some(source) => Ok(Some(source.to_owned())),
        None => Err(Fault::new(
            "chat_template",
            "neither a text nor a list with the template \"default\"",
            "a text, or a list of objects with \"name\" and \"template\"",
        )
        .in_file(&config.path)),
    }
}

/// `generation_config.json`. End tokens also stand in `config.json`; the former wins.
fn generation_defaults(
    generation: Option<&Json>,
    config: &Json,
    vocab: usize,
) -> Result<GenerationDefaults, ModelError> {
    let mut defaults = GenerationDefaults::default();
    if let Some(json) = generation {
        stated(json, &mut defaults, vocab).map_err(|fault| fault.in_file(&json.path))?;
    }
    if defaults.end_tokens.is_empty() {
        defaults.end_tokens =
            end_tokens(&config.value, vocab).map_err(|fault| fault.in_file(&config.path))?;
    }
    Ok(defaults)
}

fn stated(json: &Json, defaults: &mut GenerationDefaults, vocab: usize) -> Result<(), Fault> {
    let float = |field| json::float(&json.value, field);
    let stated = Stated {
        temperature: float("temperature")?,
        top_k: json::count(&json.value, "top_k")?,
        top_p: float("top_p")?,
        min_p: float("min_p")?,
        repetition_penalty: float("repetition_penalty")?,
    };
    defaults.set("", &stated)?;
    defaults.end_tokens = end_tokens(&json.value, vocab)?;
    Ok(())
}

/// `eos_token_id`: a number or a list of numbers.
fn end_tokens(json: &Value, vocab: usize) -> Result<Vec<u32>, Fault> {
    let field = "eos_token_id";
    let values = match json.get(field) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(values)) => values.as_slice(),
        Some(value) => std::slice::from_ref(value),
    };
    values
        .iter()
        .map(|value| {
            value
                .as_u64()
                .filter(|token| *token < vocab as u64)
                .map(|token| token as u32)
                .ok_or_else(|| Fault::new(field, value, format_args!("ids below {vocab}")))
        })
        .collect()
}
