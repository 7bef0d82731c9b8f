//! How much memory a model will take, computed before anything is loaded, and compared with what the machine has left.
//!
//! Weights and KV pages are as large as the device says it will make them ([`crate::cpu::Cpu::plan`]); scratch is what one step needs.

use std::fmt;

use super::config::LlamaConfig;
use crate::device::PAGE_TOKENS;

mod available;
mod split;

pub use available::{Available, available};
pub use split::{Split, splits};

/// How keys and values are kept.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum KvFormat {
    F32,
    #[default]
    F16,
    Bf16,
    /// One f16 scale for each 32 numbers of a head; `head_dim` must be a multiple of 32.
    Q8_0,
}

impl KvFormat {
    pub const ALL: [KvFormat; 4] = [KvFormat::F32, KvFormat::F16, KvFormat::Bf16, KvFormat::Q8_0];

    /// As a configuration names it: `f16`, `q8_0`.
    pub fn name(self) -> &'static str {
        match self {
            KvFormat::F32 => "f32",
            KvFormat::F16 => "f16",
            KvFormat::Bf16 => "bf16",
            KvFormat::Q8_0 => "q8_0",
        }
    }

    pub fn from_name(name: &str) -> Option<KvFormat> {
        KvFormat::ALL
            .into_iter()
            .find(|format| format.name() == name)
    }
}

impl fmt::Display for KvFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What the engine will be asked to hold at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PlanOptions {
    /// Tokens of one sequence.
    pub context: usize,
    /// Sequences that can have a full context at the same time.
    pub sequences: usize,
    pub kv: KvFormat,
    /// Most tokens of one forward pass.
    pub batch_tokens: usize,
    /// Most rows of logits of one forward pass.
    pub rows: usize,
}

impl Default for PlanOptions {
    fn default() -> PlanOptions {
        PlanOptions {
            context: 8192,
            sequences: 1,
            kv: KvFormat::F16,
            batch_tokens: 512,
            rows: 32,
        }
    }
}

/// Bytes, by what they are for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MemoryPlan {
    pub weights: u64,
    /// `pages * page_bytes`
    pub kv: u64,
    /// Activations of one step and its rows of logits.
    pub scratch: u64,
    /// Pages of [`PAGE_TOKENS`] tokens.
    pub pages: u64,
    pub page_bytes: u64,
    pub options: PlanOptions,
}

impl MemoryPlan {
    /// `weights` and `page_bytes`: bytes of all weights and of a page, as a device keeps them.
    pub fn new(
        config: &LlamaConfig,
        weights: u64,
        page_bytes: u64,
        options: PlanOptions,
    ) -> MemoryPlan {
        let pages = (options.context as u64)
            .div_ceil(PAGE_TOKENS as u64)
            .saturating_mul(options.sequences as u64);
        MemoryPlan {
            weights,
            kv: pages.saturating_mul(page_bytes),
            scratch: scratch_bytes(config, &options),
            pages,
            page_bytes,
            options,
        }
    }

    pub fn total(&self) -> u64 {
        self.weights
            .saturating_add(self.kv)
            .saturating_add(self.scratch)
    }

    /// Most pages that fit into `available` bytes beside weights and scratch.
    pub fn most_pages(&self, available: u64) -> u64 {
        let left = available.saturating_sub(self.weights.saturating_add(self.scratch));
        left / self.page_bytes.max(1)
    }

    /// Fails if the plan needs more than there is. To be called before loading.
    pub fn check(&self, available: &Available) -> Result<(), PlanError> {
        if self.total() <= available.bytes {
            return Ok(());
        }
        Err(PlanError {
            plan: Box::new(self.clone()),
            available: *available,
        })
    }
}

/// f32 activations of a batch (residual stream and its norm, queries, attention output, keys and values, gate and up), an int8 copy of the widest
/// input, attention scores of one head a token, and the rows of logits.
fn scratch_bytes(config: &LlamaConfig, options: &PlanOptions) -> u64 {
    let (q, kv) = (
        config.heads * config.head_dim,
        config.kv_heads * config.head_dim,
    );
    let a_token = 4 * (2 * config.hidden + 2 * q + 2 * kv + 2 * config.ffn + options.context)
        + config.ffn.max(config.hidden).max(q);
    let tokens = (a_token as u64).saturating_mul(options.batch_tokens as u64);
    let logits = (4 * config.vocab as u64).saturating_mul(options.rows as u64);
    tokens.saturating_add(logits)
}

/// The plan does not fit. The message has the numbers and what to lower.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PlanError {
    pub plan: Box<MemoryPlan>,
    pub available: Available,
}

impl std::error::Error for PlanError {}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = &self.plan;
        write!(
            f,
            "the model needs {} ({} weights, {} KV cache of {} × {} tokens in {}, {} scratch), but {} has {} left: ",
            Bytes(plan.total()),
            Bytes(plan.weights),
            Bytes(plan.kv),
            plan.options.sequences,
            plan.options.context,
            plan.options.kv,
            Bytes(plan.scratch),
            self.available.source,
            Bytes(self.available.bytes),
        )?;
        let tokens = plan.most_pages(self.available.bytes) * PAGE_TOKENS as u64;
        if tokens == 0 {
            write!(
                f,
                "take a smaller model or a smaller format of it, or free memory"
            )
        } else {
            write!(
                f,
                "lower the context length or the number of sequences to {tokens} tokens together, or keep the KV cache in a smaller format"
            )
        }
    }
}

/// Bytes for people: `91.6 MiB`.
#[derive(Clone, Copy, Debug)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        let text = match self.0 {
            0..1024 => format!("{} B", self.0),
            1024..1_048_576 => format!("{:.1} KiB", bytes / 1024.0),
            1_048_576..1_073_741_824 => format!("{:.1} MiB", bytes / 1_048_576.0),
            _ => format!("{:.2} GiB", bytes / 1_073_741_824.0),
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::config::{Rope, RopeLayout, RopeScaling};

    /// Of SmolLM2-135M in f16.
    const PAGE: u64 = 16 * 23040;

    /// SmolLM2-135M.
    fn config() -> LlamaConfig {
        LlamaConfig {
            vocab: 49152,
            layers: 30,
            hidden: 576,
            ffn: 1536,
            heads: 9,
            kv_heads: 3,
            head_dim: 64,
            context: 8192,
            norm_eps: 1e-5,
            rope: Rope {
                base: 100_000.0,
                dim: 64,
                layout: RopeLayout::Interleaved,
                scaling: RopeScaling::None,
            },
            tied_embeddings: true,
        }
    }

    #[test]
    fn a_plan_that_fits_is_accepted_and_one_byte_less_is_not() {
        let plan = MemoryPlan::new(&config(), 98_000_000, PAGE, PlanOptions::default());
        assert_eq!(plan.kv, 512 * PAGE);
        assert_eq!(plan.total(), plan.weights + plan.kv + plan.scratch);
        let room = |bytes| Available {
            bytes,
            source: "this machine",
        };
        assert_eq!(plan.check(&room(plan.total())), Ok(()));
        assert!(plan.check(&room(plan.total() - 1)).is_err());
        assert_eq!(plan.most_pages(plan.total()), 512);
        assert_eq!(plan.most_pages(plan.total() - 1), 511);
        assert_eq!(plan.most_pages(0), 0);
    }

    #[test]
    fn a_refusal_names_the_numbers_and_what_to_lower() {
        let plan = MemoryPlan::new(&config(), 98_000_000, PAGE, PlanOptions::default());
        let available = Available {
            bytes: 200 << 20,
            source: "this machine",
        };
        let message = plan.check(&available).unwrap_err().to_string();
        for part in [
            "93.5 MiB weights",
            "180.0 MiB KV cache of 1 × 8192 tokens in f16",
            "this machine has 200.0 MiB left",
            "lower the context length",
        ] {
            assert!(message.contains(part), "{part} in {message}");
        }
        let available = Available {
            bytes: 50 << 20,
            source: "the control group",
        };
        let message = plan.check(&available).unwrap_err().to_string();
        assert!(message.contains("smaller model"), "{message}");
    }

    #[test]
    fn absurd_options_saturate_and_are_refused() {
        let options = PlanOptions {
            sequences: usize::MAX,
            batch_tokens: usize::MAX,
            rows: usize::MAX,
            ..PlanOptions::default()
        };
        let plan = MemoryPlan::new(&config(), u64::MAX, PAGE, options);
        assert_eq!(plan.total(), u64::MAX);
    }
}
