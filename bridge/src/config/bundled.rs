//! What the bundled engine is to serve, and how. The engine's own options are made of it in `upstream::bundled`, the
//! one place that knows the engine.

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use super::{Environment, Secret};

/// The bundled engine, as configured.
#[derive(Debug, Clone)]
pub struct BundledUpstream {
    /// A path, an alias, `hf:…` or `pip:…`; see [`crate::pull`].
    pub model: String,
    pub device: Device,
    /// Tokens of the window; `None` leaves it to the model and the memory there is.
    pub context_length: Option<usize>,
    /// Sequences decoded side by side.
    pub max_batch: usize,
    /// Requests that may wait beyond those.
    pub max_queue: usize,
    /// `None`: one a core.
    pub threads: Option<usize>,
    pub kv_cache: KvCache,
    pub tools: ToolsMode,
    /// Text without a client's limit that only repeats itself is ended.
    pub end_loops: bool,
    /// Where the cache of standing prompts is kept over a restart; `None`: nowhere.
    pub warm_start: Option<WarmStart>,
    /// How long a request waits for a model that is being fetched or loaded; `None` fails at once.
    pub wait_for_ready: Option<Duration>,
    pub places: Places,
}

/// A folder and the most bytes in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WarmStart {
    pub folder: PathBuf,
    pub max_bytes: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    #[default]
    Auto,
    Cpu,
}

/// Number format of keys and values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KvCache {
    #[default]
    Auto,
    F32,
    F16,
    Bf16,
    Q8,
}

/// How tools are shown to the model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolsMode {
    /// Compact for small models.
    #[default]
    Auto,
    /// Each with its JSON schema.
    Full,
    /// Each as one line.
    Compact,
    /// Not at all.
    Off,
}

/// What the environment says about where models are kept and fetched.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// `$XDG_DATA_HOME/codex-bridge/models` or `~/.local/share/codex-bridge/models`; `None` without a home.
    pub models: Option<PathBuf>,
    /// `$XDG_CACHE_HOME/codex-bridge/warm-start` or `~/.cache/codex-bridge/warm-start`.
    pub warm_start: Option<PathBuf>,
    pub home: Option<PathBuf>,
    /// `HF_ENDPOINT`, for mirrors of Hugging Face.
    pub hugging_face: Option<String>,
    /// `HF_TOKEN`, for models behind a licence.
    pub hugging_face_token: Option<Secret>,
}

impl Places {
    pub fn new(environment: &Environment) -> Self {
        // One that is not UTF-8 counts as not set: a path of ours could not be told to the user.
        let set = |name: &str| {
            let value = environment.get(name).ok().flatten();
            value.filter(|value| !value.is_empty())
        };
        let home = set("HOME").map(PathBuf::from);
        // A relative path there is invalid and to be ignored (XDG Base Directory Specification 0.8).
        let xdg = |name: &str, below_home: &str| {
            set(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
                .or_else(|| Some(home.as_ref()?.join(below_home)))
                .map(|base| base.join("codex-bridge"))
        };
        Self {
            models: xdg("XDG_DATA_HOME", ".local/share").map(|base| base.join("models")),
            warm_start: xdg("XDG_CACHE_HOME", ".cache").map(|base| base.join("warm-start")),
            hugging_face: set("HF_ENDPOINT").map(str::to_owned),
            hugging_face_token: set("HF_TOKEN").map(Secret::new),
            home,
        }
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    fn places(variables: &[(&str, &str)]) -> Places {
        Places::new(
            &variables
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        )
    }

    #[test]
    fn models_are_kept_where_the_desktop_specification_says() {
        let models = |variables: &[(&str, &str)]| places(variables).models;
        assert_eq!(
            models(&[("XDG_DATA_HOME", "/data"), ("HOME", "/home/a")]),
            Some("/data/codex-bridge/models".into())
        );
        assert_eq!(
            models(&[("XDG_DATA_HOME", "relative"), ("HOME", "/home/a")]),
            Some("/home/a/.local/share/codex-bridge/models".into())
        );
        assert_eq!(models(&[("HOME", "")]), None);
    }

    #[test]
    fn the_token_does_not_show() {
        let shown = format!("{:?}", places(&[("HF_TOKEN", "hf_secret")]));
        assert!(!shown.contains("hf_secret"), "{shown}");
    }
}
