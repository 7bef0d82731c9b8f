//! Writes a tiny model as a Hugging Face folder.

use std::{fs, io, path::Path};

use serde_json::{Map, Value, json};

use super::{TinyLlama, TinyRope, Vocabulary, quantize::quantize_row, tiny::Matrix};
use crate::model::weights::Format;

pub(super) fn write(model: &TinyLlama, folder: &Path, shards: usize) -> io::Result<()> {
    let text = |name: &str, value: &Value| fs::write(folder.join(name), value.to_string());
    let vocabulary = model.vocabulary();
    text("config.json", &config(model, vocabulary.tokens.len()))?;
    text("tokenizer.json", &vocabulary.json())?;
    text("tokenizer_config.json", &tokenizer_config(model))?;
    text(
        "generation_config.json",
        &json!({"bos_token_id": Vocabulary::IM_START, "eos_token_id": [Vocabulary::IM_END], "temperature": 0.7, "top_p": 0.8, "top_k": 20}),
    )?;
    let matrices = model.matrices();
    if shards == 1 {
        return fs::write(
            folder.join("model.safetensors"),
            safetensors(&matrices, model),
        );
    }
    let mut places = Map::new();
    for (index, part) in matrices.chunks(matrices.len().div_ceil(shards)).enumerate() {
        let name = format!("model-{:05}-of-{shards:05}.safetensors", index + 1);
        for matrix in part {
            places.insert(matrix.hf_name(), json!(name));
        }
        fs::write(folder.join(name), safetensors(part, model))?;
    }
    text(
        "model.safetensors.index.json",
        &json!({"metadata": {}, "weight_map": places}),
    )
}

fn config(model: &TinyLlama, vocab: usize) -> Value {
    let scaling = match &model.rope {
        TinyRope::Plain => Value::Null,
        TinyRope::Linear(factor) => json!({"type": "linear", "factor": factor}),
        TinyRope::Llama3 {
            factor,
            low,
            high,
            original,
        } => json!({
            "rope_type": "llama3", "factor": factor, "low_freq_factor": low, "high_freq_factor": high, "original_max_position_embeddings": original,
        }),
    };
    json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "vocab_size": vocab,
        "hidden_size": model.hidden, "intermediate_size": model.ffn, "num_hidden_layers": model.layers, "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads, "head_dim": model.head_dim, "max_position_embeddings": model.context, "rms_norm_eps": model.norm_eps,
        "rope_theta": model.rope_base, "rope_scaling": scaling, "tie_word_embeddings": model.tied, "attention_bias": false, "mlp_bias": false,
        "bos_token_id": Vocabulary::IM_START, "eos_token_id": Vocabulary::IM_END,
        "torch_dtype": match model.format { Format::F32 => "float32", Format::F16 => "float16", _ => "bfloat16" },
    })
}

fn tokenizer_config(model: &TinyLlama) -> Value {
    let mut config = json!({"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "add_bos_token": false});
    if let Some(template) = &model.chat_template {
        config["chat_template"] = json!(template);
    }
    config
}

/// Eight bytes of length, a JSON header padded with spaces, the tensors.
fn safetensors(matrices: &[Matrix], model: &TinyLlama) -> Vec<u8> {
    let (mut header, mut bytes) = (Map::new(), Vec::new());
    header.insert("__metadata__".to_owned(), json!({"format": "pt"}));
    for matrix in matrices {
        let format = match matrix.layer {
            Some(_) => model.format,
            None => model.embedding_format,
        };
        let dtype = format.name();
        assert!(
            ["F32", "F16", "BF16"].contains(&dtype),
            "{dtype} in safetensors"
        );
        let from = bytes.len();
        bytes.extend(quantize_row(format, &matrix.values));
        let shape = match matrix.rows {
            1 => json!([matrix.cols]),
            rows => json!([rows, matrix.cols]),
        };
        header.insert(
            matrix.hf_name(),
            json!({"dtype": dtype, "shape": shape, "data_offsets": [from, bytes.len()]}),
        );
    }
    let mut header = Value::Object(header).to_string();
    header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend(header.bytes());
    out.extend(bytes);
    out
}
