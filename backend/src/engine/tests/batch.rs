//! Company never changes a text: batches, shared prefixes, copies of pages, preemption.

use pretty_assertions::assert_eq;

use crate::engine::{EngineOptions, request::GenerateRequest, testing::*};

/// Sixteen requests of every kind: greedy and sampled, short and long, some beginning alike, some with penalties, some constrained.
pub(super) fn mixed(index: u64) -> GenerateRequest {
    let mut prompt_tokens = prompt(index % 3, 20 + 37 * (index as usize % 5));
    prompt_tokens.extend(prompt(100 + index, 5 + 11 * (index as usize % 4)));
    let mut request = request(prompt_tokens, 10 + 7 * (index as usize % 6));
    if index % 2 == 1 {
        request.sampling.temperature = 0.9;
        request.sampling.seed = index;
        request.sampling.top_p = 0.95;
    }
    if index % 5 == 2 {
        request.sampling.repetition_penalty = 1.2;
        request.sampling.frequency_penalty = 0.1;
    }
    if index % 4 == 3 {
        let place = |at: u32| match at % 5 {
            0 => Allow::Any,
            1 => Allow::OneOf(vec![at]),
            _ => Allow::OneOf((0..20).map(|t| 3 * t).collect()),
        };
        request.constraint = Script::boxed((0..15).map(place).collect());
    }
    request.top_logprobs = index as usize % 4;
    request
}

pub(super) fn alone(fake: Fake, request: GenerateRequest) -> Whole {
    let engine = fake.start(EngineOptions {
        drafts: false,
        mask_workers: 0,
        ..EngineOptions::default()
    });
    read(engine.submit(request).unwrap())
}

#[test]
fn sixteen_mixed_requests_together_say_what_each_says_alone() {
    for (pages, batch) in [(400, 512), (400, 33), (20, 512)] {
        let fake = Fake::new(pages).memory(6).end_every(50).batch_tokens(batch);
        let engine = fake.start(EngineOptions::default());
        let running: Vec<_> = (0..16).map(|i| engine.submit(mixed(i)).unwrap()).collect();
        let together: Vec<_> = running.into_iter().map(read).collect();
        for (index, whole) in together.iter().enumerate() {
            let fake = Fake::new(400).memory(6).end_every(50);
            let alone = alone(fake, mixed(index as u64));
            assert_eq!(
                (&whole.tokens, &whole.reason),
                (&alone.tokens, &alone.reason)
            );
            assert_eq!(whole.usage.generated, alone.usage.generated);
        }
        let status = engine.status();
        assert_eq!(
            (status.running, status.queued, status.pages_used),
            (0, 0, 0)
        );
        assert_eq!(status.finished, 16);
        // 20 pages hold one of them and a bit.
        assert_eq!(status.evictions > 0, pages == 20, "{status:?}");
    }
}

#[test]
fn a_prefix_two_requests_share_is_computed_once_even_if_they_come_together() {
    let (fake, gate) = Fake::new(100).gate();
    let engine = fake.start(EngineOptions::default());
    let shared = prompt(1, 300);
    let ask = |last: u32| request([shared.as_slice(), &[last; 20]].concat(), 3);
    let first = engine.submit(ask(1)).unwrap();
    gate.arrive();
    let second = engine.submit(ask(2)).unwrap();
    let reader = std::thread::spawn(move || (read(first), read(second)));
    gate.open();
    let mut computed = 64;
    while !reader.is_finished() {
        let Some(seen) = gate.try_pass() else {
            continue;
        };
        computed += seen.iter().map(|span| span.tokens.len()).sum::<usize>();
    }
    let (first, second) = reader.join().unwrap();
    assert_eq!((first.usage.cached, second.usage.cached), (0, 300));
    // 320 prompt tokens once, 20 of the second, two more tokens each.
    assert_eq!(computed, 320 + 20 + 2 * 2);
    let alone = alone(Fake::new(100), ask(2));
    assert_eq!(second.tokens, alone.tokens);
    assert_eq!(second.progress.first(), Some(&(300, 320, 320)));
}

#[test]
fn a_conversation_goes_on_from_its_cached_pages_to_the_token() {
    let engine = Fake::new(100).start(EngineOptions::default());
    let first = request(prompt(5, 100), 30);
    let answer = read(engine.submit(first).unwrap());
    let mut history = prompt(5, 100);
    history.extend(answer.text());
    history.extend(prompt(6, 10));
    let second = read(engine.submit(request(history.clone(), 20)).unwrap());
    // The last token of the answer was drawn and never run.
    assert_eq!(second.usage.cached, 129);
    let alone = alone(Fake::new(100), request(history, 20));
    assert_eq!((alone.usage.cached, second.tokens), (0, alone.tokens));
}

#[test]
fn two_that_part_inside_a_page_each_keep_their_own() {
    let engine = Fake::new(100).start(EngineOptions::default());
    let mut texts = Vec::new();
    for last in [1, 2, 1, 2] {
        let tokens = [prompt(8, 40).as_slice(), &[last], &prompt(9, 3)].concat();
        texts.push(read(engine.submit(request(tokens, 12)).unwrap()));
    }
    assert_eq!(
        texts.iter().map(|t| t.usage.cached).collect::<Vec<_>>(),
        [0, 40, 43, 43]
    );
    assert_eq!(texts[0].tokens, texts[2].tokens);
    assert_eq!(texts[1].tokens, texts[3].tokens);
    assert_ne!(texts[0].tokens, texts[1].tokens);
}

#[test]
fn when_pages_run_out_the_youngest_is_computed_again_and_says_the_same() {
    // Each ends with 12 pages; 20 hold one and a half.
    let engine = Fake::new(20).start(EngineOptions::default());
    let running: Vec<_> = (0..4)
        .map(|i| engine.submit(request(prompt(i, 30), 160)).unwrap())
        .collect();
    for (index, generation) in running.into_iter().enumerate() {
        let whole = read(generation);
        let alone = alone(Fake::new(20), request(prompt(index as u64, 30), 160));
        assert_eq!(whole.tokens, alone.tokens);
        assert_eq!(whole.usage.generated, 160);
    }
    let status = engine.status();
    assert!(status.preemptions > 0 && status.evictions > 0, "{status:?}");
    assert_eq!(status.pages_used, 0);
}

#[test]
fn the_cache_gives_way_to_what_runs() {
    let engine = Fake::new(16).start(EngineOptions::default());
    for seed in 0..10 {
        let whole = read(engine.submit(request(prompt(seed, 100), 20)).unwrap());
        assert_eq!(whole.usage.cached, 0);
    }
    let status = engine.status();
    assert_eq!((status.pages_used, status.preemptions), (0, 0));
    assert!(status.evictions >= 10 * 8 - 16, "{status:?}");
    assert!(status.pages_cached > 8);
    let again = read(engine.submit(request(prompt(9, 100), 20)).unwrap());
    assert_eq!(again.usage.cached, 99);
}
