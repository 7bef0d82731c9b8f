//! The fuzz targets on their corpora and on random mutations of them.
//!
//! `CODEX_BRIDGE_FUZZ_RUNS` sets the number of mutations a target gets; the default keeps the suite quick.
//!
//! ```text
//! CODEX_BRIDGE_FUZZ_RUNS=1000000 cargo nextest run --release -p codex-bridge --test fuzz
//! ```

#![expect(clippy::unwrap_used, reason = "the helpers are tests too")]

use std::{fs, path::PathBuf};

use codex_bridge::{stream::fuzz::fuzz_rewriter, translate::fuzz_normalize};

/// Resident bytes at the peak, over what the test began with, that no input may exceed.
const MOST_MEMORY: u64 = 256 << 20;

#[test]
fn the_response_side_survives_its_corpus_and_mutations_of_it() {
    survive("rewriter", fuzz_rewriter);
}

#[test]
fn the_request_side_survives_its_corpus_and_mutations_of_it() {
    survive("normalize", fuzz_normalize);
}

fn survive(name: &str, target: fn(&[u8])) {
    let corpus = corpus(name);
    assert!(!corpus.is_empty(), "no corpus for {name}");
    for input in &corpus {
        target(input);
    }
    let before = peak_memory();
    let runs: u64 =
        std::env::var("CODEX_BRIDGE_FUZZ_RUNS").map_or(5_000, |runs| runs.parse().unwrap());
    let mut random = Random(0x5eed);
    for run in 0..runs {
        let input = mutated(&corpus, &mut random);
        let outcome = std::panic::catch_unwind(|| target(&input));
        if outcome.is_err() {
            panic!(
                "run {run} of {name} broke on {:?}",
                String::from_utf8_lossy(&input)
            );
        }
    }
    let grown = peak_memory().saturating_sub(before);
    println!(
        "{name}: {runs} mutations, peak memory grew by {} KiB",
        grown >> 10
    );
    assert!(grown < MOST_MEMORY, "peak memory grew by {grown} bytes");
}

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(name);
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// One to six changes of a corpus file: bytes, lines, pieces of other files, words the protocol knows.
fn mutated(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    const WORDS: [&str; 14] = [
        "\n\n",
        "data: ",
        "event: ",
        "{",
        "}",
        "[",
        "\"",
        "\\u",
        "null",
        "1e999",
        "\"type\"",
        "\"response.completed\"",
        "-1",
        "\"function_call\"",
    ];
    let mut input = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(6) {
        let at = random.below(input.len() + 1);
        let end = (at + random.below(64)).min(input.len());
        match random.below(7) {
            0 => drop(input.drain(at..end)),
            1 => input.insert(at, random.next() as u8),
            2 if at < input.len() => input[at] ^= 1 << random.below(8),
            3 => {
                let piece = input[at..end].to_vec();
                let to = random.below(input.len() + 1);
                input.splice(to..to, piece);
            }
            4 => {
                let word = WORDS[random.below(WORDS.len())];
                input.splice(at..at, word.bytes());
            }
            5 => {
                let other = &corpus[random.below(corpus.len())];
                let from = random.below(other.len() + 1);
                let to = (from + random.below(256)).min(other.len());
                input.splice(at..at, other[from..to].iter().copied());
            }
            _ => input.truncate(at),
        }
    }
    input
}

/// SplitMix64, so that a run can be repeated.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// `VmHWM` of this process in bytes.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}
