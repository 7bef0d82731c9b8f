//! The oracle, and the CPU device with f32 weights, against logits that an implementation that is not ours made of the same tiny random Llamas:
//! `backend/python/golden_logits.py`.

#![expect(clippy::unwrap_used, reason = "the helpers are tests too")]

use codex_bridge_backend::{
    cpu::{Cpu, CpuOptions, Isa},
    device::{Device, PageId, Span},
    model::{self, Model, plan::KvFormat},
    oracle,
    testing::{TinyLlama, TinyRope},
};

const KEPT: [usize; 3] = [0, 16, 47];

fn cases() -> [(&'static str, usize, usize, bool, TinyRope); 4] {
    let llama3 = |factor, original| TinyRope::Llama3 {
        factor,
        low: 1.0,
        high: 4.0,
        original,
    };
    [
        ("gqa1-untied", 4, 4, false, TinyRope::Plain),
        ("gqa3-tied-linear", 6, 2, true, TinyRope::Linear(4.0)),
        ("gqa4-untied-llama3", 8, 2, false, llama3(8.0, 64)),
        ("gqa8-tied-llama3", 8, 1, true, llama3(32.0, 128)),
    ]
}

fn golden(name: &str) -> Vec<f32> {
    let path = format!(
        "{}/tests/golden/logits/{name}.bin",
        env!("CARGO_MANIFEST_DIR")
    );
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    bytes
        .chunks_exact(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect()
}

fn tokens(model: &Model) -> Vec<u32> {
    (0..48)
        .map(|i| (7919 * i + 3) % model.config.vocab as u32)
        .collect()
}

/// Largest difference over the largest expected value.
fn distance(got: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(got.len(), expected.len());
    let largest = |values: &mut dyn Iterator<Item = f32>| values.map(f32::abs).fold(0.0, f32::max);
    let error = largest(
        &mut got
            .iter()
            .zip(expected)
            .map(|(got, expected)| got - expected),
    );
    error / largest(&mut expected.iter().copied())
}

#[test]
fn oracle_and_cpu_agree_with_another_implementation_to_a_ten_thousandth() {
    for (name, heads, kv_heads, tied, rope) in cases() {
        let tiny = TinyLlama {
            heads,
            kv_heads,
            tied,
            rope,
            ..TinyLlama::default()
        };
        let folder = tempfile::tempdir().unwrap();
        let gguf = folder.path().join("tiny.gguf");
        tiny.write_gguf(&gguf).unwrap();
        let hf = folder.path().join("hf");
        std::fs::create_dir(&hf).unwrap();
        tiny.write_hf(&hf, 1).unwrap();
        let expected = golden(name);
        // The two containers have the two layouts of rotary embedding.
        for path in [gguf, hf] {
            let model = model::open(&path).unwrap();
            let tokens = tokens(&model);
            let all = oracle::logits(&model, &tokens);
            let got: Vec<f32> = KEPT.iter().flat_map(|&i| all[i].clone()).collect();
            let off = distance(&got, &expected);
            println!("{name} {}: oracle {off:e}", path.display());
            assert!(off < 1e-4, "{name}, oracle: {off:e}");
            for isa in Isa::available() {
                let off = distance(&run(&model, isa, &tokens), &expected);
                assert!(off < 1e-4, "{name}, {isa}: {off:e}");
            }
        }
    }
}

fn run(model: &Model, isa: Isa, tokens: &[u32]) -> Vec<f32> {
    let options = CpuOptions {
        threads: 2,
        pages: 3,
        kv: KvFormat::F32,
        max_batch_tokens: 48,
        max_rows: 48,
        force: Some(isa),
    };
    let mut device = Cpu::new(model, &options).unwrap();
    device
        .forward(&[Span {
            tokens,
            past: 0,
            pages: &[PageId(0), PageId(1), PageId(2)],
            rows: 48,
        }])
        .unwrap();
    let mut row = vec![0.0; model.config.vocab];
    KEPT.iter()
        .flat_map(|&i| {
            device.logits(i, &mut row).unwrap();
            row.clone()
        })
        .collect()
}
