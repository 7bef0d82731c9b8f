//! Metadata under `llama.` to [`LlamaConfig`].

use super::metadata::Metadata;
use crate::model::{
    bind::Tensors,
    config::{Fields, LlamaConfig, ROPE_FACTORS, Rope, RopeLayout, RopeScaling},
    error::Fault,
    names,
    quant::dequantize_row,
    weights::Tensor,
};

const FIELDS: Fields = Fields {
    vocab: "llama.vocab_size",
    layers: "llama.block_count",
    hidden: "llama.embedding_length",
    ffn: "llama.feed_forward_length",
    heads: "llama.attention.head_count",
    kv_heads: "llama.attention.head_count_kv",
    head_dim: "llama.attention.key_length",
    context: "llama.context_length",
    norm_eps: "llama.attention.layer_norm_rms_epsilon",
    rope_base: "llama.rope.freq_base",
    rope_dim: "llama.rope.dimension_count",
    rope_scaling: "llama.rope.scaling.factor",
};

/// Keys that change what the model computes, which we do not; absent in every plain Llama, or with the value that changes nothing.
const NEUTRAL: [(&str, f32); 10] = [
    ("llama.expert_count", 0.0),
    ("llama.expert_used_count", 0.0),
    ("llama.attention.sliding_window", 0.0),
    ("llama.attention.clamp_kqv", 0.0),
    ("llama.attention.max_alibi_bias", 0.0),
    ("llama.attn_logit_softcapping", 0.0),
    ("llama.final_logit_softcapping", 0.0),
    ("llama.logit_scale", 1.0),
    ("llama.residual_scale", 1.0),
    ("llama.embedding_scale", 1.0),
];

pub(super) fn architecture(metadata: &Metadata<'_>) -> Result<(), Fault> {
    let key = "general.architecture";
    match metadata.text(key)? {
        Some("llama") => Ok(()),
        Some(other) => Err(Fault::new(key, format_args!("\"{other}\""), "\"llama\"")),
        None => Err(Fault::new(key, "nothing", "\"llama\"")),
    }
}

/// `tokens`: size of the vocabulary. Takes `rope_freqs.weight` out of the tensors.
pub(super) fn config(
    metadata: &Metadata<'_>,
    tokens: usize,
    tensors: &mut Tensors,
) -> Result<LlamaConfig, Fault> {
    neutral(metadata)?;
    let count = |key: &str| Ok(metadata.count(key)?.map(|count| count as usize));
    let required = |key: &str| required(count(key)?, key);
    let hidden = required(FIELDS.hidden)?;
    let heads = required(FIELDS.heads)?;
    let head_dim = match count(FIELDS.head_dim)? {
        Some(length) => length,
        None => hidden.checked_div(heads).unwrap_or(0),
    };
    let dim = count(FIELDS.rope_dim)?.unwrap_or(head_dim);
    let base = metadata.float(FIELDS.rope_base)?.unwrap_or(10_000.0);
    let mut config = LlamaConfig {
        vocab: tokens,
        layers: required(FIELDS.layers)?,
        hidden,
        ffn: required(FIELDS.ffn)?,
        heads,
        kv_heads: count(FIELDS.kv_heads)?.unwrap_or(heads),
        head_dim,
        context: required(FIELDS.context)?,
        norm_eps: self::required(metadata.float(FIELDS.norm_eps)?, FIELDS.norm_eps)?,
        rope: Rope {
            base,
            dim,
            layout: RopeLayout::Interleaved,
            scaling: linear(metadata)?,
        },
        tied_embeddings: !tensors.has(names::OUTPUT),
    };
    config.check(&FIELDS)?;
    equal(
        metadata,
        FIELDS.vocab,
        tokens,
        "tokens in tokenizer.ggml.tokens",
    )?;
    equal(
        metadata,
        "llama.attention.value_length",
        head_dim,
        "numbers in a key",
    )?;
    if let Some(factors) = tensors.take_vector(names::ROPE_FACTORS, dim / 2)? {
        config.rope.scaling = divided(&factors, &config.rope.scaling)?;
    }
    Ok(config)
}

fn required<T>(value: Option<T>, key: &str) -> Result<T, Fault> {
    value.ok_or_else(|| Fault::new(key, "nothing", "models that say it"))
}

fn neutral(metadata: &Metadata<'_>) -> Result<(), Fault> {
    for (key, neutral) in NEUTRAL {
        if let Some(value) = metadata.float(key)?.filter(|value| *value != neutral) {
            return Err(Fault::new(
                key,
                value,
                format_args!("plain Llama models, where it is {neutral} or absent"),
            ));
        }
    }
    match metadata.boolean("llama.attention.causal")? {
        Some(false) => Err(Fault::new(
            "llama.attention.causal",
            "false",
            "causal models",
        )),
        _ => Ok(()),
    }
}

/// If the key is there it must say `expected`, the number of `what`.
fn equal(metadata: &Metadata<'_>, key: &str, expected: usize, what: &str) -> Result<(), Fault> {
    match metadata.count(key)? {
        Some(found) if found as usize != expected => Err(Fault::new(
            key,
            found,
            format_args!("{expected}, the number of {what}"),
        )),
        _ => Ok(()),
    }
}

/// `llama.rope.scaling.*`, or `llama.rope.scale_linear` of older converters. A factor without a type is linear, as in llama.cpp.
fn linear(metadata: &Metadata<'_>) -> Result<RopeScaling, Fault> {
    let key = "llama.rope.scaling.type";
    let factor = match metadata.text(key)? {
        Some("none") => None,
        Some("linear") | None => match metadata.float(FIELDS.rope_scaling)? {
            Some(factor) => Some(factor),
            None => metadata.float("llama.rope.scale_linear")?,
        },
        Some(other) => {
            return Err(Fault::new(
                key,
                format_args!("\"{other}\""),
                "\"none\", \"linear\", and Llama 3's scaling by the tensor rope_freqs.weight",
            ));
        }
    };
    // llama.cpp takes 0 for "not set".
    Ok(match factor {
        Some(factor) if factor != 0.0 && factor != 1.0 => RopeScaling::Linear { factor },
        _ => RopeScaling::None,
    })
}

/// The factors of `rope_freqs.weight`. A linear factor beside them divides every frequency once more.
fn divided(factors: &Tensor, scaling: &RopeScaling) -> Result<RopeScaling, Fault> {
    let mut values = vec![0.0; factors.cols];
    dequantize_row(factors.format, factors.bytes(), &mut values);
    if let RopeScaling::Linear { factor } = scaling {
        values.iter_mut().for_each(|value| *value *= factor);
    }
    for value in &values {
        ROPE_FACTORS.check(&factors.name, *value)?;
    }
    Ok(RopeScaling::Factors(values))
}
