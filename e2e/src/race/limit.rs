//! What the machine can do at most, measured in the same run: how fast it reads memory. A token of decode needs every
//! weight once, and the keys and values of every position before it.

use std::{hint::black_box, thread, time::Instant};

use super::contestant::THREADS;

/// Far larger than any cache.
const WORDS: usize = 32 << 20;
const PASSES: usize = 5;

/// Bytes of keys and values that SmolLM2-135M's attention reads a position: 30 layers of 3 heads of 64 numbers, both in half precision.
const KV_BYTES: f64 = 30.0 * 3.0 * 64.0 * 2.0 * 2.0;

/// Bytes a second, with as many threads as the engines have; the best of a few passes.
pub fn read_bandwidth() -> f64 {
    let buffers: Vec<Vec<u64>> = (0..THREADS)
        .map(|thread| vec![u64::from(thread) + 1; WORDS])
        .collect();
    let pass = || {
        let began = Instant::now();
        thread::scope(|scope| {
            for buffer in &buffers {
                scope.spawn(|| black_box(sum(buffer)));
            }
        });
        let bytes = buffers.len() * WORDS * size_of::<u64>();
        bytes as f64 / began.elapsed().as_secs_f64()
    };
    (0..PASSES).map(|_| pass()).fold(0.0, f64::max)
}

/// Tokens a second of one stream.
pub fn decode(bandwidth: f64, weights: f64, positions: f64) -> f64 {
    bandwidth / (weights + positions * KV_BYTES)
}

fn sum(words: &[u64]) -> u64 {
    // Independent sums, so that no addition waits for the one before.
    let mut sums = [0_u64; 32];
    for part in words.chunks_exact(32) {
        for (sum, word) in sums.iter_mut().zip(part) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.iter().copied().fold(0, u64::wrapping_add)
}
