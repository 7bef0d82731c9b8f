//! The CPU device against the plain f32 oracle, on every weight format, KV format and instruction set this machine has; and against itself: no bit of a
//! token's logits may depend on how its tokens were batched.

#![expect(clippy::unwrap_used, reason = "the helpers are tests too")]

use codex_bridge_backend::{
    cpu::{Cpu, CpuOptions, Isa},
    device::{Device, PAGE_TOKENS, PageId, Span},
    model::{self, Model, plan::KvFormat, weights::Format},
    oracle,
    testing::{Random, TinyLlama, TinyRope},
};

const FORMATS: [Format; 9] = [
    Format::F32,
    Format::F16,
    Format::Bf16,
    Format::Q8_0,
    Format::Q4_0,
    Format::Q4_1,
    Format::Q4K,
    Format::Q5K,
    Format::Q6K,
];

fn open(tiny: &TinyLlama) -> Model {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    tiny.write_gguf(&path).unwrap();
    model::open(&path).unwrap()
}

fn prompt(model: &Model, len: usize) -> Vec<u32> {
    let mut random = Random(7);
    (0..len)
        .map(|_| random.below(model.config.vocab) as u32)
        .collect()
}

fn cpu(model: &Model, options: &CpuOptions) -> Cpu {
    Cpu::new(model, options).unwrap()
}

fn options(isa: Isa, threads: usize, kv: KvFormat) -> CpuOptions {
    CpuOptions {
        threads,
        pages: 64,
        kv,
        max_batch_tokens: 600,
        max_rows: 600,
        force: Some(isa),
    }
}

fn table(first: u32, tokens: usize) -> Vec<PageId> {
    (0..tokens.div_ceil(PAGE_TOKENS) as u32)
        .map(|page| PageId(first + page))
        .collect()
}

fn rows(device: &mut Cpu, rows: usize) -> Vec<Vec<f32>> {
    let mut out = vec![vec![0.0; device.caps().vocab]; rows];
    for (row, out) in out.iter_mut().enumerate() {
        device.logits(row, out).unwrap();
    }
    out
}

/// Logits after every token, the tokens run in chunks of these lengths.
fn run(device: &mut Cpu, tokens: &[u32], chunks: &[usize]) -> Vec<Vec<f32>> {
    let pages = table(0, tokens.len());
    let mut past = 0;
    let mut out = Vec::new();
    for &len in chunks {
        device
            .forward(&[Span {
                tokens: &tokens[past..past + len],
                past,
                pages: &pages,
                rows: len,
            }])
            .unwrap();
        out.extend(rows(device, len));
        past += len;
    }
    assert_eq!(past, tokens.len());
    out
}

/// Root of the mean squared difference over that of the expected values.
fn distance(got: &[Vec<f32>], expected: &[Vec<f32>]) -> f32 {
    let pairs = || {
        got.iter()
            .flatten()
            .zip(expected.iter().flatten())
            .map(|(got, expected)| (f64::from(*got), f64::from(*expected)))
    };
    let error: f64 = pairs()
        .map(|(got, expected)| (got - expected).powi(2))
        .sum();
    let size: f64 = pairs().map(|(_, expected)| expected.powi(2)).sum();
    (error / size).sqrt() as f32
}

/// What the encoding of activations costs: none for F32 and F16 weights, bf16 for BF16, int8 in blocks of 32 for the rest.
fn tolerance(format: Format) -> f32 {
    match format {
        Format::F32 | Format::F16 => 2e-5,
        Format::Bf16 => 6e-3,
        _ => 2e-2,
    }
}

#[test]
fn every_weight_format_on_every_instruction_set_agrees_with_the_oracle() {
    for format in FORMATS {
        let tiny = TinyLlama {
            hidden: 256,
            ffn: 512,
            heads: 8,
            kv_heads: 2,
            head_dim: 32,
            format,
            embedding_format: format,
            tied: true,
            ..TinyLlama::default()
        };
        let model = open(&tiny);
        let tokens = prompt(&model, 40);
        let expected = oracle::logits(&model, &tokens);
        for isa in Isa::available() {
            let mut device = cpu(&model, &options(isa, 2, KvFormat::F32));
            let got = run(&mut device, &tokens, &[40]);
            let distance = distance(&got, &expected);
            println!("{format} {isa}: {distance:e}");
            assert!(
                distance < tolerance(format),
                "{format} on {isa}: {distance:e}"
            );
        }
    }
}

#[test]
fn every_kv_format_on_every_instruction_set_agrees_with_the_oracle() {
    let model = open(&TinyLlama {
        head_dim: 24,
        heads: 6,
        kv_heads: 2,
        ..TinyLlama::default()
    });
    let whole = open(&TinyLlama {
        head_dim: 96,
        heads: 6,
        kv_heads: 2,
        ..TinyLlama::default()
    });
    for (kv, tolerance) in [
        (KvFormat::F32, 2e-5),
        (KvFormat::F16, 2e-3),
        (KvFormat::Bf16, 1e-2),
        (KvFormat::Q8_0, 2e-2),
    ] {
        if kv == KvFormat::Q8_0 {
            // Blocks of 32: heads of 24 numbers are refused.
            assert!(Cpu::new(&model, &options(Isa::Scalar, 1, kv)).is_err());
        }
        let model = if kv == KvFormat::Q8_0 { &whole } else { &model };
        let tokens = prompt(model, 100);
        let expected = oracle::logits(model, &tokens);
        for isa in Isa::available() {
            let got = run(&mut cpu(model, &options(isa, 2, kv)), &tokens, &[100]);
            let distance = distance(&got, &expected);
            println!("{kv} {isa}: {distance:e}");
            assert!(distance < tolerance, "{kv} on {isa}: {distance:e}");
        }
    }
}

#[test]
fn shapes_and_ropes_of_the_family_agree_with_the_oracle() {
    let base = TinyLlama::default();
    let llama3 = TinyRope::Llama3 {
        factor: 8.0,
        low: 1.0,
        high: 4.0,
        original: 64,
    };
    let shapes = [
        (1, 1, false, TinyRope::Plain),
        (3, 1, true, TinyRope::Linear(4.0)),
        (8, 2, false, llama3.clone()),
        (8, 1, true, llama3),
        (9, 3, true, TinyRope::Plain),
    ];
    for (heads, kv_heads, tied, rope) in shapes {
        let tiny = TinyLlama {
            heads,
            kv_heads,
            tied,
            rope,
            hidden: 36,
            ffn: 52,
            head_dim: 10,
            ..base.clone()
        };
        let model = open(&tiny);
        let tokens = prompt(&model, 50);
        let expected = oracle::logits(&model, &tokens);
        for isa in Isa::available() {
            let got = run(
                &mut cpu(&model, &options(isa, 2, KvFormat::F32)),
                &tokens,
                &[17, 1, 32],
            );
            let distance = distance(&got, &expected);
            assert!(distance < 2e-5, "{tiny:?} on {isa}: {distance:e}");
        }
    }
}

#[test]
fn no_bit_depends_on_chunks_batch_or_threads() {
    for (format, kv, heads, head_dim) in [
        (Format::Q4_1, KvFormat::F16, 8, 32),
        (Format::Q6K, KvFormat::Bf16, 8, 32),
        (Format::Bf16, KvFormat::Bf16, 8, 32),
        (Format::F16, KvFormat::F32, 8, 32),
        (Format::Q8_0, KvFormat::Q8_0, 8, 32),
        // Heads of an odd number of blocks, three to a key head.
        (Format::Q4_0, KvFormat::Q8_0, 6, 96),
    ] {
        let model = open(&TinyLlama {
            hidden: 256,
            ffn: 256,
            heads,
            kv_heads: 2,
            head_dim,
            context: 1024,
            format,
            embedding_format: Format::Q8_0,
            ..TinyLlama::default()
        });
        let tokens = prompt(&model, 560);
        for isa in Isa::available() {
            let whole = run(&mut cpu(&model, &options(isa, 1, kv)), &tokens, &[560]);
            for threads in [1, 3] {
                let mut device = cpu(&model, &options(isa, threads, kv));
                let parts = run(
                    &mut device,
                    &tokens,
                    &[1, 2, 3, 250, 5, 7, 1, 1, 270, 13, 4, 2, 1],
                );
                assert!(
                    whole == parts,
                    "{format} {kv} {isa}, {threads} threads: chunks change the logits"
                );
                // Beside another sequence, whose prompt runs while this one decodes and has a draft verified.
                let pages = table(0, tokens.len());
                let other_pages = table(40, 200);
                let span = |past: usize, len: usize| Span {
                    tokens: &tokens[past..past + len],
                    past,
                    pages: &pages,
                    rows: len,
                };
                for (past, len) in [(520, 1), (521, 4), (525, 3)] {
                    let other = Span {
                        tokens: &tokens[past - 520..past - 520 + 97],
                        past: 0,
                        pages: &other_pages,
                        rows: 0,
                    };
                    device.forward(&[other, span(past, len)]).unwrap();
                    assert!(
                        rows(&mut device, len) == whole[past..past + len],
                        "{format} {kv} {isa}: another sequence changes the logits"
                    );
                }
            }
        }
    }
}

#[test]
fn pages_can_be_copied_in_part_and_carried_away_and_brought_back() {
    let model = open(&TinyLlama {
        head_dim: 32,
        heads: 2,
        kv_heads: 2,
        ..TinyLlama::default()
    });
    let tokens = prompt(&model, 40);
    for kv in KvFormat::ALL {
        let mut device = cpu(&model, &options(Isa::available()[0], 1, kv));
        let expected = run(&mut device, &tokens, &[40]);
        // Positions 0..24 are kept: page 0 by its bytes, half of page 1 by copying.
        let mut bytes = vec![0; device.caps().page_bytes];
        device.read_page(PageId(0), &mut bytes).unwrap();
        device.copy_page(PageId(1), PageId(6), 8).unwrap();
        let mut other = vec![0xff; device.caps().page_bytes];
        other.fill(0);
        device.write_page(PageId(0), &other).unwrap();
        device.write_page(PageId(5), &bytes).unwrap();
        device
            .forward(&[Span {
                tokens: &tokens[24..],
                past: 24,
                pages: &[PageId(5), PageId(6), PageId(7)],
                rows: 16,
            }])
            .unwrap();
        assert!(rows(&mut device, 16) == expected[24..], "{kv}");
    }
}

#[test]
fn a_batch_that_does_not_fit_is_refused_in_words() {
    let model = open(&TinyLlama::default());
    let mut device = cpu(&model, &options(Isa::Scalar, 1, KvFormat::F16));
    let mut fails = |span: Span<'_>, message: &str| {
        let error = device.forward(&[span]).unwrap_err();
        assert_eq!(error.message, message);
    };
    let span = Span {
        tokens: &[1, 2],
        past: 15,
        pages: &[PageId(0), PageId(1)],
        rows: 1,
    };
    fails(
        Span {
            pages: &[PageId(0)],
            ..span
        },
        "span 0: 17 tokens need 2 pages; 1 given",
    );
    fails(
        Span {
            pages: &[PageId(0), PageId(64)],
            ..span
        },
        "span 0: page 64; the pool has 64, from 0",
    );
    fails(
        Span {
            pages: &[PageId(1), PageId(1)],
            ..span
        },
        "two spans write page 1",
    );
    fails(Span { rows: 3, ..span }, "span 0: 3 rows of 2 tokens");
    fails(
        Span {
            tokens: &[1, 9999],
            ..span
        },
        "span 0: token 9999 of a vocabulary of 275",
    );
}
