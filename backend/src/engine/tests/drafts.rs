//! Guessing changes the speed and not the text.

use pretty_assertions::assert_eq;

use super::batch::alone;
use crate::engine::{EngineOptions, request::GenerateRequest, testing::*};

/// A device on which a step costs what its start costs.
const CHEAP: Speed = Speed {
    start: 10_000_000,
    each: 100_000,
    pair: 0,
};

fn sampled(seed: u64, tokens: usize) -> GenerateRequest {
    let mut request = request(prompt(seed, 40), tokens);
    request.sampling.temperature = 0.03;
    request.sampling.seed = seed;
    request.sampling.repetition_penalty = 1.01;
    request
}

#[test]
fn greedy_and_sampled_text_is_the_same_with_and_without_guesses() {
    for (name, ask) in [
        (
            "greedy",
            (|seed| request(prompt(seed, 40), 300)) as fn(u64) -> GenerateRequest,
        ),
        ("sampled", |seed| sampled(seed, 300)),
    ] {
        let engine = Fake::new(200)
            .memory(2)
            .end_every(400)
            .speed(CHEAP)
            .start(EngineOptions::default());
        for seed in 0..6 {
            let with = read(engine.submit(ask(seed)).unwrap());
            let without = alone(Fake::new(200).memory(2).end_every(400), ask(seed));
            assert_eq!(
                (with.tokens, with.reason),
                (without.tokens, without.reason),
                "{name}"
            );
            assert_eq!(without.usage.drafted, 0);
        }
        let status = engine.status();
        assert!(status.accepted_tokens > 50, "{name}: {status:?}");
        assert!(status.drafted_tokens >= status.accepted_tokens);
        assert_eq!(status.pages_used, 0);
    }
}

#[test]
fn text_that_repeats_takes_far_fewer_steps() {
    let engine = Fake::new(200)
        .memory(1)
        .speed(CHEAP)
        .start(EngineOptions::default());
    let whole = read(engine.submit(request(prompt(1, 40), 400)).unwrap());
    let status = engine.status();
    assert_eq!(whole.usage.generated, 400);
    assert!(status.steps < 150, "{status:?}");
    assert_eq!(whole.usage.drafted as u64, status.accepted_tokens);
}

#[test]
fn guesses_that_cost_as_much_as_steps_are_given_up() {
    // A token costs a step, and what repeats in the prompt does not repeat in the text.
    let dear = Speed {
        start: 100_000,
        each: 10_000_000,
        pair: 0,
    };
    let engine = Fake::new(200).speed(dear).start(EngineOptions::default());
    let whole = read(
        engine
            .submit(request([1, 2, 3, 4, 5].repeat(20), 200))
            .unwrap(),
    );
    let status = engine.status();
    assert_eq!(whole.usage.generated, 200);
    assert!(status.drafted_tokens <= 32, "{status:?}");
}

#[test]
fn guesses_stop_at_max_tokens_and_at_the_end_of_the_context() {
    for tokens in [1, 2, 3, 50, 51, 52, 53] {
        let engine = Fake::new(200)
            .memory(1)
            .speed(CHEAP)
            .start(EngineOptions::default());
        let whole = read(engine.submit(request(prompt(1, 40), tokens)).unwrap());
        assert_eq!(
            (whole.tokens.len(), whole.usage.generated),
            (tokens, tokens)
        );
    }
    let engine = Fake::new(6)
        .memory(1)
        .speed(CHEAP)
        .start(EngineOptions::default());
    let whole = read(engine.submit(request(prompt(1, 40), 1000)).unwrap());
    assert_eq!(whole.tokens.len(), 96 - 40);
}

#[test]
fn guesses_under_a_grammar_stay_within_it_and_change_nothing() {
    let places = |at: u32| match at % 40 {
        1 => Allow::OneOf(vec![5]),
        2..20 => Allow::OneOf((0..62).collect()),
        _ => Allow::Any,
    };
    for temperature in [0.0, 0.03] {
        let ask = || {
            let mut request = request(prompt(4, 40), 400);
            request.sampling.temperature = temperature;
            request.constraint = Script::boxed((0..300).map(places).collect());
            request
        };
        let fake = || Fake::new(200).memory(1).speed(CHEAP);
        let engine = fake().start(EngineOptions::default());
        let with = read(engine.submit(ask()).unwrap());
        let without = alone(fake(), ask());
        assert_eq!((with.text(), with.reason), (without.text(), without.reason));
        assert_eq!(with.usage.generated, 300);
        let status = engine.status();
        assert!(status.accepted_tokens > 20, "{status:?}");
    }
}
