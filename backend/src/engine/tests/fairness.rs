//! Who waits for whom, in the device's own time.

use std::sync::atomic::Ordering;

use pretty_assertions::assert_eq;

use crate::engine::{EngineOptions, request::Output, testing::*};

/// As slow as a small model on two cores, attention included.
const SLOW: Speed = Speed {
    start: 5_000_000,
    each: 700_000,
    pair: 150,
};

#[test]
fn beside_a_prompt_of_6000_tokens_no_stream_waits_a_second() {
    let fake = Fake::new(1000).speed(SLOW);
    let clock = fake.clock();
    let (fake, gate) = fake.gate();
    let engine = fake.start(EngineOptions::default());
    let mut streams: Vec<_> = (0..3)
        .map(|i| engine.submit(request(prompt(i, 30), 400)).unwrap())
        .collect();
    for _ in 0..8 {
        gate.pass();
    }
    let long = engine.submit(request(prompt(9, 6000), 2)).unwrap();
    let mut last = clock.load(Ordering::SeqCst);
    let mut worst = 0;
    let mut steps = 0;
    loop {
        let seen = gate.arrive();
        let now = clock.load(Ordering::SeqCst);
        // Every stream had a token since the last look, for all of them are in every step.
        worst = worst.max(now - last);
        last = now;
        let past = seen.iter().map(|span| span.past).max().unwrap_or(0);
        if past >= 6000 {
            break;
        }
        assert!(seen.iter().filter(|span| span.rows > 0).count() >= 3);
        steps += 1;
        gate.open();
    }
    drop(gate);
    // Alone the prompt takes 5.5 s on this device.
    assert!(worst < 400_000_000, "{worst} ns between two tokens");
    assert!(steps < 45, "{steps} steps");
    drop(long);
    for stream in &mut streams {
        read_first(stream);
    }
}

#[test]
fn a_short_prompt_is_done_long_before_a_longer_one_that_came_first() {
    let (fake, gate) = Fake::new(1000).speed(SLOW).gate();
    let engine = fake.start(EngineOptions::default());
    let long = engine.submit(request(prompt(1, 6000), 2)).unwrap();
    gate.pass();
    let mut short = engine.submit(request(prompt(2, 200), 2)).unwrap();
    let mut done = 0;
    let mut passes = 0;
    loop {
        let seen = gate.pass();
        passes += 1;
        done = seen
            .iter()
            .map(|s| s.past + s.tokens.len())
            .max()
            .unwrap_or(done);
        if seen.iter().any(|s| s.rows > 0) {
            break;
        }
    }
    assert!(passes <= 4 && done < 2000, "{passes} steps, {done} tokens");
    drop(gate);
    read_first(&mut short);
    assert_eq!(read(long).usage.generated, 2);
}

#[test]
fn many_prompts_share_the_time_and_each_gets_on() {
    let fake = Fake::new(3000).speed(SLOW);
    let clock = fake.clock();
    let (fake, gate) = fake.gate();
    let engine = fake.start(EngineOptions {
        max_running: 33,
        // Nobody reads the stream.
        output_buffer: 5000,
        ..EngineOptions::default()
    });
    let stream = engine.submit(request(prompt(0, 30), 4000)).unwrap();
    gate.pass();
    gate.arrive();
    let prompts: Vec<_> = (1..=32)
        .map(|i| engine.submit(request(prompt(i, 500), 1)).unwrap())
        .collect();
    let mut last = clock.load(Ordering::SeqCst);
    let mut worst = 0;
    gate.open();
    while engine.status().finished < 32 {
        gate.arrive();
        let now = clock.load(Ordering::SeqCst);
        worst = worst.max(now - last);
        last = now;
        gate.open();
    }
    assert!(worst < 300_000_000, "{worst} ns between two tokens");
    drop(gate);
    for generation in prompts {
        let whole = read(generation);
        assert_eq!(whole.usage.generated, 1);
        assert!(matches!(whole.progress.last(), Some((_, 500, 500))));
    }
    drop(stream);
}

#[test]
fn progress_tells_every_chunk_and_ends_at_the_whole() {
    let engine = Fake::new(1000).speed(SLOW).start(EngineOptions::default());
    let mut generation = engine.submit(request(prompt(1, 3000), 1)).unwrap();
    let mut progress = Vec::new();
    while let Some(output) = generation.blocking_next() {
        if let Output::Progress { done, total, .. } = output {
            progress.push(done);
            assert_eq!(total, 3000);
        }
    }
    assert!(progress.is_sorted() && progress.len() >= 3, "{progress:?}");
    assert_eq!(progress.last(), Some(&3000));
}
