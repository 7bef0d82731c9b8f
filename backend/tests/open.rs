//! Opening models: what is in the file is what comes out, whichever container it came in.

#![expect(clippy::unwrap_used, reason = "the helpers are tests too")]

use std::{fs, time::Duration};

use codex_bridge_backend::{
    cpu::Cpu,
    model::{
        self, Model, TokenizerSource,
        config::{RopeLayout, RopeScaling},
        inspect::Inspection,
        plan::{PlanOptions, available},
        quant::dequantize_row,
        weights::{Format, Tensor},
    },
    testing::{Scripted, TinyLlama, TinyRope, gguf::Value, smollm2},
};
use pretty_assertions::assert_eq;
use tempfile::TempDir;

fn gguf(tiny: &TinyLlama) -> (TempDir, Model) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    tiny.write_gguf(&path).unwrap();
    let model = model::open(&path).unwrap();
    (folder, model)
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    let mut numbers = vec![0.0; tensor.rows * tensor.cols];
    dequantize_row(tensor.format, tensor.bytes(), &mut numbers);
    numbers
}

const LLAMA3: TinyRope = TinyRope::Llama3 {
    factor: 8.0,
    low: 1.0,
    high: 4.0,
    original: 256,
};

#[test]
fn a_gguf_comes_out_as_it_was_written() {
    let tiny = TinyLlama {
        chat_template: Some("{{ tools }}".to_owned()),
        ..TinyLlama::default()
    };
    let (_folder, model) = gguf(&tiny);
    let config = &model.config;
    assert_eq!(
        (config.layers, config.hidden, config.ffn, config.heads),
        (2, 64, 128, 4)
    );
    assert_eq!(
        (config.kv_heads, config.head_dim, config.context),
        (2, 16, 512)
    );
    assert_eq!(
        (config.vocab, config.norm_eps, config.tied_embeddings),
        (275, 1e-5, false)
    );
    assert_eq!((config.rope.base, config.rope.dim), (10_000.0, 16));
    assert_eq!(config.rope.layout, RopeLayout::Interleaved);
    assert_eq!(config.rope.scaling, RopeScaling::None);
    assert_eq!(
        (model.name.as_str(), model.format.as_str()),
        ("tiny", "F32")
    );
    assert_eq!(model.chat_template.as_deref(), Some("{{ tools }}"));
    let TokenizerSource::Gguf(vocabulary) = &model.tokenizer else {
        panic!("{:?}", model.tokenizer)
    };
    assert_eq!(vocabulary.model, "gpt2");
    assert_eq!(vocabulary.pre.as_deref(), Some("gpt-2"));
    assert_eq!(vocabulary.tokens[1], "<|im_start|>");
    assert_eq!(vocabulary.token_types[..4], [3, 3, 3, 1]);
    assert_eq!(vocabulary.merges[0], "Ġ t");
    assert_eq!(
        (vocabulary.bos, vocabulary.eos, vocabulary.eot),
        (Some(1), Some(2), None)
    );
    assert_eq!(vocabulary.add_bos, Some(false));

    let matrices = tiny.matrices();
    let parameters: usize = matrices.iter().map(|matrix| matrix.values.len()).sum();
    assert_eq!(model.parameters, parameters as u64);
    assert_eq!(model.weight_bytes, 4 * model.parameters);
    let expected = |name: &str| {
        let matrix = matrices.iter().find(|matrix| matrix.gguf_name() == name);
        matrix.unwrap().values.clone()
    };
    assert_eq!(
        numbers(&model.weights.embedding),
        expected("token_embd.weight")
    );
    assert_eq!(numbers(&model.weights.output), expected("output.weight"));
    let layer = &model.weights.layers[1];
    assert_eq!(numbers(&layer.down), expected("blk.1.ffn_down.weight"));
    assert_eq!((layer.down.rows, layer.down.cols), (64, 128));
    assert_eq!(layer.ffn_norm.rows, 1);
}

#[test]
fn every_format_opens_and_norms_stay_f32() {
    for format in Format::ALL {
        let tiny = TinyLlama {
            hidden: 256,
            ffn: 256,
            head_dim: 64,
            format,
            ..TinyLlama::default()
        };
        let (_folder, model) = gguf(&tiny);
        assert_eq!(model.weights.layers[0].q.format, format);
        assert_eq!(model.weights.layers[0].attention_norm.format, Format::F32);
    }
}

#[test]
fn a_model_without_an_output_matrix_is_tied_and_its_embedding_counts_once() {
    let tied = TinyLlama {
        tied: true,
        ..TinyLlama::default()
    };
    let (_folder, model) = gguf(&tied);
    assert!(model.config.tied_embeddings);
    assert!(model.weights.output.is_same(&model.weights.embedding));
    let (_folder, untied) = gguf(&TinyLlama::default());
    assert_eq!(untied.parameters - model.parameters, 275 * 64);
}

#[test]
fn rope_scaling_is_read_from_keys_and_from_the_factors_tensor() {
    let scaling = |rope: TinyRope| {
        let (_folder, model) = gguf(&TinyLlama {
            rope,
            ..TinyLlama::default()
        });
        model.config.rope.scaling
    };
    assert_eq!(
        scaling(TinyRope::Linear(4.0)),
        RopeScaling::Linear { factor: 4.0 }
    );
    let RopeScaling::Factors(factors) = scaling(LLAMA3) else {
        panic!("no factors")
    };
    assert_eq!((factors.len(), factors[0], factors[7]), (8, 1.0, 8.0));
}

#[test]
fn a_split_model_is_one_model() {
    let tiny = TinyLlama::default();
    let (_folder, whole) = gguf(&tiny);
    let folder = tempfile::tempdir().unwrap();
    let parts = tiny.gguf().write_split(folder.path(), "tiny", 3).unwrap();
    let model = model::open(&parts[0]).unwrap();
    assert_eq!(model.files, parts);
    assert_eq!(model.config, whole.config);
    assert_eq!(
        numbers(&model.weights.layers[1].up),
        numbers(&whole.weights.layers[1].up)
    );
    let error = model::open(&parts[1]).unwrap_err().to_string();
    assert!(error.contains("part 2 of 3"), "{error}");
    fs::copy(&parts[1], &parts[2]).unwrap();
    let error = model::open(&parts[0]).unwrap_err().to_string();
    assert!(
        error.contains("00003-of-00003") && error.contains("split.no: found 1"),
        "{error}"
    );
}

#[test]
fn the_fingerprint_follows_metadata_and_time_and_not_the_place() {
    let tiny = TinyLlama::default();
    let (folder, model) = gguf(&tiny);
    let path = folder.path().join("tiny.gguf");
    assert_eq!(model::open(&path).unwrap().fingerprint, model.fingerprint);
    let moved = folder.path().join("moved.gguf");
    fs::rename(&path, &moved).unwrap();
    let fingerprint = || model::open(&moved).unwrap().fingerprint;
    assert_eq!(fingerprint(), model.fingerprint);

    let changed = fs::metadata(&moved).unwrap().modified().unwrap();
    let set_time = |time| {
        let file = fs::File::options().write(true).open(&moved).unwrap();
        file.set_modified(time).unwrap();
    };
    let mut other = tiny.gguf();
    other.set("general.name", Value::Text("t1ny".to_owned()));
    other.write(&moved).unwrap();
    set_time(changed);
    assert_ne!(fingerprint(), model.fingerprint);
    tiny.write_gguf(&moved).unwrap();
    set_time(changed);
    assert_eq!(fingerprint(), model.fingerprint);
    set_time(changed + Duration::from_secs(1));
    assert_ne!(fingerprint(), model.fingerprint);
}

#[test]
fn sampling_defaults_come_from_the_file_or_are_those_of_llama_3() {
    let (folder, model) = gguf(&TinyLlama::default());
    assert_eq!(model.generation.sampling.temperature, 0.6);
    assert_eq!(model.generation.sampling.top_p, 0.9);
    let path = folder.path().join("stated.gguf");
    let mut file = TinyLlama::default().gguf();
    file.set("general.sampling.temp", Value::F32(0.25));
    file.set("general.sampling.top_k", Value::I32(20));
    file.write(&path).unwrap();
    let sampling = model::open(&path).unwrap().generation.sampling;
    assert_eq!(
        (sampling.temperature, sampling.top_k, sampling.top_p),
        (0.25, 20, 0.9)
    );
}

fn folder(tiny: &TinyLlama, shards: usize) -> (TempDir, Model) {
    let folder = tempfile::tempdir().unwrap();
    tiny.write_hf(folder.path(), shards).unwrap();
    let model = model::open(folder.path()).unwrap();
    (folder, model)
}

/// GGUF's order of the rows of Q and K: the two that turn together lie side by side.
fn interleaved(rows: &[f32], cols: usize, head_dim: usize) -> Vec<f32> {
    let mut out = rows.to_vec();
    let half = head_dim / 2;
    for (from, row) in rows.chunks_exact(cols).enumerate() {
        let (head, within) = (from / head_dim, from % head_dim);
        let to = head * head_dim + within % half * 2 + within / half;
        out[to * cols..(to + 1) * cols].copy_from_slice(row);
    }
    out
}

#[test]
fn a_folder_and_a_gguf_of_the_same_model_agree() {
    for rope in [TinyRope::Plain, TinyRope::Linear(2.0), LLAMA3] {
        for tied in [false, true] {
            let tiny = TinyLlama {
                rope: rope.clone(),
                tied,
                chat_template: Some("{{ tools }}".to_owned()),
                ..TinyLlama::default()
            };
            let (_file, mut gguf) = gguf(&tiny);
            let (_folder, hf) = folder(&tiny, 1);
            assert_eq!(hf.config.rope.layout, RopeLayout::Halves);
            gguf.config.rope.layout = RopeLayout::Halves;
            assert_eq!(hf.config, gguf.config);
            assert_eq!(hf.chat_template, gguf.chat_template);
            assert_eq!(hf.parameters, gguf.parameters);
            let pairs = hf.weights.tensors().zip(gguf.weights.tensors());
            for (index, (ours, theirs)) in pairs.enumerate() {
                let (ours, theirs) = (ours.clone(), theirs.clone());
                let mut values = numbers(&ours);
                if ours.name.contains("q_proj") || ours.name.contains("k_proj") {
                    values = interleaved(&values, ours.cols, tiny.head_dim);
                }
                assert_eq!(values, numbers(&theirs), "{index}: {}", ours.name);
            }
        }
    }
}

#[test]
fn a_sharded_folder_in_bf16_is_one_model() {
    let tiny = TinyLlama {
        format: Format::Bf16,
        embedding_format: Format::Bf16,
        ..TinyLlama::default()
    };
    let (_one, whole) = folder(&tiny, 1);
    let (_three, model) = folder(&tiny, 3);
    assert_eq!(model.format, "BF16");
    assert_eq!(model.files.len(), 1 + 3 + 3);
    assert_eq!(model.parameters, whole.parameters);
    assert_eq!(
        numbers(&model.weights.layers[1].gate),
        numbers(&whole.weights.layers[1].gate)
    );
    assert_ne!(model.fingerprint, whole.fingerprint);
}

#[test]
fn a_folder_tells_end_tokens_sampling_and_its_name() {
    let tiny = TinyLlama::default();
    let (folder, model) = folder(&tiny, 1);
    assert_eq!(model.generation.end_tokens, [2]);
    let sampling = &model.generation.sampling;
    assert_eq!(
        (sampling.temperature, sampling.top_p, sampling.top_k),
        (0.7, 0.8, 20)
    );
    let name = folder.path().file_name().unwrap().to_str().unwrap();
    assert_eq!(model.name, name);
    let TokenizerSource::Json {
        tokenizer_json,
        config,
    } = &model.tokenizer
    else {
        panic!("{:?}", model.tokenizer)
    };
    assert!(tokenizer_json.is_file());
    assert_eq!(config["eos_token"], "<|im_end|>");
    fs::remove_file(folder.path().join("generation_config.json")).unwrap();
    let model = model::open(folder.path()).unwrap();
    assert_eq!(model.generation.end_tokens, [2]);
    assert_eq!(model.generation.sampling.temperature, 0.6);
}

#[test]
fn chat_templates_come_as_a_text_a_list_or_a_file() {
    let tiny = TinyLlama::default();
    let (folder, model) = folder(&tiny, 1);
    assert_eq!(model.chat_template, None);
    let template = |name: &str, text: &str| {
        fs::write(folder.path().join(name), text).unwrap();
        model::open(folder.path()).unwrap().chat_template
    };
    let list = r#"{"chat_template": [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b {{ tools }}"}]}"#;
    assert_eq!(
        template("tokenizer_config.json", list).as_deref(),
        Some("b {{ tools }}")
    );
    assert_eq!(
        template("tokenizer_config.json", r#"{"chat_template": "a"}"#).as_deref(),
        Some("a")
    );
    assert_eq!(template("chat_template.jinja", "c").as_deref(), Some("c"));
}

#[test]
fn files_of_the_safetensors_crate_are_read() {
    use safetensors::{Dtype, tensor::TensorView};
    let tiny = TinyLlama::default();
    let (folder, before) = folder(&tiny, 1);
    let matrices = tiny.matrices();
    let bytes: Vec<Vec<u8>> = matrices
        .iter()
        .map(|matrix| matrix.values.iter().flat_map(|x| x.to_le_bytes()).collect())
        .collect();
    let views = matrices.iter().zip(&bytes).map(|(matrix, bytes)| {
        let shape = match matrix.rows {
            1 => vec![matrix.cols],
            rows => vec![rows, matrix.cols],
        };
        let view = TensorView::new(Dtype::F32, shape, bytes).unwrap();
        (matrix.hf_name(), view)
    });
    let path = folder.path().join("model.safetensors");
    safetensors::serialize_to_file(views, None, &path).unwrap();
    let model = model::open(folder.path()).unwrap();
    for (now, before) in model.weights.tensors().zip(before.weights.tensors()) {
        assert_eq!(numbers(now), numbers(before), "{}", now.name);
    }
}

#[test]
fn a_scripted_model_opens() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scripted.gguf");
    Scripted::default()
        .answer_text("Hello, hello, hello there. Hello!", 3)
        .answer(&["second ", "answer"])
        .template("{{ messages }}<|answer_LAST_ANSWER|>")
        .write_gguf(&path)
        .unwrap();
    let model = model::open(&path).unwrap();
    assert_eq!(
        model.chat_template.as_deref(),
        Some("{{ messages }}<|answer_1|>")
    );
}

#[test]
fn smollm2_opens() {
    let Some(path) = smollm2() else { return };
    let model = model::open(&path).unwrap();
    assert_eq!(model.name, "Smollm2 135M 8k Lc100K Mix1 Ep2");
    assert_eq!(model.format, "Q4_1");
    assert_eq!(model.parameters, 134_515_008);
    let config = &model.config;
    assert_eq!(
        (config.layers, config.hidden, config.heads, config.kv_heads),
        (30, 576, 9, 3)
    );
    assert!(config.tied_embeddings);
    assert_eq!(model.weights.embedding.format, Format::Q8_0);
    let inspection = Inspection::new(
        &model,
        Cpu::plan(&model, PlanOptions::default()),
        available(),
    );
    println!("{inspection}");
    assert_eq!(inspection.plan.kv, 180 << 20);
}
