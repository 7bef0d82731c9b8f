//! How a model is to be served.

use std::{path::PathBuf, time::Duration};

use crate::prompt::RENDERING;
pub use crate::prompt::ToolsMode;

/// Everything [`super::Backend::load`] needs to know.
#[derive(Clone, Debug)]
pub struct BackendOptions {
    /// A `.gguf` file (the first one of a split model) or a Hugging Face folder.
    pub model: PathBuf,
    pub device: DeviceChoice,
    /// Tokens of the window, at most those the model was trained for. `None`: as many of them as memory allows.
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
    /// Text without a client's limit that only repeats itself is ended, as if the model had.
    pub end_loops: bool,
    /// A prompt that takes longer to be made never ends, and ends the engine.
    pub prompt_patience: Duration,
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
            end_loops: true,
            prompt_patience: RENDERING,
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

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum KvCache {
    /// [`KvCache::Q8`], or [`KvCache::F16`] where heads are not made of blocks of 32 numbers.
    #[default]
    Auto,
    F32,
    F16,
    Bf16,
    Q8,
}
