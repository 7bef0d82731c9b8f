//! The shape of a Llama-family model, whichever file format it came from.

use std::fmt;

use super::error::Fault;

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

/// What a container calls each field, for messages.
#[derive(Debug)]
pub(super) struct Fields {
    pub(super) vocab: &'static str,
    pub(super) layers: &'static str,
    pub(super) hidden: &'static str,
    pub(super) ffn: &'static str,
    pub(super) heads: &'static str,
    pub(super) kv_heads: &'static str,
    pub(super) head_dim: &'static str,
    pub(super) context: &'static str,
    pub(super) norm_eps: &'static str,
    pub(super) rope_base: &'static str,
    pub(super) rope_dim: &'static str,
    pub(super) rope_scaling: &'static str,
}

/// What a rotary frequency may be divided by. Below, the angle of a late position is no number any more.
pub(super) const ROPE_FACTORS: Allowed = Allowed(1e-3, 1e6);

/// The least and the most that a number of a file may be; far beyond every known model, and far from where arithmetic ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowed(pub(super) f32, pub(super) f32);

impl Allowed {
    pub(super) fn check(self, field: impl fmt::Display, number: f32) -> Result<(), Fault> {
        let Allowed(least, most) = self;
        if (least..=most).contains(&number) {
            return Ok(());
        }
        Err(Fault::new(
            field,
            Short(number),
            format_args!("{} to {}", Short(least), Short(most)),
        ))
    }
}

/// A number without a row of noughts.
struct Short(f32);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            plain if plain == 0.0 || (1e-3..1e6).contains(&plain.abs()) => write!(f, "{plain}"),
            other => write!(f, "{other:e}"),
        }
    }
}

impl LlamaConfig {
    /// Refuses what no Llama is. The limits are far above every known model, and low enough that no product of two or three sizes overflows 64 bits.
    pub(super) fn check(&self, fields: &Fields) -> Result<(), Fault> {
        for (field, size, most) in [
            (fields.vocab, self.vocab, 1 << 22),
            (fields.layers, self.layers, 1024),
            (fields.hidden, self.hidden, 1 << 18),
            (fields.ffn, self.ffn, 1 << 20),
            (fields.heads, self.heads, 1024),
            (fields.kv_heads, self.kv_heads, 1024),
            (fields.head_dim, self.head_dim, 1024),
            (fields.context, self.context, 1 << 28),
        ] {
            if !(1..=most).contains(&size) {
                return Err(Fault::new(field, size, format_args!("1 to {most}")));
            }
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(Fault::new(
                fields.kv_heads,
                format_args!("{} for {} query heads", self.kv_heads, self.heads),
                "a divisor of the number of query heads",
            ));
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err(Fault::new(fields.head_dim, self.head_dim, "even numbers"));
        }
        if self.rope.dim != self.head_dim {
            return Err(Fault::new(
                fields.rope_dim,
                self.rope.dim,
                format_args!("{}, the length of a head", self.head_dim),
            ));
        }
        let factor = match self.rope.scaling {
            RopeScaling::Linear { factor } => factor,
            RopeScaling::None | RopeScaling::Factors(_) => 1.0,
        };
        for (field, number, allowed) in [
            (fields.norm_eps, self.norm_eps, Allowed(1e-15, 1.0)),
            (fields.rope_base, self.rope.base, Allowed(1.0, 1e12)),
            (fields.rope_scaling, factor, ROPE_FACTORS),
        ] {
            allowed.check(field, number)?;
        }
        Ok(())
    }
}
