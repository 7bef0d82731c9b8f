//! How a model is to be served. Words from configuration are read by `FromStr`, whose errors say which words are allowed.

use std::{path::PathBuf, str::FromStr};

pub use crate::prompt::ToolsMode;

/// Everything [`super::Backend::load`] needs to know.
#[derive(Clone, Debug)]
pub struct BackendOptions {
    /// A `.gguf` file (the first one of a split model) or a Hugging Face folder.
    pub model: PathBuf,
    pub device: DeviceChoice,
    /// Tokens of the window. `None`: as many as the model was trained for and memory allows.
    pub context_length: Option<usize>,
    /// Sequences decoded side by side.
    pub max_batch: usize,
    /// Requests that may wait; one more is refused.
    pub max_queue: usize,
    /// `None`: one a physical core that this process may use.
    pub threads: Option<usize>,
    pub kv_cache: KvCache,
    /// `None`: nothing is kept over a restart.
    pub warm_start: Option<WarmStart>,
    pub tools: ToolsMode,
}

impl BackendOptions {
    /// Defaults for everything but the model.
    pub fn new(model: PathBuf) -> BackendOptions {
        BackendOptions {
            model,
            device: DeviceChoice::Auto,
            context_length: None,
            max_batch: 8,
            max_queue: 64,
            threads: None,
            kv_cache: KvCache::Auto,
            warm_start: None,
            tools: ToolsMode::Auto,
        }
    }
}

/// Where the KV pages of long stable prefixes are kept over a restart.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WarmStart {
    pub dir: PathBuf,
    pub max_bytes: u64,
}

/// Which processor.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum DeviceChoice {
    /// The best one there is.
    #[default]
    Auto,
    Cpu,
    /// The CUDA device of this number.
    Cuda(usize),
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(word: &str) -> Result<DeviceChoice, String> {
        match word {
            "auto" => Ok(DeviceChoice::Auto),
            "cpu" => Ok(DeviceChoice::Cpu),
            "cuda" => Ok(DeviceChoice::Cuda(0)),
            _ => word
                .strip_prefix("cuda:")
                .and_then(|number| number.parse().ok())
                .map(DeviceChoice::Cuda)
                .ok_or_else(|| format!("\"{word}\" came; auto, cpu, cuda and cuda:N are allowed")),
        }
    }
}

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum KvCache {
    /// What the device does best without loss that could be measured.
    #[default]
    Auto,
    F32,
    F16,
    Bf16,
    Q8,
}

impl FromStr for KvCache {
    type Err = String;

    fn from_str(word: &str) -> Result<KvCache, String> {
        match word {
            "auto" => Ok(KvCache::Auto),
            "f32" => Ok(KvCache::F32),
            "f16" => Ok(KvCache::F16),
            "bf16" => Ok(KvCache::Bf16),
            "q8" => Ok(KvCache::Q8),
            _ => Err(format!(
                "\"{word}\" came; auto, f32, f16, bf16 and q8 are allowed"
            )),
        }
    }
}

impl FromStr for ToolsMode {
    type Err = String;

    fn from_str(word: &str) -> Result<ToolsMode, String> {
        match word {
            "auto" => Ok(ToolsMode::Auto),
            "full" => Ok(ToolsMode::Full),
            "compact" => Ok(ToolsMode::Compact),
            "off" => Ok(ToolsMode::Off),
            _ => Err(format!(
                "\"{word}\" came; auto, full, compact and off are allowed"
            )),
        }
    }
}
