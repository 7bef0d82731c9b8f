//! What the tensors of a Llama are called, in GGUF and in Hugging Face's checkpoints.

/// A tensor's name in both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Name {
    pub(crate) gguf: &'static str,
    pub(crate) hf: &'static str,
}

pub(crate) const EMBEDDING: Name = Name {
    gguf: "token_embd.weight",
    hf: "model.embed_tokens.weight",
};
pub(crate) const FINAL_NORM: Name = Name {
    gguf: "output_norm.weight",
    hf: "model.norm.weight",
};
pub(crate) const OUTPUT: Name = Name {
    gguf: "output.weight",
    hf: "lm_head.weight",
};
/// Only GGUF has it: what the rotary frequencies are divided by.
pub(crate) const ROPE_FACTORS: &str = "rope_freqs.weight";

/// Those of a layer, behind `blk.N.` or `model.layers.N.`.
pub(crate) const ATTENTION_NORM: Name = layer("attn_norm.weight", "input_layernorm.weight");
pub(crate) const Q: Name = layer("attn_q.weight", "self_attn.q_proj.weight");
pub(crate) const K: Name = layer("attn_k.weight", "self_attn.k_proj.weight");
pub(crate) const V: Name = layer("attn_v.weight", "self_attn.v_proj.weight");
pub(crate) const ATTENTION_OUTPUT: Name = layer("attn_output.weight", "self_attn.o_proj.weight");
pub(crate) const FFN_NORM: Name = layer("ffn_norm.weight", "post_attention_layernorm.weight");
pub(crate) const GATE: Name = layer("ffn_gate.weight", "mlp.gate_proj.weight");
pub(crate) const UP: Name = layer("ffn_up.weight", "mlp.up_proj.weight");
pub(crate) const DOWN: Name = layer("ffn_down.weight", "mlp.down_proj.weight");

const fn layer(gguf: &'static str, hf: &'static str) -> Name {
    Name { gguf, hf }
}

/// The container a name is written in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Naming {
    Gguf,
    HuggingFace,
}

impl Naming {
    pub(crate) fn global(self, name: Name) -> String {
        match self {
            Naming::Gguf => name.gguf.to_owned(),
            Naming::HuggingFace => name.hf.to_owned(),
        }
    }

    pub(crate) fn layer(self, layer: usize, name: Name) -> String {
        match self {
            Naming::Gguf => format!("blk.{layer}.{}", name.gguf),
            Naming::HuggingFace => format!("model.layers.{layer}.{}", name.hf),
        }
    }
}
