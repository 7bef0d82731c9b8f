//! `config.json` of a `LlamaForCausalLM` to [`LlamaConfig`], with the defaults of Transformers' `LlamaConfig`.

use std::f32::consts::TAU;

use serde_json::Value;

use super::json;
use crate::model::{
    config::{Allowed, Fields, LlamaConfig, ROPE_FACTORS, Rope, RopeLayout, RopeScaling},
    error::Fault,
};

const FIELDS: Fields = Fields {
    vocab: "vocab_size",
    layers: "num_hidden_layers",
    hidden: "hidden_size",
    ffn: "intermediate_size",
    heads: "num_attention_heads",
    kv_heads: "num_key_value_heads",
    head_dim: "head_dim",
    context: "max_position_embeddings",
    norm_eps: "rms_norm_eps",
    rope_base: "rope_theta",
    rope_dim: "head_dim",
    rope_scaling: "rope_scaling.factor",
};

pub(super) fn read(config: &Value) -> Result<LlamaConfig, Fault> {
    architecture(config)?;
    plain(config)?;
    let count = |field| json::count(config, field);
    let required = |field| {
        count(field)?.ok_or_else(|| Fault::new(field, "nothing", "configurations that say it"))
    };
    let hidden = required(FIELDS.hidden)?;
    let heads = required(FIELDS.heads)?;
    let head_dim = match count(FIELDS.head_dim)? {
        Some(length) => length,
        None => hidden.checked_div(heads).unwrap_or(0),
    };
    let (base, scaling) = rope(config)?;
    let mut llama = LlamaConfig {
        vocab: required(FIELDS.vocab)?,
        layers: required(FIELDS.layers)?,
        hidden,
        ffn: required(FIELDS.ffn)?,
        heads,
        kv_heads: count(FIELDS.kv_heads)?.unwrap_or(heads),
        head_dim,
        context: count(FIELDS.context)?.unwrap_or(2048),
        norm_eps: json::float(config, FIELDS.norm_eps)?.unwrap_or(1e-6),
        rope: Rope {
            base,
            dim: head_dim,
            layout: RopeLayout::Halves,
            scaling: match scaling {
                Scaling::Linear(factor) => RopeScaling::Linear { factor },
                Scaling::None | Scaling::Llama3(_) => RopeScaling::None,
            },
        },
        tied_embeddings: json::flag(config, "tie_word_embeddings")?.unwrap_or(false),
    };
    llama.check(&FIELDS)?;
    if let Scaling::Llama3(llama3) = scaling {
        llama.rope.scaling = RopeScaling::Factors(llama3.factors(base, head_dim));
    }
    Ok(llama)
}

fn architecture(config: &Value) -> Result<(), Fault> {
    let supported = "LlamaForCausalLM";
    let (field, found) = match config.get("architectures") {
        Some(list) => ("architectures", list),
        None => (
            "model_type",
            config.get("model_type").unwrap_or(&Value::Null),
        ),
    };
    let accepted = match found {
        Value::Array(names) => names.len() == 1 && names[0] == supported,
        name => name == "llama",
    };
    if accepted {
        return Ok(());
    }
    Err(Fault::new(field, found, format_args!("[\"{supported}\"]")))
}

/// Refuses what a plain Llama does not have.
fn plain(config: &Value) -> Result<(), Fault> {
    for (field, what) in [
        ("attention_bias", "models without biases"),
        ("mlp_bias", "models without biases"),
    ] {
        if json::flag(config, field)? == Some(true) {
            return Err(Fault::new(field, "true", what));
        }
    }
    if let Some(other) = json::name(config, "hidden_act")?.filter(|name| *name != "silu") {
        return Err(Fault::new(
            "hidden_act",
            format_args!("\"{other}\""),
            "\"silu\"",
        ));
    }
    if let Some(share) = json::float(config, "partial_rotary_factor")?.filter(|share| *share != 1.0)
    {
        return Err(Fault::new("partial_rotary_factor", share, "1"));
    }
    match json::object(config, "quantization_config")? {
        Some(_) => Err(Fault::new(
            "quantization_config",
            "quantised weights",
            "F32, F16 and BF16 in safetensors; quantised weights in GGUF",
        )),
        None => Ok(()),
    }
}

/// Positions that a model may have been trained for at first.
const TOKENS: Allowed = Allowed(1.0, (1u32 << 28) as f32);

enum Scaling {
    None,
    Linear(f32),
    Llama3(Llama3),
}

/// Base and scaling, from `rope_theta` and `rope_scaling`, or since Transformers 5 from `rope_parameters`.
fn rope(config: &Value) -> Result<(f32, Scaling), Fault> {
    let parameters = match json::object(config, "rope_scaling")? {
        Some(scaling) => Some(scaling),
        None => json::object(config, "rope_parameters")?,
    };
    let base = match json::float(config, FIELDS.rope_base)? {
        Some(base) => Some(base),
        None => match parameters {
            Some(parameters) => json::float(parameters, FIELDS.rope_base)?,
            None => None,
        },
    };
    let scaling = parameters.map_or(Ok(Scaling::None), scaling)?;
    Ok((base.unwrap_or(10_000.0), scaling))
}

fn scaling(parameters: &Value) -> Result<Scaling, Fault> {
    let name = match json::name(parameters, "rope_type")? {
        Some(name) => Some(name),
        None => json::name(parameters, "type")?,
    };
    let number = |field: &str, allowed: Allowed| {
        let path = format!("rope_scaling.{field}");
        let Some(number) = json::float(parameters, field)? else {
            return Err(Fault::new(path, "null", "a number"));
        };
        allowed.check(path, number)?;
        Ok(number)
    };
    let turns = ROPE_FACTORS;
    match name {
        None | Some("default") => Ok(Scaling::None),
        Some("linear") => Ok(Scaling::Linear(number("factor", ROPE_FACTORS)?)),
        Some("llama3") => Llama3 {
            factor: number("factor", ROPE_FACTORS)?,
            low: number("low_freq_factor", turns)?,
            high: number("high_freq_factor", turns)?,
            original: number("original_max_position_embeddings", TOKENS)?,
        }
        .checked(),
        Some(other) => Err(Fault::new(
            "rope_scaling.rope_type",
            format_args!("\"{other}\""),
            "\"default\", \"linear\", \"llama3\"",
        )),
    }
}

/// Llama 3.1's scaling: frequencies that turn more than `high` times in the original context stay, those that turn less than `low` times are divided by
/// `factor`, those between are blended.
struct Llama3 {
    factor: f32,
    low: f32,
    high: f32,
    original: f32,
}

impl Llama3 {
    fn checked(self) -> Result<Scaling, Fault> {
        if self.high > self.low {
            return Ok(Scaling::Llama3(self));
        }
        Err(Fault::new(
            "rope_scaling.high_freq_factor",
            self.high,
            format_args!("more than low_freq_factor, {}", self.low),
        ))
    }

    /// What each frequency is divided by, `[dim / 2]`.
    fn factors(&self, base: f32, dim: usize) -> Vec<f32> {
        (0..dim / 2)
            .map(|i| {
                let wavelength = TAU * base.powf(2.0 * i as f32 / dim as f32);
                let turns = self.original / wavelength;
                let kept = ((turns - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
                1.0 / ((1.0 - kept) / self.factor + kept)
            })
            .collect()
    }
}
