//! The handle on the engine's thread: requests go in by a bounded queue, what each generates comes back by its own bounded channel.
//!
//! ```text
//! submit ─→ inbox ─→ worker: schedule → device.forward ‖ masks → device.sample → accept ─→ Generation
//! ```
//!
//! Invariants: one OS thread owns the device; at most `max_running + max_queued` requests are open; a client that doesn't read pauses its own sequence and
//! nobody else's; dropping a [`Generation`] cancels it at the next step; whatever happens, a generation that isn't dropped ends with [`request::Output::Finished`].

pub mod constraint;
mod cost;
mod draft;
mod handle;
mod masks;
pub mod request;
mod scheduler;
mod sequence;
mod shared;
mod step;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod warm;
mod worker;

use std::{path::PathBuf, time::Duration};

pub use handle::{Engine, Generation};

/// Limits of an engine, fixed when it starts.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Most tokens of a sequence, prompt and output together. Lowered to what the device's pages can hold.
    pub context: usize,
    /// Sequences that run at once. Lowered to the rows of logits the device can leave.
    pub max_running: usize,
    /// Requests that may wait beside the running ones; one more is refused.
    pub max_queued: usize,
    /// Outputs held for a client that does not read, before its sequence pauses. At least 4.
    pub output_buffer: usize,
    /// How long a step may take while a stream waits for its next token. Prompts are cut into chunks to keep it.
    pub step_target: Duration,
    /// Guess tokens from repeated text and check them together. Changes the speed, never the output.
    pub drafts: bool,
    /// Threads that compute token masks beside the forward pass.
    pub mask_workers: usize,
    /// `None`: nothing is kept on disk.
    pub warm_start: Option<WarmStart>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions {
            context: 8192,
            max_running: 16,
            max_queued: 64,
            output_buffer: 64,
            step_target: Duration::from_millis(250),
            drafts: true,
            mask_workers: 2,
            warm_start: None,
        }
    }
}

/// Where the keys and values of stable prefixes outlive the process.
#[derive(Clone, Debug)]
pub struct WarmStart {
    /// Made when missing. One running engine at a time uses it; a second one goes without.
    pub dir: PathBuf,
    /// Bytes of all files together; the least recently used go first.
    pub max_bytes: u64,
    /// Identifies the weights: pages of another model are not read.
    pub model: String,
    /// Shorter prefixes are not worth a file.
    pub min_tokens: usize,
}

/// A look at the engine, taken after its latest step. Counters run from the start of the engine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineStatus {
    /// False once the device failed; `failure` says how.
    pub healthy: bool,
    pub failure: Option<String>,
    /// The device, for people.
    pub device: String,
    /// Most tokens of a sequence, prompt and output together.
    pub context: usize,
    /// Requests that wait for a place, preempted ones included.
    pub queued: usize,
    /// Sequences that have a place, those still in their prompt included.
    pub running: usize,
    pub pages_total: usize,
    /// Pages that sequences hold.
    pub pages_used: usize,
    /// Pages kept for later prompts; free as soon as they are needed.
    pub pages_cached: usize,
    pub steps: u64,
    /// Prompt tokens run through the model.
    pub prompt_tokens: u64,
    /// Prompt tokens found in the cache instead.
    pub cached_tokens: u64,
    pub generated_tokens: u64,
    /// Guessed by prompt lookup.
    pub drafted_tokens: u64,
    /// Of `drafted_tokens`, right.
    pub accepted_tokens: u64,
    /// Appended without a draw, since a grammar left no choice.
    pub forced_tokens: u64,
    pub finished: u64,
    pub cancelled: u64,
    /// Cached pages given up for new ones.
    pub evictions: u64,
    /// Sequences sent back to the queue for want of pages.
    pub preemptions: u64,
    /// Stable prefixes written to disk.
    pub prefixes_stored: u64,
    /// Stable prefixes read back from disk.
    pub prefixes_loaded: u64,
}
