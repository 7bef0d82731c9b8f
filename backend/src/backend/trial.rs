//! A first step before anybody waits for one: weights that are finite each can still overflow together (a norm of 1e30, say), and such a model is refused
//! when it is loaded, not by its first request.

use super::LoadError;
use crate::{
    device::{Device, DeviceError, PAGE_TOKENS, PageId, Span},
    model::OneLine,
};

/// More than one position, so that attention has something to weigh; few, since every start waits for it.
const TOKENS: usize = 4;
/// Characters of a path.
const PATH: usize = 1000;

/// Runs `bos`, or the first token of the vocabulary, and those after it through `device`, in page 0. Nothing is left behind that anybody reads.
///
/// # Errors
/// Logits that are not finite are the fault of `file`; a device that cannot compute them is its own.
pub(super) fn run(device: &mut dyn Device, bos: Option<u32>, file: &str) -> Result<(), LoadError> {
    let caps = device.caps();
    let vocab = caps.vocab;
    let most = TOKENS
        .min(PAGE_TOKENS)
        .min(caps.max_batch_tokens)
        .min(caps.max_rows)
        .min(vocab);
    let first = bos.filter(|token| (*token as usize) < vocab).unwrap_or(0);
    let tokens: Vec<u32> = (first..vocab as u32).chain(0..first).take(most).collect();
    let broken = |error: DeviceError| LoadError::Device {
        asked: error.device,
        problem: error.message,
    };
    let span = Span {
        tokens: &tokens,
        past: 0,
        pages: &[PageId(0)],
        rows: tokens.len(),
    };
    device.forward(&[span]).map_err(broken)?;
    let mut logits = vec![0.0; vocab];
    for row in 0..tokens.len() {
        device.logits(row, &mut logits).map_err(broken)?;
        if let Some(found) = fault(&logits) {
            return Err(LoadError::Model(format!(
                "{}: logits of a trial step: found {found}; supported: finite numbers that differ, so weights that do not overflow",
                OneLine(file, PATH)
            )));
        }
    }
    Ok(())
}

/// A norm of numbers whose squares overflow is nothing but noughts, and so are the logits.
fn fault(logits: &[f32]) -> Option<String> {
    if let Some(logit) = logits.iter().find(|logit| !logit.is_finite()) {
        return Some(logit.to_string());
    }
    let (first, others) = logits.split_first()?;
    let is_flat = !others.is_empty() && others.iter().all(|logit| logit == first);
    is_flat.then(|| format!("{first} for every token"))
}
