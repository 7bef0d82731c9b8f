//! What a restart finds on disk.

use std::{fs, path::PathBuf};

use pretty_assertions::assert_eq;
use tempfile::TempDir;

use super::{batch::alone, cancel::block_on};
use crate::engine::{
    Engine, EngineOptions, WarmStart,
    request::{Finish, GenerateRequest},
    testing::*,
};

fn start(dir: &TempDir, fake: Fake) -> Engine {
    fake.start(EngineOptions {
        warm_start: Some(WarmStart {
            dir: dir.path().to_path_buf(),
            max_bytes: 1 << 20,
            model: "fake".to_owned(),
            min_tokens: 64,
        }),
        ..EngineOptions::default()
    })
}

/// 200 tokens that others share, and some of its own.
fn ask(own: u64) -> GenerateRequest {
    let mut request = request([prompt(1, 200), prompt(own, 30)].concat(), 10);
    request.stable_prefix = 200;
    request
}

fn stop(engine: Engine) {
    engine.shutdown();
    block_on(engine.stopped());
}

/// Fills the store by one request.
fn store(dir: &TempDir) {
    let engine = start(dir, Fake::new(100));
    let whole = read(engine.submit(ask(2)).unwrap());
    assert_eq!(whole.usage.cached, 0);
    while engine.status().prefixes_stored == 0 {
        std::thread::yield_now();
    }
    // It is there now, so it is not written again.
    read(engine.submit(ask(3)).unwrap());
    assert_eq!(engine.status().prefixes_stored, 1);
    stop(engine);
}

fn files(dir: &TempDir) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir.path()).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| !path.ends_with("lock")).collect()
}

#[test]
fn after_a_restart_the_stable_prefix_is_read_and_not_computed() {
    let dir = TempDir::new().unwrap();
    store(&dir);
    let engine = start(&dir, Fake::new(100));
    let whole = read(engine.submit(ask(4)).unwrap());
    // Twelve whole pages.
    assert_eq!(whole.usage.cached, 192);
    assert_eq!(whole.progress.first(), Some(&(192, 230, 230)));
    assert_eq!(whole.tokens, alone(Fake::new(100), ask(4)).tokens);
    let status = engine.status();
    assert_eq!((status.prefixes_loaded, status.prompt_tokens), (1, 38));
    assert_eq!(status.pages_used, 0);
}

#[test]
fn a_stop_right_after_the_answer_keeps_the_prefix() {
    let dir = TempDir::new().unwrap();
    let engine = start(&dir, Fake::new(100));
    read(engine.submit(ask(2)).unwrap());
    stop(engine);
    let engine = start(&dir, Fake::new(100));
    assert_eq!(read(engine.submit(ask(4)).unwrap()).usage.cached, 192);
}

/// The thread that reads is stuck with a page nobody takes, and the order to write waits behind it.
#[test]
fn a_stop_while_one_prefix_is_read_and_another_waits_to_be_written_ends_and_keeps_it() {
    let dir = TempDir::new().unwrap();
    let with_prefix = |seed, length, own| {
        let mut request = request([prompt(seed, length), prompt(own, 25)].concat(), 10);
        request.stable_prefix = length;
        request
    };
    let engine = start(&dir, Fake::new(400));
    read(engine.submit(with_prefix(5, 1600, 6)).unwrap());
    stop(engine);
    assert_eq!(files(&dir).len(), 1);

    // The new prompt takes two steps; the stored prefix is asked for between them.
    let (fake, gate) = Fake::new(400).gate();
    let engine = start(&dir, fake);
    let new = engine.submit(with_prefix(8, 100, 2)).unwrap();
    assert_eq!(gate.arrive()[0].tokens.len(), 64);
    let stored = engine.submit(with_prefix(5, 1600, 7)).unwrap();
    gate.open();
    assert_eq!(gate.pass()[0].tokens.len(), 61);
    // The first token is drawn: the order to write six pages is given, a few of the hundred are read.
    gate.arrive();
    engine.shutdown();
    gate.open();
    for generation in [new, stored] {
        assert_eq!(read(generation).reason, Finish::Stopped);
    }
    block_on(engine.stopped());
    assert_eq!(files(&dir).len(), 2);
    let engine = start(&dir, Fake::new(400));
    let whole = read(engine.submit(with_prefix(8, 100, 3)).unwrap());
    assert_eq!(whole.usage.cached, 96);
}

#[test]
fn many_that_come_at_once_after_a_restart_read_the_prefix_once() {
    let dir = TempDir::new().unwrap();
    store(&dir);
    let engine = start(&dir, Fake::new(200));
    let running: Vec<_> = (10..16)
        .map(|own| engine.submit(ask(own)).unwrap())
        .collect();
    for (own, generation) in (10..16).zip(running) {
        let whole = read(generation);
        assert!(whole.usage.cached >= 192);
        assert_eq!(whole.tokens, alone(Fake::new(100), ask(own)).tokens);
    }
    assert_eq!(engine.status().prefixes_loaded, 1);
}

#[test]
fn streams_go_on_while_a_prefix_is_read() {
    let dir = TempDir::new().unwrap();
    store(&dir);
    let engine = start(&dir, Fake::new(200));
    let stream = engine.submit(request(prompt(7, 30), 60)).unwrap();
    let warm = engine.submit(ask(4)).unwrap();
    assert_eq!(
        read(stream).tokens,
        alone(Fake::new(100), request(prompt(7, 30), 60)).tokens
    );
    let warm = read(warm);
    assert_eq!(
        (warm.usage.cached, &warm.tokens),
        (192, &alone(Fake::new(100), ask(4)).tokens)
    );
}

#[test]
fn a_broken_file_gives_what_is_right_of_it_and_goes() {
    let dir = TempDir::new().unwrap();
    store(&dir);
    let path = files(&dir).pop().unwrap();
    let intact = fs::read(&path).unwrap();
    for (bytes, cached) in [
        // A bit of the tenth of twelve pages.
        (
            {
                let mut bytes = intact.clone();
                let at = bytes.len() - 8 - 12 * 8 - 3 * 192 + 50;
                bytes[at] ^= 4;
                bytes
            },
            144,
        ),
        (intact[..intact.len() / 2].to_vec(), 0),
    ] {
        fs::write(&path, bytes).unwrap();
        let engine = start(&dir, Fake::new(100));
        let whole = read(engine.submit(ask(4)).unwrap());
        assert_eq!(whole.tokens, alone(Fake::new(100), ask(4)).tokens);
        assert_eq!(whole.usage.cached, cached);
        // It was removed, and written anew from what was computed.
        while engine.status().prefixes_stored == 0 {
            std::thread::yield_now();
        }
        stop(engine);
        assert_eq!(fs::read(&path).unwrap(), intact);
    }
}

#[test]
fn a_prefix_is_given_up_when_sequences_need_the_pages() {
    let dir = TempDir::new().unwrap();
    store(&dir);
    // 16 pages: the prefix fits, the prefix and a stranger do not.
    let engine = start(&dir, Fake::new(16));
    let running: Vec<_> = (0..4)
        .map(|i| match i % 2 {
            0 => engine.submit(ask(i + 4)).unwrap(),
            _ => engine.submit(request(prompt(i, 200), 20)).unwrap(),
        })
        .collect();
    for (i, generation) in (0..).zip(running) {
        let ask = match i % 2 {
            0 => ask(i + 4),
            _ => request(prompt(i, 200), 20),
        };
        assert_eq!(read(generation).tokens, alone(Fake::new(100), ask).tokens);
    }
    assert_eq!(engine.status().pages_used, 0);
}

#[test]
fn an_engine_whose_directory_cannot_be_used_runs_without() {
    let dir = TempDir::new().unwrap();
    let first = start(&dir, Fake::new(100));
    read(first.submit(request(prompt(1, 5), 1)).unwrap());
    // The first holds the lock.
    let second = start(&dir, Fake::new(100));
    let whole = read(second.submit(ask(2)).unwrap());
    assert_eq!(whole.usage.generated, 10);
    stop(second);
    stop(first);
    assert!(files(&dir).is_empty());
}
