//! From a row of logits to a token. Order: penalties → mask → temperature → top-k → top-p → min-p → draw.

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
    /// 1: off. Divides positive and multiplies negative logits of tokens seen before (Keskar et al. 2019, CTRL §4.1).
    pub repetition_penalty: f32,
    /// 0: off. Taken once from the logit of each token seen before.
    pub presence_penalty: f32,
    /// 0: off. Taken once for each time the token was seen before.
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

/// A drawn token.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    pub token: u32,
    /// Natural log of the token's probability under the model (softmax of the raw logits: before penalties, mask and temperature).
    pub logprob: f32,
    /// The most likely tokens with their logprobs, likeliest first.
    pub top: Vec<(u32, f32)>,
}

/// Why no token could be drawn from a row.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SampleError {
    /// A logit is NaN, or the largest is infinite: the model's numbers are broken.
    #[error("the logits of a row are not numbers (first at token {0})")]
    NotANumber(u32),
    /// The mask leaves no token of finite logit.
    #[error("the token mask allows no token")]
    NothingAllowed,
}
