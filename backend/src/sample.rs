//! From a row of logits to a token. Order: penalties → mask → temperature → top-k → top-p → min-p → draw.
//!
//! Invariant: a draw is a function of the row, the parameters and the position, so that the same seed gives the same text in any batch and with any
//! draft. Work is linear in the vocabulary: nothing sorts it whole, and greedy without a mask reads it once.

mod penalty;
mod philox;
mod scan;
mod select;
#[cfg(test)]
mod tests;

use crate::device::{SampleRow, TokenMask};

/// How a token is chosen. Neutral values switch a step off, so that `Default` is plain sampling at temperature 1.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// 0: the most likely token (greedy), ties to the lowest id.
    pub temperature: f32,
    /// 0: off.
    pub top_k: usize,
    /// 1: off.
    pub top_p: f32,
    /// 0: off.
    pub min_p: f32,
    /// 1: off. Divides positive and multiplies negative logits of tokens seen before (Keskar et al. 2019, CTRL §4.1), those of the prompt included.
    pub repetition_penalty: f32,
    /// 0: off. Taken once from the logit of each token generated before.
    pub presence_penalty: f32,
    /// 0: off. Taken once for each time the token was generated before.
    pub frequency_penalty: f32,
    pub seed: u64,
}

impl Default for SamplingParams {
    fn default() -> Self {
        SamplingParams {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            seed: 0,
        }
    }
}

impl SamplingParams {
    /// The first field outside of its range, in words.
    pub fn check(&self) -> Result<(), String> {
        let within = |name: &str, value: f32, least: f32, most: f32| {
            if (least..=most).contains(&value) {
                Ok(())
            } else {
                Err(format!("{name} is {value}; {least} to {most} is allowed"))
            }
        };
        within("temperature", self.temperature, 0.0, 100.0)?;
        within("top_p", self.top_p, 0.0, 1.0)?;
        within("min_p", self.min_p, 0.0, 1.0)?;
        within("repetition_penalty", self.repetition_penalty, 0.01, 100.0)?;
        within("presence_penalty", self.presence_penalty, -100.0, 100.0)?;
        within("frequency_penalty", self.frequency_penalty, -100.0, 100.0)
    }
}

/// A drawn token.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    pub token: u32,
    /// Natural log of the token's probability under the model (softmax of the raw logits: before penalties, mask and temperature).
    pub logprob: f32,
    /// The most likely tokens with their logprobs, likeliest first, ties to the lowest id.
    pub top: Vec<(u32, f32)>,
}

/// Why no token could be drawn from a row.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SampleError {
    /// A logit is NaN, or none is finite, or one is +∞: the model's numbers are broken.
    #[error("a row of logits holds {0}, not numbers a model gives")]
    Broken(&'static str),
    /// The mask leaves no token of finite logit.
    #[error("the token mask allows no token")]
    NothingAllowed,
}

/// Buffers of [`pick`], kept from row to row; one a thread.
#[derive(Debug, Default)]
pub struct Scratch {
    penalties: penalty::Scratch,
    candidates: Vec<select::Candidate>,
}

/// Draws a token from a row of logits, `[vocab]`. The logits are the same afterwards.
pub fn pick(
    logits: &mut [f32],
    row: &SampleRow<'_>,
    scratch: &mut Scratch,
) -> Result<Sampled, SampleError> {
    let raw = scan::scan(logits)?;
    let mut top = scan::largest(logits, row.top_logprobs);
    for (_, value) in &mut top {
        *value = raw.logprob(*value);
    }
    let penalised = scratch.penalties.apply(logits, row);
    let chosen = if row.params.temperature <= 0.0 {
        greedy(logits, row.mask, (!penalised).then_some(raw.argmax))
    } else {
        draw(logits, row, &mut scratch.candidates)
    };
    scratch.penalties.restore(logits);
    let token = chosen?;
    Ok(Sampled {
        token,
        logprob: raw.logprob(logits[token as usize]),
        top,
    })
}

/// The most likely allowed token; `unmasked` is the answer where nothing changed the logits and nothing is masked.
fn greedy(
    logits: &[f32],
    mask: Option<&TokenMask>,
    unmasked: Option<u32>,
) -> Result<u32, SampleError> {
    if let (None, Some(token)) = (mask, unmasked) {
        return Ok(token);
    }
    let mut best = (f32::NEG_INFINITY, None);
    select::allowed(logits, mask, |token, logit| {
        if logit > best.0 {
            best = (logit, Some(token));
        }
    });
    best.1.ok_or(SampleError::NothingAllowed)
}

fn draw(
    logits: &[f32],
    row: &SampleRow<'_>,
    candidates: &mut Vec<select::Candidate>,
) -> Result<u32, SampleError> {
    let params = row.params;
    candidates.clear();
    select::allowed(logits, row.mask, |token, value| {
        if value > f32::NEG_INFINITY {
            candidates.push(select::Candidate { value, token });
        }
    });
    if params.top_k > 0 {
        select::keep_top_k(candidates, params.top_k);
    }
    select::weigh(candidates, params.temperature);
    if params.top_p < 1.0 {
        select::keep_top_p(candidates, f64::from(params.top_p));
    }
    if params.min_p > 0.0 {
        // The likeliest has weight 1, so the bound on p / p_max is one on the weight.
        candidates.retain(|c| c.value >= params.min_p);
    }
    let uniform = philox::uniform(params.seed, row.position);
    select::at(candidates, uniform).ok_or(SampleError::NothingAllowed)
}
