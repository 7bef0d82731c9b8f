//! The window and the pool of KV pages. What was asked for must fit; what was not is chosen so that it does.

use super::{BackendOptions, KvCache, LoadError};
use crate::{
    cpu::Cpu,
    device::PAGE_TOKENS,
    model::{
        Model,
        plan::{Available, KvFormat, MemoryPlan, PlanOptions},
    },
};

/// Most tokens of a forward pass.
const BATCH_TOKENS: usize = 512;
/// A window that was not asked for is a multiple of this.
const CONTEXT_STEP: usize = 1024;
/// Rows of logits that a sequence may want of a step: the next token's, and those that check a draft of usual length.
const ROWS_A_SEQUENCE: usize = 4;
/// So that a sequence alone can check the longest draft.
const FEWEST_ROWS: usize = 32;

/// The whole window once at least, and as often as sequences may run, as long as that is no more than half of what is left. Where the system does not
/// say how much that is (`None`), the window once.
///
/// # Errors
/// The window that was asked for is longer than the model was trained for, or does not fit.
pub(super) fn plan(
    model: &Model,
    options: &BackendOptions,
    available: Option<Available>,
) -> Result<MemoryPlan, LoadError> {
    let trained = model.config.context;
    let context = options.context_length.unwrap_or(trained);
    if context > trained {
        let problem =
            format!("is {context}; at most {trained} is allowed, what this model was trained for");
        return Err(LoadError::Option {
            option: "context length",
            problem,
        });
    }
    let once = PlanOptions {
        context,
        sequences: 1,
        kv: format(options.kv_cache, model),
        batch_tokens: BATCH_TOKENS,
        rows: (ROWS_A_SEQUENCE * options.max_batch).max(FEWEST_ROWS),
    };
    let mut plan = Cpu::plan(model, once);
    let Some(available) = available else {
        return Ok(plan);
    };
    if options.context_length.is_none() && plan.check(&available).is_err() {
        let most = plan.most_pages(available.bytes) as usize * PAGE_TOKENS;
        let context = most / CONTEXT_STEP * CONTEXT_STEP;
        plan = Cpu::plan(
            model,
            PlanOptions {
                context: context.max(CONTEXT_STEP),
                ..once
            },
        );
    }
    plan.check(&available)
        .map_err(|error| LoadError::Memory(error.to_string()))?;
    let sequences = sequences(&plan, &available, options.max_batch);
    Ok(Cpu::plan(
        model,
        PlanOptions {
            sequences,
            ..plan.options
        },
    ))
}

fn sequences(once: &MemoryPlan, available: &Available, most: usize) -> usize {
    let fit = once.most_pages(available.bytes / 2) / once.pages.max(1);
    (fit as usize).clamp(1, most)
}

fn format(kv: KvCache, model: &Model) -> KvFormat {
    match kv {
        KvCache::Auto => Cpu::usual_kv(&model.config),
        KvCache::F16 => KvFormat::F16,
        KvCache::F32 => KvFormat::F32,
        KvCache::Bf16 => KvFormat::Bf16,
        KvCache::Q8 => KvFormat::Q8_0,
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;
    use crate::testing::TinyLlama;

    const TRAINED: usize = 8192;

    fn model() -> Model {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tiny.gguf");
        let tiny = TinyLlama {
            context: TRAINED,
            ..TinyLlama::default()
        };
        tiny.write_gguf(&path).unwrap();
        crate::model::open(&path).unwrap()
    }

    fn options(context_length: Option<usize>) -> BackendOptions {
        BackendOptions {
            context_length,
            ..BackendOptions::new("tiny.gguf".into())
        }
    }

    fn room(bytes: u64) -> Option<Available> {
        Some(Available {
            bytes,
            source: "this machine",
        })
    }

    #[test]
    fn a_window_longer_than_the_model_was_trained_for_is_refused_with_both_numbers() {
        let model = model();
        let planned = |context| plan(&model, &options(context), room(1 << 40));
        assert_eq!(
            planned(Some(TRAINED + 1)).unwrap_err().to_string(),
            "context length: is 8193; at most 8192 is allowed, what this model was trained for"
        );
        for (asked, runs) in [(Some(TRAINED), TRAINED), (Some(100), 100), (None, TRAINED)] {
            assert_eq!(planned(asked).unwrap().options.context, runs);
        }
    }

    #[test]
    fn a_window_that_was_asked_for_must_fit_and_one_that_was_not_is_made_to() {
        let model = model();
        let whole = plan(&model, &options(Some(TRAINED)), None).unwrap();
        assert_eq!(whole.options.sequences, 1);
        // A byte too little for it.
        let little = room(whole.total() - 1);
        let refused = plan(&model, &options(Some(TRAINED)), little).unwrap_err();
        assert!(matches!(refused, LoadError::Memory(_)), "{refused}");
        assert!(
            refused.to_string().contains("this machine has"),
            "{refused}"
        );
        let chosen = plan(&model, &options(None), little).unwrap();
        assert_eq!(chosen.options.context, TRAINED - CONTEXT_STEP);
        assert!(plan(&model, &options(None), room(0)).is_err());
    }

    #[test]
    fn sequences_side_by_side_take_no_more_than_half_of_what_is_left() {
        let model = model();
        let once = plan(&model, &options(None), None).unwrap();
        for (windows, sequences) in [(1, 1), (3, 3), (100, 8)] {
            let half = once.weights + once.scratch + windows * once.kv;
            let planned = plan(&model, &options(None), room(2 * half)).unwrap();
            assert_eq!(planned.options.sequences, sequences);
        }
    }
}
