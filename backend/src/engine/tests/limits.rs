//! What is refused, and how far a client may lag behind.

use pretty_assertions::assert_eq;

use super::batch::alone;
use crate::engine::{
    EngineOptions,
    request::{Finish, Output, SubmitError},
    testing::*,
};

#[test]
fn a_full_queue_refuses_with_a_time_to_come_back_and_a_cancel_makes_a_place() {
    let (fake, gate) = Fake::new(100).gate();
    let engine = fake.start(EngineOptions {
        max_running: 1,
        max_queued: 2,
        ..EngineOptions::default()
    });
    let ask = || engine.submit(request(prompt(1, 20), 3));
    let open = [ask().unwrap(), ask().unwrap(), ask().unwrap()];
    gate.arrive();
    assert_eq!(
        ask().unwrap_err(),
        SubmitError::QueueFull {
            queued: 2,
            retry_after: 1
        }
    );
    let [first, second, third] = open;
    drop(second);
    gate.open();
    gate.arrive();
    let fourth = ask().unwrap();
    assert!(ask().is_err());
    gate.open();
    drop(gate);
    for generation in [first, third, fourth] {
        assert_eq!(read(generation).usage.generated, 3);
    }
}

#[test]
fn the_time_to_come_back_follows_how_long_requests_took() {
    let speed = Speed {
        start: 2_000_000_000,
        ..Speed::default()
    };
    let engine = Fake::new(100).speed(speed).start(EngineOptions {
        max_running: 1,
        max_queued: 0,
        drafts: false,
        ..EngineOptions::default()
    });
    read(engine.submit(request(prompt(1, 20), 5)).unwrap());
    let mut open = engine.submit(request(prompt(1, 20), 1000)).unwrap();
    read_first(&mut open);
    let refused = engine.submit(request(prompt(1, 20), 5)).unwrap_err();
    assert_eq!(
        refused,
        SubmitError::QueueFull {
            queued: 0,
            retry_after: 10
        }
    );
}

#[test]
fn a_prompt_beyond_the_context_is_refused_and_one_within_is_cut_at_its_end() {
    let engine = Fake::new(4).start(EngineOptions {
        context: 1000,
        ..EngineOptions::default()
    });
    // Four pages hold less than the context asked for.
    assert_eq!(engine.context(), 64);
    let refused = engine.submit(request(prompt(1, 64), 1)).unwrap_err();
    assert_eq!(
        refused,
        SubmitError::ContextExceeded {
            prompt: 64,
            context: 64
        }
    );
    let whole = read(engine.submit(request(prompt(1, 40), 1000)).unwrap());
    assert_eq!((whole.usage.generated, whole.reason), (24, Finish::Length));
    let whole = read(engine.submit(request(prompt(2, 63), 1000)).unwrap());
    assert_eq!((whole.usage.generated, whole.reason), (1, Finish::Length));
}

#[test]
fn requests_outside_of_their_limits_are_refused_in_words() {
    let engine = Fake::new(100).start(EngineOptions::default());
    let refusal = |change: &dyn Fn(&mut crate::engine::request::GenerateRequest)| {
        let mut request = request(prompt(1, 5), 5);
        change(&mut request);
        match engine.submit(request) {
            Err(SubmitError::Invalid(why)) => why,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refusal(&|r| r.prompt.clear()), "the prompt is empty");
    assert_eq!(
        refusal(&|r| r.max_tokens = 0),
        "max_tokens is 0; at least 1 is allowed"
    );
    assert_eq!(
        refusal(&|r| r.prompt[3] = 64),
        "token 64 at 3 of the prompt is outside of the vocabulary of 64"
    );
    assert_eq!(
        refusal(&|r| r.top_logprobs = 21),
        "top_logprobs is 21; at most 20 is allowed"
    );
    assert_eq!(
        refusal(&|r| r.sampling.top_p = f32::NAN),
        "top_p is NaN; 0 to 1 is allowed"
    );
}

#[test]
fn an_end_token_ends_the_text_and_is_not_part_of_it() {
    let fake = || Fake::new(100).end_every(10);
    let engine = fake().start(EngineOptions::default());
    let whole = read(engine.submit(request(prompt(3, 20), 500)).unwrap());
    assert_eq!(whole.reason, Finish::Stop(Some(END)));
    assert_eq!(whole.usage.generated, whole.tokens.len() + 1);
    assert!(!whole.text().contains(&END));
    let mut without = request(prompt(3, 20), 500);
    without.end_tokens = std::sync::Arc::from([]);
    assert_eq!(alone(fake(), without).reason, Finish::Length);
}

#[test]
fn a_client_that_does_not_read_pauses_alone_and_loses_nothing() {
    let engine = Fake::new(100).start(EngineOptions {
        output_buffer: 4,
        max_running: 2,
        drafts: false,
        ..EngineOptions::default()
    });
    let slow = engine.submit(request(prompt(1, 20), 100)).unwrap();
    let slower = engine.submit(request(prompt(2, 20), 100)).unwrap();
    // Two that don't read hold neither place nor pages from those who do.
    for seed in 3..10 {
        let whole = read(engine.submit(request(prompt(seed, 20), 100)).unwrap());
        assert_eq!(whole.usage.generated, 100);
    }
    assert!(engine.status().generated_tokens <= 7 * 100 + 2 * 4);
    for (seed, generation) in [(1, slow), (2, slower)] {
        let whole = read(generation);
        let alone = alone(Fake::new(100), request(prompt(seed, 20), 100));
        assert_eq!(whole.tokens, alone.tokens);
    }
}

#[test]
fn a_paused_sequence_goes_on_as_soon_as_its_client_reads() {
    let engine = Fake::new(100).start(EngineOptions {
        output_buffer: 4,
        drafts: false,
        ..EngineOptions::default()
    });
    let mut generation = engine.submit(request(prompt(1, 20), 1000)).unwrap();
    // Reads one at a time while the engine sleeps in between: a lost wake-up would hang here.
    let mut tokens = 0;
    while let Some(output) = generation.blocking_next() {
        match output {
            Output::Tokens(more) => tokens += more.len(),
            Output::Progress { .. } => {}
            Output::Finished { reason, .. } => assert_eq!(reason, Finish::Length),
        }
    }
    assert_eq!(tokens, 1000);
}
