//! Well-formed GGUF files whose model is not one we run, or does not fit together.

use codex_bridge_backend::{
    model::weights::Format,
    testing::gguf::{Tensor, Value},
};

use super::refuse;

#[test]
fn models_that_are_no_plain_llama_are_named() {
    refuse(&[
        (
            "architecture",
            |file| file.set("general.architecture", "gemma3"),
            "general.architecture: found \"gemma3\"; supported: \"llama\"",
        ),
        (
            "no architecture",
            |file| file.remove("general.architecture"),
            "general.architecture: found nothing",
        ),
        (
            "experts",
            |file| file.set("llama.expert_count", 8),
            "llama.expert_count: found 8",
        ),
        (
            "sliding window",
            |file| file.set("llama.attention.sliding_window", 4096),
            "llama.attention.sliding_window: found 4096",
        ),
        (
            "not causal",
            |file| file.set("llama.attention.causal", Value::Bool(false)),
            "llama.attention.causal: found false",
        ),
        (
            "yarn",
            |file| file.set("llama.rope.scaling.type", "yarn"),
            "llama.rope.scaling.type: found \"yarn\"",
        ),
        (
            "scaling by infinity",
            |file| file.set("llama.rope.scaling.factor", Value::F32(f32::INFINITY)),
            "llama.rope.scaling.factor: found inf",
        ),
        (
            "bias",
            |file| {
                file.tensors.push(Tensor::new(
                    "blk.0.attn_q.bias",
                    &[32],
                    Format::F32,
                    vec![0; 128],
                ));
            },
            "blk.0.attn_q.bias: found a bias",
        ),
        (
            "expert tensor",
            |file| {
                file.tensors.push(Tensor::new(
                    "blk.0.ffn_gate_inp.weight",
                    &[32, 8],
                    Format::F32,
                    vec![0; 1024],
                ));
            },
            "blk.0.ffn_gate_inp.weight: found a mixture of experts",
        ),
        (
            "unknown tensor",
            |file| {
                file.tensors.push(Tensor::new(
                    "blk.7.attn_q.weight",
                    &[32],
                    Format::F32,
                    vec![0; 128],
                ));
            },
            "blk.7.attn_q.weight: found a tensor that no plain Llama has",
        ),
    ]);
}

#[test]
fn shapes_must_follow_from_the_configuration() {
    refuse(&[
        (
            "no layers",
            |file| file.set("llama.block_count", 0),
            "llama.block_count: found 0; supported: 1 to 1024",
        ),
        (
            "endless layers",
            |file| file.set("llama.block_count", u32::MAX as usize),
            "llama.block_count: found 4294967295",
        ),
        (
            "more layers than tensors",
            |file| file.set("llama.block_count", 1024),
            "blk.1.attn_norm.weight: found no such tensor",
        ),
        (
            "wide",
            |file| file.set("llama.embedding_length", 64),
            "shape of token_embd.weight: found [8, 32]; supported: [8, 64]",
        ),
        (
            "ffn",
            |file| file.set("llama.feed_forward_length", 64),
            "shape of blk.0.ffn_gate.weight: found [32, 32]; supported: [64, 32]",
        ),
        (
            "no heads",
            |file| file.set("llama.attention.head_count", 0),
            "llama.attention.head_count: found 0",
        ),
        (
            "heads",
            |file| file.set("llama.attention.head_count_kv", 3),
            "found 3 for 2 query heads",
        ),
        (
            "no kv heads",
            |file| file.set("llama.attention.head_count_kv", 0),
            "llama.attention.head_count_kv: found 0",
        ),
        (
            "odd head",
            |file| file.set("llama.attention.key_length", 15),
            "llama.attention.key_length: found 15",
        ),
        (
            "values",
            |file| file.set("llama.attention.value_length", 8),
            "llama.attention.value_length: found 8; supported: 16",
        ),
        (
            "rotated part",
            |file| file.set("llama.rope.dimension_count", 8),
            "llama.rope.dimension_count: found 8; supported: 16",
        ),
        (
            "epsilon",
            |file| {
                file.set(
                    "llama.attention.layer_norm_rms_epsilon",
                    Value::F32(f32::NAN),
                );
            },
            "layer_norm_rms_epsilon: found NaN",
        ),
        (
            "base",
            |file| file.set("llama.rope.freq_base", Value::F32(-1.0)),
            "llama.rope.freq_base: found -1; supported: 1 to 1e12",
        ),
        (
            "a base that is nearly nothing",
            |file| file.set("llama.rope.freq_base", Value::F32(1e-40)),
            "llama.rope.freq_base: found 1e-40; supported: 1 to 1e12",
        ),
        (
            "an epsilon that is nearly nothing",
            |file| {
                file.set("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-40));
            },
            "layer_norm_rms_epsilon: found 1e-40; supported: 1e-15 to 1",
        ),
        (
            "a scale that is nearly nothing",
            |file| file.set("llama.rope.scaling.factor", Value::F32(1e-30)),
            "llama.rope.scaling.factor: found 1e-30; supported: 0.001 to 1e6",
        ),
        (
            "no context",
            |file| file.remove("llama.context_length"),
            "llama.context_length: found nothing",
        ),
        (
            "vocabulary",
            |file| file.set("llama.vocab_size", 9),
            "llama.vocab_size: found 9; supported: 8",
        ),
        (
            "no embedding",
            |file| drop(file.tensors.remove(0)),
            "token_embd.weight: found no such tensor",
        ),
        (
            "quantised norm",
            |file| {
                let norm = file.tensor("output_norm.weight");
                (norm.kind, norm.bytes) = (Format::Q8_0.ggml_id(), vec![0; 34]);
            },
            "type of output_norm.weight: found Q8_0",
        ),
        (
            "rope factors",
            |file| {
                file.tensors.push(Tensor::new(
                    "rope_freqs.weight",
                    &[8],
                    Format::F32,
                    vec![0; 32],
                ));
            },
            "rope_freqs.weight: found 0; supported: 0.001 to 1e6",
        ),
    ]);
}

#[test]
fn a_vocabulary_must_be_consistent() {
    refuse(&[
        (
            "none",
            |file| file.remove("tokenizer.ggml.tokens"),
            "tokenizer.ggml.tokens: found nothing",
        ),
        (
            "numbers for tokens",
            |file| file.set("tokenizer.ggml.tokens", Value::I32s(vec![1; 8])),
            "tokenizer.ggml.tokens: found an array of 8 I32",
        ),
        (
            "types",
            |file| file.set("tokenizer.ggml.token_type", Value::I32s(vec![1; 7])),
            "tokenizer.ggml.token_type: found 7 entries",
        ),
        (
            "scores",
            |file| file.set("tokenizer.ggml.scores", Value::F32s(vec![1.0; 9])),
            "tokenizer.ggml.scores: found 9 entries",
        ),
        (
            "end of text",
            |file| file.set("tokenizer.ggml.eos_token_id", 8),
            "tokenizer.ggml.eos_token_id: found 8; supported: ids of the vocabulary, below 8",
        ),
        (
            "temperature",
            |file| file.set("general.sampling.temp", Value::F32(f32::NAN)),
            "general.sampling.temperature: found NaN",
        ),
    ]);
}

#[test]
fn weights_that_are_not_numbers_are_found() {
    refuse(&[
        (
            "NaN scale",
            |file| file.tensor("blk.0.ffn_up.weight").bytes[20..22].copy_from_slice(&[0x01, 0x7e]),
            "blk.0.ffn_up.weight: found an infinite or undefined scale in block 1 of Q4_1",
        ),
        (
            "infinite minimum",
            |file| file.tensor("blk.0.ffn_up.weight").bytes[2..4].copy_from_slice(&[0x00, 0xfc]),
            "scale in block 0 of Q4_1",
        ),
        (
            "NaN in a norm",
            |file| {
                file.tensor("output_norm.weight").bytes[..4]
                    .copy_from_slice(&f32::NAN.to_le_bytes());
            },
            "output_norm.weight: found an infinite or undefined number",
        ),
        (
            "embedding",
            |file| file.tensor("token_embd.weight").bytes[34 * 7 + 1] = 0x7c,
            "token_embd.weight: found an infinite or undefined scale in block 7 of Q8_0",
        ),
    ]);
}
