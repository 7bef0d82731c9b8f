//! The memory plan is what the device takes.

use pretty_assertions::assert_eq;

use super::*;
use crate::testing::TinyLlama;

fn open(tiny: &TinyLlama) -> Model {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    tiny.write_gguf(&path).unwrap();
    crate::model::open(&path).unwrap()
}

#[test]
fn pages_are_as_large_as_planned() {
    // Bytes of the keys, or values, of a head: sixteen tokens of `head_dim` rounded up to whole vectors, Q8_0 to records of two blocks (1088 bytes).
    let heads = [
        (64, [4096, 2048, 2048, 1088]),
        (80, [5120, 2560, 2560, 0]),
        (96, [6144, 3072, 3072, 2176]),
        (100, [7168, 3584, 3584, 0]),
        (128, [8192, 4096, 4096, 2176]),
    ];
    for (head_dim, formats) in heads {
        let model = open(&TinyLlama {
            head_dim,
            heads: 2,
            kv_heads: 1,
            ..TinyLlama::default()
        });
        for (kv, head) in KvFormat::ALL.into_iter().zip(formats) {
            let options = CpuOptions {
                threads: 1,
                pages: 1,
                kv,
                max_batch_tokens: 1,
                max_rows: 1,
                ..CpuOptions::default()
            };
            let cpu = Cpu::new(&model, &options);
            if head == 0 {
                assert!(matches!(cpu, Err(CpuError::Kv { .. })), "{head_dim} {kv}");
                continue;
            }
            let plan = Cpu::plan(
                &model,
                PlanOptions {
                    kv,
                    ..PlanOptions::default()
                },
            );
            // Two layers, one head of keys and one of values.
            assert_eq!(plan.page_bytes, 2 * 2 * head, "{head_dim} {kv}");
            let caps = cpu.unwrap().caps;
            assert_eq!(caps.page_bytes as u64, plan.page_bytes, "{head_dim} {kv}");
        }
    }
}

#[test]
fn weights_are_priced_as_they_are_packed() {
    let planned = |format| {
        let model = open(&TinyLlama {
            hidden: 256,
            ffn: 256,
            heads: 4,
            kv_heads: 4,
            head_dim: 64,
            vocab: 320,
            format,
            ..TinyLlama::default()
        });
        let plan = Cpu::plan(&model, PlanOptions::default());
        (plan.weights, model.weight_bytes)
    };
    // Whole tiles in formats whose records have no padding: as in the file.
    for format in [Format::F32, Format::F16, Format::Q8_0, Format::Q4_1] {
        let (planned, file) = planned(format);
        assert_eq!(planned, file, "{format}");
    }
    // Of Q4_K, scale and minimum of 32 columns take two bytes and not one and a half: 4 bytes more on 144.
    let (packed, file) = planned(Format::Q4K);
    let blocks = 2 * 7 * 256;
    assert_eq!(packed, file + 4 * blocks);
}
