//! Opens GGUF files of architecture `llama`, versions 2 and 3, in one part or split.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    GenerationDefaults, Model, ModelError, TokenizerSource,
    bind::{Found, Tensors},
    config::LlamaConfig,
    error::{Fault, unreadable},
    file::Mapped,
    finite, identity,
    names::Naming,
};

mod container;
mod cursor;
mod llama;
mod metadata;
mod split;
mod value;
mod vocabulary;

use container::{Container, MOST_HEAD_BYTES};
use metadata::Metadata;

pub(super) fn open(path: &Path) -> Result<Model, ModelError> {
    let first = map(path)?;
    let container =
        Container::parse(&first, MOST_HEAD_BYTES).map_err(|fault| fault.in_file(path))?;
    let parts = split::parts(path, &container.metadata).map_err(|fault| fault.in_file(path))?;

    let mut files = vec![path.to_owned()];
    let mut identity = identity::Identity::default();
    let mut tensors = Tensors::new(Naming::Gguf);
    identity.add(&first, container.head)?;
    collect(&first, &container, &mut tensors).map_err(|fault| fault.in_file(path))?;
    let mut left = MOST_HEAD_BYTES - container.head;
    for (number, part) in parts.iter().enumerate().skip(1) {
        let file = map(part)?;
        let container = Container::parse(&file, left)
            .and_then(|container| {
                split::check(&container.metadata, number, parts.len())?;
                collect(&file, &container, &mut tensors)?;
                Ok(container)
            })
            .map_err(|fault| fault.in_file(part))?;
        left -= container.head;
        identity.add(&file, container.head)?;
        files.push(part.clone());
    }
    assemble(&container, tensors, files, &identity).map_err(|fault| fault.in_file(path))
}

fn map(path: &Path) -> Result<Arc<Mapped>, ModelError> {
    Mapped::open(path)
        .map(Arc::new)
        .map_err(|error| unreadable(path, &error))
}

fn collect(
    file: &Arc<Mapped>,
    container: &Container<'_>,
    tensors: &mut Tensors,
) -> Result<(), Fault> {
    for entry in &container.tensors {
        let found = Found {
            format: entry.format,
            dims: entry.dims.clone(),
            file: Arc::clone(file),
            range: entry.range.clone(),
        };
        tensors.insert(entry.name, found)?;
    }
    Ok(())
}

fn assemble(
    first: &Container<'_>,
    mut tensors: Tensors,
    files: Vec<PathBuf>,
    identity: &identity::Identity,
) -> Result<Model, Fault> {
    let metadata = &first.metadata;
    llama::architecture(metadata)?;
    split::all_there(metadata, tensors.len())?;
    let vocabulary = vocabulary::read(metadata)?;
    let config: LlamaConfig = llama::config(metadata, vocabulary.tokens.len(), &mut tensors)?;
    let weights = tensors.bind(&config)?;
    finite::check(&weights)?;
    Ok(Model {
        tokenizer: TokenizerSource::Gguf(vocabulary),
        chat_template: vocabulary::chat_template(metadata)?,
        generation: generation(metadata)?,
        name: name(metadata, &files[0])?,
        format: weights.main_format().to_string(),
        fingerprint: identity.finish(),
        parameters: weights.parameters(),
        weight_bytes: weights.bytes(),
        files,
        config,
        weights,
    })
}

fn name(metadata: &Metadata<'_>, path: &Path) -> Result<String, Fault> {
    let name = metadata
        .text("general.name")?
        .filter(|name| !name.is_empty());
    Ok(name.map_or_else(
        || {
            path.file_stem()
                .map(|stem| stem.to_string_lossy().into_owned())
                .unwrap_or_default()
        },
        str::to_owned,
    ))
}

/// `general.sampling.*`, written by newer converters from `generation_config.json`.
fn generation(metadata: &Metadata<'_>) -> Result<GenerationDefaults, Fault> {
    let float = |name: &str| metadata.float(&format!("general.sampling.{name}"));
    let top_k = metadata.count("general.sampling.top_k")?;
    let mut generation = GenerationDefaults::default();
    generation.set(
        "general.sampling.",
        &super::Stated {
            temperature: float("temp")?,
            top_k: top_k.map(|count| count as usize),
            top_p: float("top_p")?,
            min_p: float("min_p")?,
            repetition_penalty: float("penalty_repeat")?,
        },
    )?;
    Ok(generation)
}
