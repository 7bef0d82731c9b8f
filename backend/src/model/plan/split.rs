//! What each of several devices would hold of a model that is divided among them: tensor parallel as in Megatron-LM (Shoeybi et al. 2019,
//! arXiv:1909.08053). Queries, keys, values, gate, up, embedding and output are divided by rows, the two products behind them by columns; norms are on
//! every device. Each keeps the keys and values of its own heads.

use super::MemoryPlan;
use crate::model::config::LlamaConfig;

/// How many devices are tried.
const DEVICES: [usize; 3] = [2, 4, 8];
/// Columns of the largest block of a quantized format; a block is never cut in two.
const BLOCK: usize = 256;

/// One way to divide a model.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Split {
    pub devices: usize,
    /// What each of them holds.
    pub each: MemoryPlan,
}

/// The ways to divide the model evenly, for 2, 4 and 8 devices. `whole` is the plan for one.
pub fn splits(config: &LlamaConfig, whole: &MemoryPlan) -> Vec<Split> {
    let split = |devices: usize| {
        let part = part(config, devices)?;
        // Two a layer and the last one, in f32.
        let norms = (4 * (2 * config.layers + 1) * config.hidden) as u64;
        let matrices = whole.weights.saturating_sub(norms);
        let weights = matrices.div_ceil(devices as u64) + norms;
        let page_bytes = whole.page_bytes / devices as u64;
        let each = MemoryPlan::new(&part, weights, page_bytes, whole.options);
        Some(Split { devices, each })
    };
    DEVICES.into_iter().filter_map(split).collect()
}

/// The model as one of `devices` sees it; `None` if it cannot be divided by so many.
fn part(config: &LlamaConfig, devices: usize) -> Option<LlamaConfig> {
    let of = |whole: usize, unit: usize| {
        whole
            .is_multiple_of(devices * unit)
            .then_some(whole / devices)
    };
    let heads = of(config.heads, 1)?;
    of(config.heads * config.head_dim, BLOCK)?;
    Some(LlamaConfig {
        heads,
        kv_heads: of(config.kv_heads, 1)?,
        ffn: of(config.ffn, BLOCK)?,
        vocab: config.vocab.div_ceil(devices),
        ..config.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        config::{Rope, RopeLayout, RopeScaling},
        plan::{KvFormat, PlanOptions},
    };

    fn llama(heads: usize, kv_heads: usize, ffn: usize) -> LlamaConfig {
        LlamaConfig {
            vocab: 128_256,
            layers: 80,
            hidden: heads * 128,
            ffn,
            heads,
            kv_heads,
            head_dim: 128,
            context: 131_072,
            norm_eps: 1e-5,
            rope: Rope {
                base: 500_000.0,
                dim: 128,
                layout: RopeLayout::Halves,
                scaling: RopeScaling::None,
            },
            tied_embeddings: false,
        }
    }

    fn plan(config: &LlamaConfig, weights: u64) -> MemoryPlan {
        let options = PlanOptions {
            context: 32_768,
            kv: KvFormat::Bf16,
            ..PlanOptions::default()
        };
        // Keys and values of 16 tokens.
        let page = (16 * 2 * 2 * config.layers * config.kv_heads * config.head_dim) as u64;
        MemoryPlan::new(config, weights, page, options)
    }

    #[test]
    fn llama_3_70b_goes_on_2_4_and_8_devices() {
        let config = llama(64, 8, 28_672);
        let whole = plan(&config, 42_500_000_000);
        let splits = splits(&config, &whole);
        let devices: Vec<usize> = splits.iter().map(|split| split.devices).collect();
        assert_eq!(devices, [2, 4, 8]);
        let norms = 4 * 161 * 8192;
        for Split { devices, each } in &splits {
            let count = *devices as u64;
            assert_eq!(each.kv * count, whole.kv);
            assert_eq!(each.weights, (whole.weights - norms) / count + norms);
            // The residual stream is on each, so the parts are more than the whole.
            assert!(each.scratch * count > whole.scratch && each.scratch < whole.scratch);
            assert_eq!(each.options, whole.options);
        }
    }

    #[test]
    fn heads_and_blocks_are_never_cut() {
        let devices = |config: LlamaConfig| -> Vec<usize> {
            let whole = plan(&config, 1 << 30);
            let splits = splits(&config, &whole);
            splits.iter().map(|split| split.devices).collect()
        };
        assert_eq!(devices(llama(32, 8, 14_336)), [2, 4, 8]);
        assert_eq!(devices(llama(32, 2, 14_336)), [2]);
        assert_eq!(devices(llama(9, 3, 14_336)), [0; 0]);
        assert_eq!(devices(llama(32, 8, 14_336 + 256)), [0; 0]);
        assert_eq!(devices(llama(32, 8, 5_632)), [2]);
    }
}
