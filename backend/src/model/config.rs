//! The shape of a Llama-family model, whichever file format it came from.

/// Everything the forward pass needs to know beside the weights.
#[derive(Clone, Debug, PartialEq)]
pub struct LlamaConfig {
    pub vocab: usize,
    pub layers: usize,
    /// Width of the residual stream, `d`.
    pub hidden: usize,
    /// Width between gate/up and down.
    pub ffn: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; `heads / kv_heads` query heads share one.
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Tokens the model was trained for.
    pub context: usize,
    pub norm_eps: f32,
    pub rope: Rope,
    /// The output matrix is the embedding table.
    pub tied_embeddings: bool,
}

/// Rotary position embedding (Su et al. 2021).
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    pub base: f32,
    /// Dimensions of a head that are rotated; `head_dim` in every known Llama.
    pub dim: usize,
    pub layout: RopeLayout,
    pub scaling: RopeScaling,
}

/// Which two dimensions of a head turn together. Conversion to GGUF permutes the rows of Q and K from the second to the first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RopeLayout {
    /// `2 i` and `2 i + 1`: GGUF.
    Interleaved,
    /// `i` and `i + dim / 2`: Hugging Face.
    Halves,
}

#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    None,
    /// Positions are divided by `factor`.
    Linear {
        factor: f32,
    },
    /// Each frequency is divided by its own factor, `[dim / 2]`: GGUF's `rope_freqs.weight`, or computed from `rope_scaling` of type `llama3`.
    Factors(Vec<f32>),
}
