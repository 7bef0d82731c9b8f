//! Broken Hugging Face folders.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
};

use codex_bridge_backend::testing::TinyLlama;

use super::{open, refused};

fn hf() -> (tempfile::TempDir, TinyLlama) {
    let folder = tempfile::tempdir().unwrap();
    let tiny = TinyLlama {
        layers: 1,
        ..TinyLlama::default()
    };
    tiny.write_hf(folder.path(), 1).unwrap();
    (folder, tiny)
}

#[test]
fn configurations_that_are_no_plain_llama_are_named() {
    let (folder, _) = hf();
    open(folder.path()).unwrap();
    let path = folder.path().join("config.json");
    let good = fs::read_to_string(&path).unwrap();
    for (from, to, expected) in [
        (
            r#"["LlamaForCausalLM"]"#,
            r#"["MistralForCausalLM"]"#,
            r#"architectures: found ["MistralForCausalLM"]; supported: ["LlamaForCausalLM"]"#,
        ),
        (
            r#""attention_bias":false"#,
            r#""attention_bias":true"#,
            "attention_bias: found true",
        ),
        (
            r#""mlp_bias":false"#,
            r#""mlp_bias":true"#,
            "mlp_bias: found true",
        ),
        (
            r#""silu""#,
            r#""gelu""#,
            r#"hidden_act: found "gelu"; supported: "silu""#,
        ),
        (
            r#""rope_scaling":null"#,
            r#""rope_scaling":{"rope_type":"yarn","factor":4}"#,
            r#"rope_scaling.rope_type: found "yarn""#,
        ),
        (
            r#""rope_scaling":null"#,
            r#""rope_scaling":{"rope_type":"llama3","factor":4}"#,
            "rope_scaling.low_freq_factor: found null",
        ),
        (
            r#""rope_scaling":null"#,
            r#""rope_scaling":{"type":"linear","factor":0}"#,
            "rope_scaling.factor: found 0",
        ),
        (
            r#""rope_scaling":null"#,
            r#""rope_scaling":{"type":"linear","factor":1e-30}"#,
            "rope_scaling.factor: found 1e-30; supported: 0.001 to 1e6",
        ),
        (
            r#""rope_scaling":null"#,
            r#""rope_scaling":7"#,
            "rope_scaling: found 7",
        ),
        (
            r#""mlp_bias":false"#,
            r#""quantization_config":{"bits":4}"#,
            "quantization_config: found quantised weights",
        ),
        (
            r#""num_hidden_layers":1"#,
            r#""num_hidden_layers":1e3"#,
            "num_hidden_layers: found 1e+3",
        ),
        (
            r#""num_hidden_layers":1"#,
            r#""num_hidden_layers":2"#,
            "model.layers.1.input_layernorm.weight: found no such tensor",
        ),
        (
            r#""hidden_size":64"#,
            r#""hidden_size":128"#,
            "shape of model.embed_tokens.weight: found [275, 64]; supported: [275, 128]",
        ),
        (
            r#""hidden_size":64"#,
            r#""hidden_size":99999999999999999999"#,
            "hidden_size: found 99999999999999999999",
        ),
        (
            r#""tie_word_embeddings":false"#,
            r#""tie_word_embeddings":"yes""#,
            r#"tie_word_embeddings: found "yes""#,
        ),
        (r#"{"architectures""#, r#"["architectures""#, "file: found"),
    ] {
        assert!(good.contains(from), "{from}");
        fs::write(&path, good.replacen(from, to, 1)).unwrap();
        refused(to, folder.path(), expected);
    }
    fs::write(&path, "[".repeat(1_000_000)).unwrap();
    refused("deep", folder.path(), "recursion limit");
    fs::write(&path, " ".repeat(5 << 20)).unwrap();
    refused("long", folder.path(), "more than 4194304 bytes");
    fs::remove_file(folder.path().join("tokenizer.json")).unwrap();
    fs::write(&path, &good).unwrap();
    refused(
        "no tokenizer",
        folder.path(),
        "tokenizer.json: found no such file",
    );
}

/// The header's text and the data behind it, written anew after `change`.
fn rewrite(path: &Path, change: impl Fn(&str) -> String) {
    let bytes = fs::read(path).unwrap();
    let length = u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
    let header = change(std::str::from_utf8(&bytes[8..8 + length]).unwrap());
    let mut file = File::create(path).unwrap();
    file.write_all(&(header.len() as u64).to_le_bytes())
        .unwrap();
    file.write_all(header.as_bytes()).unwrap();
    file.write_all(&bytes[8 + length..]).unwrap();
}

#[test]
fn safetensors_headers_must_describe_the_file() {
    let (folder, tiny) = hf();
    let path = folder.path().join("model.safetensors");
    let first =
        r#""model.embed_tokens.weight":{"dtype":"F32","shape":[275,64],"data_offsets":[0,70400]}"#;
    for (to, expected) in [
        (
            first.replace("F32", "F64"),
            "dtype of model.embed_tokens.weight: found F64; supported: F32, F16, BF16",
        ),
        (
            first.replace("70400]", "70399]"),
            "data_offsets of model.embed_tokens.weight: found [0, 70399]",
        ),
        (
            first.replace("[0,70400]", "[4,70404]"),
            "found 4 where 0 is due; supported: tensors side by side",
        ),
        (
            first.replace("70400]", "99999999999]"),
            "data_offsets of model.embed_tokens.weight",
        ),
        (first.replace("[0,", "[-1,"), "header: found"),
        (
            first.replace("[275,64]", "[4294967296,4294967296]"),
            "data_offsets of model.embed_tokens.weight",
        ),
        (
            first.replace("[275,64]", "[]"),
            "shape of model.embed_tokens.weight: found []",
        ),
        (
            first.replace("[275,64]", "[0,64]"),
            "shape of model.embed_tokens.weight: found [0, 64]",
        ),
        (
            first.replace("[275,64]", "[64,275]"),
            "shape of model.embed_tokens.weight: found [64, 275]; supported: [275, 64]",
        ),
        (
            format!("{first},{first}"),
            "model.embed_tokens.weight: found this tensor twice",
        ),
        (
            first.replace("embed_tokens", "embed_tokenz"),
            "model.embed_tokens.weight: found no such tensor",
        ),
        (
            first.replace(
                "model.embed_tokens.weight",
                "model.layers.0.self_attn.q_proj.bias",
            ),
            "model.embed_tokens.weight: found no such tensor",
        ),
    ] {
        tiny.write_hf(folder.path(), 1).unwrap();
        rewrite(&path, |header| {
            assert!(header.contains(first), "{header}");
            header.replace(first, &to)
        });
        refused(&to, folder.path(), expected);
    }
    for (bytes, expected) in [
        (b"".as_slice(), "header: found a file of 0 bytes"),
        (
            &u64::MAX.to_le_bytes(),
            "header: found a header of 18446744073709551615 bytes, and 0 bytes in the file",
        ),
        (
            b"\x02\0\0\0\0\0\0\0{}",
            "model.embed_tokens.weight: found no such tensor",
        ),
        (
            b"\x02\0\0\0\0\0\0\0{}x",
            "tensor data: found 1 bytes after the last tensor",
        ),
    ] {
        fs::write(&path, bytes).unwrap();
        refused("short", folder.path(), expected);
    }
    fs::remove_file(&path).unwrap();
    refused(
        "no weights",
        folder.path(),
        "model.safetensors: found no such file",
    );
}

#[test]
fn a_shard_index_cannot_lead_out_of_the_folder() {
    let (folder, tiny) = hf();
    tiny.write_hf(folder.path(), 2).unwrap();
    open(folder.path()).unwrap();
    let path = folder.path().join("model.safetensors.index.json");
    let good = fs::read_to_string(&path).unwrap();
    let name = "model-00001-of-00002.safetensors";
    for other in [
        "../model-00001-of-00002.safetensors",
        "/etc/passwd.safetensors",
        "a/../b.safetensors",
        "..\\\\b.safetensors",
        ".safetensors",
        "model.bin",
        "a\\u0000.safetensors",
    ] {
        fs::write(&path, good.replacen(name, other, 1)).unwrap();
        refused(
            other,
            folder.path(),
            "supported: names of .safetensors files in the folder itself",
        );
    }
    for (changed, expected) in [
        (
            good.replace("-00002-of-00002", "-00001-of-00002"),
            "no such tensor; supported: shards that match",
        ),
        (
            good.replace("embed_tokens", "embed_tokenz"),
            "a tensor that the index does not put here",
        ),
        (
            r#"{"weight_map": {}}"#.to_owned(),
            "weight_map: found 0 files",
        ),
        (
            r#"{"weight_map": 5}"#.to_owned(),
            "weight_map: found nothing",
        ),
    ] {
        fs::write(&path, changed).unwrap();
        refused(expected, folder.path(), expected);
    }
    fs::write(&path, &good).unwrap();
    fs::remove_file(folder.path().join(name)).unwrap();
    refused("missing shard", folder.path(), "file: found No such file");
}

#[test]
fn what_is_no_regular_file_is_not_waited_for() {
    let (folder, _) = hf();
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        let path = folder.path().join(name);
        let kept = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        // Opening a pipe waits for someone to write into it: for ever.
        assert!(open(folder.path()).is_err(), "{name}");
        fs::remove_file(&path).unwrap();
        fs::write(&path, kept).unwrap();
    }
    open(folder.path()).unwrap();
}
