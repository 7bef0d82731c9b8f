//! The engine on the real CPU device: company, guesses, preemption and warm start never change a text. A tiny random model is as good as any for that, since
//! its next token hangs on every bit of the logits before it.

#![allow(clippy::unwrap_used, reason = "a failing test may panic")]

use std::sync::Arc;

use codex_bridge_backend::{
    cpu::{Cpu, CpuOptions},
    device::TokenMask,
    engine::{
        Engine, EngineOptions, Generation, WarmStart,
        constraint::{Constraint, ConstraintError, Next},
        request::{Finish, GenerateRequest, Output, Usage},
    },
    model::{self, Model, plan::KvFormat, weights::Format},
    sample::{Sampled, SamplingParams},
    testing::{Random, TinyLlama},
};
use pretty_assertions::assert_eq;

/// Kept as they come, and in the 8 bits that are usual: the two kernels of attention.
const FORMATS: [KvFormat; 2] = [KvFormat::F16, KvFormat::Q8_0];

fn tiny() -> Model {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    let tiny = TinyLlama {
        format: Format::Q4_1,
        embedding_format: Format::Q8_0,
        context: 4096,
        // A block of 8-bit keys.
        head_dim: 32,
        ..TinyLlama::default()
    };
    tiny.write_gguf(&path).unwrap();
    model::open(&path).unwrap()
}

fn start(model: &Model, kv: KvFormat, pages: usize, options: EngineOptions) -> Engine {
    let cpu = Cpu::new(
        model,
        &CpuOptions {
            threads: 2,
            pages,
            kv,
            max_batch_tokens: 160,
            ..CpuOptions::default()
        },
    );
    Engine::start(Box::new(cpu.unwrap()), options)
}

fn tokens(seed: u64, length: usize) -> Vec<u32> {
    let mut random = Random(seed);
    (0..length).map(|_| random.below(256) as u32).collect()
}

/// Allows two tokens of three at each place, another third at each.
#[derive(Debug)]
struct Thirds {
    at: u32,
    vocab: u32,
}

impl Thirds {
    fn mask(&self, at: u32) -> TokenMask {
        let mut words = vec![0; self.vocab.div_ceil(32) as usize];
        for token in (0..self.vocab).filter(|token| token % 3 != at % 3) {
            words[token as usize / 32] |= 1 << (token % 32);
        }
        TokenMask(Arc::from(words))
    }
}

impl Constraint for Thirds {
    fn next(&mut self) -> Result<Next, ConstraintError> {
        Ok(match self.at {
            5 => Next::Forced(vec![9, 10, 11]),
            30.. => Next::End,
            at => Next::Mask(self.mask(at)),
        })
    }

    fn accept(&mut self, _: u32) -> Result<(), ConstraintError> {
        self.at += 1;
        Ok(())
    }

    fn would_accept(&mut self, draft: &[u32]) -> usize {
        // The place that is forced is not guessed at.
        let end = if self.at < 5 { 5 } else { 30 };
        let places = (self.at..end).zip(draft);
        places
            .take_while(|(at, token)| *token % 3 != at % 3)
            .count()
    }

    fn masks_along(&mut self, draft: &[u32]) -> Result<Vec<Option<TokenMask>>, ConstraintError> {
        let places = 1..=draft.len() as u32;
        Ok(places.map(|n| Some(self.mask(self.at + n))).collect())
    }
}

/// Requests of every kind: greedy and sampled, short and long, some that begin alike, some with penalties, some constrained, some that repeat themselves.
fn mixed(model: &Model, index: u64) -> GenerateRequest {
    let mut prompt = tokens(index % 3, 30 + 90 * (index as usize % 4));
    if index % 4 == 1 {
        prompt.extend(tokens(77, 12).repeat(8));
    }
    prompt.extend(tokens(100 + index, 3 + 7 * (index as usize % 5)));
    let is_sampled = index % 2 == 1;
    GenerateRequest {
        prompt,
        stable_prefix: 0,
        sampling: SamplingParams {
            temperature: if is_sampled { 0.7 } else { 0.0 },
            top_p: if is_sampled { 0.9 } else { 1.0 },
            repetition_penalty: if index % 5 == 2 { 1.1 } else { 1.0 },
            seed: index,
            ..SamplingParams::default()
        },
        max_tokens: 24 + 8 * (index as usize % 4),
        end_tokens: Arc::from([]),
        constraint: (index % 4 == 3).then(|| -> Box<dyn Constraint> {
            Box::new(Thirds {
                at: 0,
                vocab: model.config.vocab as u32,
            })
        }),
        top_logprobs: index as usize % 3,
    }
}

fn read(mut generation: Generation) -> (Vec<Sampled>, Finish, Usage) {
    let mut tokens = Vec::new();
    loop {
        match generation.blocking_next().unwrap() {
            Output::Progress { .. } => {}
            Output::Tokens(more) => tokens.extend(more),
            Output::Finished { reason, usage } => return (tokens, reason, usage),
        }
    }
}

/// Each request by itself, without guesses, on an engine that has seen nothing.
fn each_alone(model: &Model, kv: KvFormat) -> Vec<(Vec<Sampled>, Finish)> {
    let alone = |index| {
        let options = EngineOptions {
            drafts: false,
            ..EngineOptions::default()
        };
        let engine = start(model, kv, 200, options);
        let (tokens, reason, _) = read(engine.submit(mixed(model, index)).unwrap());
        (tokens, reason)
    };
    (0..16).map(alone).collect()
}

#[test]
fn sixteen_mixed_requests_together_give_the_bits_each_gives_alone() {
    let model = tiny();
    for kv in FORMATS {
        let alone = each_alone(&model, kv);
        // Pages for all, and pages for two or three.
        for pages in [600, 60] {
            let engine = start(&model, kv, pages, EngineOptions::default());
            // The second time they find each other's pages.
            for _ in 0..2 {
                let open: Vec<_> = (0..16)
                    .map(|index| engine.submit(mixed(&model, index)).unwrap())
                    .collect();
                for (generation, alone) in open.into_iter().zip(&alone) {
                    let (tokens, reason, _) = read(generation);
                    assert_eq!((&tokens, &reason), (&alone.0, &alone.1), "{kv}");
                }
            }
            let status = engine.status();
            assert_eq!((status.pages_used, status.finished), (0, 32));
            assert!(status.healthy);
            println!("{kv}, {pages} pages: {status:?}");
        }
    }
}

#[test]
fn cancelling_any_of_sixteen_leaves_the_others_as_they_are() {
    let (model, kv) = (tiny(), KvFormat::Q8_0);
    let alone = each_alone(&model, kv);
    let engine = start(&model, kv, 600, EngineOptions::default());
    for cancelled in 0..16u64 {
        let mut open: Vec<_> = (0..16)
            .map(|index| engine.submit(mixed(&model, index)).unwrap())
            .collect();
        let mut gone = open.remove(cancelled as usize);
        // At the first word of it, wherever the others are by then.
        gone.blocking_next();
        drop(gone);
        let others = (0..16).filter(|&index| index != cancelled as usize);
        for (generation, index) in open.into_iter().zip(others) {
            assert_eq!(
                read(generation).0,
                alone[index].0,
                "{index} beside {cancelled}"
            );
        }
    }
    assert_eq!(engine.status().pages_used, 0);
}

#[test]
fn a_prefix_read_from_disk_gives_the_bits_that_a_computed_one_gives() {
    FORMATS.into_iter().for_each(stored_and_read);
}

fn stored_and_read(kv: KvFormat) {
    let model = tiny();
    let dir = tempfile::tempdir().unwrap();
    let begin = || {
        let options = EngineOptions {
            warm_start: Some(WarmStart {
                dir: dir.path().to_path_buf(),
                max_bytes: 1 << 30,
                model: model.fingerprint.clone(),
                min_tokens: 64,
            }),
            ..EngineOptions::default()
        };
        start(&model, kv, 200, options)
    };
    let ask = || {
        let mut request = mixed(&model, 2);
        request.prompt = [tokens(5, 900), tokens(6, 20)].concat();
        request.stable_prefix = 900;
        request.constraint = None;
        request
    };
    let cold = begin();
    let (computed, _, usage) = read(cold.submit(ask()).unwrap());
    assert_eq!(usage.cached, 0);
    while cold.status().prefixes_stored == 0 {
        std::thread::yield_now();
    }
    cold.shutdown();
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(cold.stopped());
    let (read_back, _, usage) = read(begin().submit(ask()).unwrap());
    assert_eq!(usage.cached, 896);
    assert_eq!(read_back, computed);
}
