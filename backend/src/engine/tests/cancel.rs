//! Ends that nobody planned: clients that leave, devices that break, the door that closes.

use pretty_assertions::assert_eq;

use super::batch::{alone, mixed};
use crate::engine::{
    EngineOptions, Generation,
    request::{Finish, Output, SubmitError},
    testing::*,
};

#[test]
fn a_cancelled_generation_frees_its_pages_at_the_next_step_and_the_others_go_on() {
    let (fake, gate) = Fake::new(100).gate();
    let engine = fake.start(EngineOptions {
        drafts: false,
        ..EngineOptions::default()
    });
    let keep = engine.submit(request(prompt(1, 20), 12)).unwrap();
    let drop_it = engine.submit(request(prompt(2, 40), 12)).unwrap();
    let seen = gate.pass();
    let late = match seen.len() {
        // The engine was quicker than the second submission.
        1 => gate.pass(),
        _ => seen,
    };
    assert_eq!(late.len(), 2);
    let seen = gate.arrive();
    assert_eq!(seen.len(), 2);
    // 20 and 40 tokens, and a few generated.
    assert_eq!(engine.status().pages_used, 2 + 3);
    drop(drop_it);
    gate.open();
    let seen = gate.arrive();
    assert_eq!(seen.len(), 1);
    let status = engine.status();
    // The two whole pages of its prompt stay for others, and are free when needed.
    assert_eq!((status.running, status.cancelled), (1, 1));
    assert_eq!((status.pages_used, status.pages_cached), (2, 2));
    drop(gate);
    let alone = alone(Fake::new(100), request(prompt(1, 20), 12));
    assert_eq!(read(keep).tokens, alone.tokens);
}

#[test]
fn a_cancelled_request_in_the_queue_never_runs() {
    let (fake, gate) = Fake::new(100).gate();
    let engine = fake.start(EngineOptions {
        max_running: 1,
        ..EngineOptions::default()
    });
    let first = engine.submit(request(prompt(1, 20), 3)).unwrap();
    gate.arrive();
    let second = engine.submit(request(prompt(2, 20), 3)).unwrap();
    let third = engine.submit(request(prompt(3, 20), 3)).unwrap();
    assert_eq!(engine.status().queued, 2);
    drop(second);
    gate.open();
    for _ in 0..2 {
        gate.pass();
    }
    assert_eq!(read(first).usage.generated, 3);
    // The next to arrive is the third.
    assert_eq!(gate.pass()[0].tokens, prompt(3, 20));
    drop(gate);
    assert_eq!(read(third).usage.generated, 3);
    assert_eq!(engine.status().cancelled, 1);
}

#[test]
fn a_thousand_random_cancels_leak_nothing_and_change_nobody() {
    let engine = Fake::new(60).memory(5).start(EngineOptions {
        max_running: 8,
        max_queued: 100,
        output_buffer: 4,
        ..EngineOptions::default()
    });
    let mut random = crate::testing::Random(1);
    let mut next = |below: u64| random.next_u64() % below;
    let mut open: Vec<(u64, Generation, Vec<u32>)> = Vec::new();
    let mut cancelled = 0;
    let mut checked = 0;
    while cancelled < 1000 {
        if open.len() < 40 {
            let kind = next(16);
            open.push((kind, engine.submit(mixed(kind)).unwrap(), Vec::new()));
        }
        let which = next(open.len() as u64) as usize;
        if next(12) == 0 {
            open.swap_remove(which);
            cancelled += 1;
            continue;
        }
        let (kind, generation, text) = &mut open[which];
        match generation.blocking_next() {
            Some(Output::Tokens(tokens)) => text.extend(tokens.iter().map(|s| s.token)),
            Some(Output::Progress { .. }) => {}
            Some(Output::Finished { .. }) => {
                if checked < 50 {
                    let alone = alone(Fake::new(60).memory(5), mixed(*kind));
                    assert_eq!(*text, alone.text());
                    checked += 1;
                }
                open.swap_remove(which);
            }
            None => unreachable!(),
        }
    }
    assert!(checked > 20);
    drop(open);
    // One more goes through when all the others are gone.
    read(engine.submit(mixed(0)).unwrap());
    let status = engine.status();
    assert_eq!(
        (status.running, status.queued, status.pages_used),
        (0, 0, 0)
    );
    assert!(status.cancelled >= 500, "{status:?}");
    assert!(status.healthy);
}

#[test]
fn shutdown_ends_open_generations_as_stopped_and_takes_no_more() {
    let (fake, gate) = Fake::new(100).gate();
    let engine = fake.start(EngineOptions {
        max_running: 1,
        ..EngineOptions::default()
    });
    let mut running = engine.submit(request(prompt(1, 20), 500)).unwrap();
    gate.pass();
    read_first(&mut running);
    let queued = engine.submit(request(prompt(2, 20), 500)).unwrap();
    gate.arrive();
    engine.shutdown();
    assert_eq!(
        engine.submit(request(prompt(3, 20), 5)).unwrap_err(),
        SubmitError::Down("it is shutting down".to_owned())
    );
    gate.open();
    let running = read(running);
    assert_eq!(
        (running.reason, running.usage.generated),
        (Finish::Stopped, 2)
    );
    assert_eq!(read(queued).reason, Finish::Stopped);
    block_on(engine.stopped());
    assert_eq!(engine.status().pages_used, 0);
}

#[test]
fn the_last_handle_gone_what_is_open_is_finished() {
    let engine = Fake::new(100).start(EngineOptions::default());
    let generation = engine.submit(request(prompt(1, 20), 50)).unwrap();
    drop(engine);
    assert_eq!(read(generation).usage.generated, 50);
}

#[test]
fn a_broken_device_fails_every_generation_with_its_words_and_the_engine_says_so() {
    let cases = [
        (Breakdown::Error(3), "fake: it broke"),
        (
            Breakdown::Panic(3),
            "the engine panicked: the device fell over",
        ),
        (
            Breakdown::NotANumber(3),
            "fake: a row of logits holds a NaN, not numbers a model gives",
        ),
    ];
    for (breakdown, why) in cases {
        let (fake, gate) = Fake::new(100).breakdown(breakdown).gate();
        let engine = fake.start(EngineOptions {
            max_running: 2,
            ..EngineOptions::default()
        });
        let running: Vec<_> = (0..4)
            .map(|i| engine.submit(request(prompt(i, 20), 50)).unwrap())
            .collect();
        // All are in before the first step.
        drop(gate);
        for generation in running {
            assert_eq!(read(generation).reason, Finish::Device(why.to_owned()));
        }
        block_on(engine.stopped());
        let status = engine.status();
        assert_eq!(
            (status.healthy, status.failure),
            (false, Some(why.to_owned()))
        );
        assert_eq!(
            engine.submit(request(prompt(9, 20), 5)).unwrap_err(),
            SubmitError::Down(why.to_owned())
        );
    }
}

pub(super) fn block_on(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(future);
}
