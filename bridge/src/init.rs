//! `--init`: writes a bridge configuration, and the Codex configuration and model catalog that go with it.
//!
//! Either all three files appear or none: nothing is overwritten without `--force`, and a rename that fails takes
//! the earlier ones back.

mod bridge_config;
mod codex_config;
mod error;
mod files;
mod model;

use std::path::{Path, PathBuf};

use serde_json::json;

pub use self::error::Error;
use self::model::Model;
use crate::{codex_model::CodexModel, config::Loaded};

/// What the user said about the model; the rest is asked or assumed.
#[derive(Debug, Clone, Default)]
pub struct Wishes {
    pub directory: PathBuf,
    pub force: bool,
    pub model: Option<String>,
    pub context: Option<u64>,
}

impl Wishes {
    /// The user said everything that has to be known of a model server.
    fn need_no_answer(&self) -> bool {
        self.model.is_some() && self.context.is_some()
    }
}

/// Writes the files and returns what to tell the user, one thought a line.
///
/// # Errors
/// Nothing was written.
pub async fn run(wishes: &Wishes, loaded: &Loaded) -> Result<Vec<String>, Error> {
    let directory =
        std::path::absolute(&wishes.directory).map_err(|source| files::Error::Directory {
            directory: wishes.directory.clone(),
            source,
        })?;
    let (model, notes) = Model::find(wishes, &loaded.config.upstream).await?;
    let contents = [
        (
            "bridge.config.json",
            bridge_config::render(loaded, wishes.context),
        ),
        (
            "codex.config.toml",
            codex_config::render(&model, loaded, &directory.join("model-catalog.json")),
        ),
        ("model-catalog.json", catalog(&model)),
    ];
    files::write_all(&directory, &contents, wishes.force)?;
    Ok(told(&directory, &contents, notes, loaded))
}

fn catalog(model: &Model) -> String {
    let entry = CodexModel {
        slug: &model.name,
        context: Some(model.context),
        vision: model.vision,
        parallel_calls: true,
    };
    format!("{:#}\n", json!({ "models": [entry.entry(1)] }))
}

fn told(
    directory: &Path,
    contents: &[(&str, String)],
    mut notes: Vec<String>,
    loaded: &Loaded,
) -> Vec<String> {
    notes.extend(
        contents
            .iter()
            .map(|(name, _)| format!("wrote {}", directory.join(name).display())),
    );
    notes.extend(bridge_config::uncopied_keys(loaded).map(|(key, variable)| {
        format!("{key} was not copied: put the key into the environment variable {variable}, or change the file")
    }));
    notes.push(format!(
        "start the bridge: codex-bridge {}",
        directory.join("bridge.config.json").display()
    ));
    notes.push("set up Codex: copy codex.config.toml to config.toml in ~/.codex, or in a folder named by CODEX_HOME".to_owned());
    notes
}
