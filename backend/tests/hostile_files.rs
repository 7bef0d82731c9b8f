//! Files that want to do harm, or were only cut short: each ends in one clear line, at once, and takes no memory to speak of.
//!
//! `container`, `llama` and `folder` break one thing at a time and know which line must come. `fuzz` breaks anything anywhere; `CODEX_BRIDGE_FUZZ_RUNS` sets how often:
//!
//! ```text
//! CODEX_BRIDGE_FUZZ_RUNS=1000000 cargo nextest run --release -p codex-bridge-backend --test hostile_files
//! ```

#![expect(clippy::unwrap_used, reason = "the helpers are tests too")]

#[path = "hostile_files/container.rs"]
mod container;
#[path = "hostile_files/folder.rs"]
mod folder;
#[path = "hostile_files/fuzz.rs"]
mod fuzz;
#[path = "hostile_files/llama.rs"]
mod llama;

use std::path::Path;

use codex_bridge_backend::{
    cpu::Cpu,
    model::{self, Model, ModelError, weights::Format},
    testing::{
        TinyLlama,
        gguf::{Gguf, Value},
    },
};

/// A model whose head is short, so that a mutation is likely to hit something: one layer, eight tokens.
fn small() -> Gguf {
    let tiny = TinyLlama {
        layers: 1,
        hidden: 32,
        ffn: 32,
        heads: 2,
        kv_heads: 1,
        format: Format::Q4_1,
        embedding_format: Format::Q8_0,
        chat_template: Some("{{ tools }}".to_owned()),
        ..TinyLlama::default()
    };
    let mut file = tiny.gguf();
    let tokens = [
        "<|end|>",
        "<|im_start|>",
        "<|im_end|>",
        "a",
        "b",
        "c",
        "ab",
        "bc",
    ];
    let texts =
        |texts: &[&str]| Value::Texts(texts.iter().map(|text| (*text).to_owned()).collect());
    file.set("tokenizer.ggml.tokens", texts(&tokens));
    file.set(
        "tokenizer.ggml.token_type",
        Value::I32s(vec![3, 3, 3, 1, 1, 1, 1, 1]),
    );
    file.set("tokenizer.ggml.merges", texts(&["a b", "b c"]));
    file.set("llama.vocab_size", tokens.len());
    for name in ["token_embd.weight", "output.weight"] {
        let tensor = file.tensor(name);
        tensor.dims[1] = 8;
        tensor.bytes.truncate(8 * 34);
    }
    file
}

/// Opens and does what every user of a model does first. A refusal must be one short line that names the file.
fn open(path: &Path) -> Result<Model, ModelError> {
    use codex_bridge_backend::model::{inspect::Inspection, plan::PlanOptions};
    match model::open(path) {
        Ok(model) => {
            let inspection =
                Inspection::new(&model, Cpu::plan(&model, PlanOptions::default()), None);
            assert!(inspection.to_string().lines().count() < 100);
            for tensor in model.weights.tensors() {
                assert_eq!(
                    tensor.bytes().len(),
                    tensor.rows * tensor.format.row_bytes(tensor.cols)
                );
            }
            Ok(model)
        }
        Err(error) => {
            let line = error.to_string();
            let folder = path.display().to_string();
            assert!(
                line.starts_with(&folder) && !line.contains(['\n', '\r', '\u{1b}']),
                "{line}"
            );
            assert!(line.chars().count() < 800 + folder.len(), "{line}");
            Err(error)
        }
    }
}

/// What is done to a good file, and what the refusal must say.
type Case = (&'static str, fn(&mut Gguf), &'static str);

/// Each case as it ends: the whole line but for the path.
fn refuse(cases: &[Case]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    for (name, change, expected) in cases {
        let mut file = small();
        change(&mut file);
        file.write(&path).unwrap();
        refused(name, &path, expected);
    }
}

fn refused(name: &str, path: &Path, expected: &str) {
    match open(path) {
        Ok(_) => panic!("{name}: opened"),
        Err(error) => {
            let line = error.to_string();
            assert!(line.contains(expected), "{name}: {line}");
        }
    }
}

/// Resident bytes of this process at their peak.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
        .map_or(0, |kib| kib << 10)
}
