//! What the machine can do at most, measured in the same run: how fast it reads memory. A token of decode needs every
//! weight once, and the keys and values of every position before it.

use std::{hint::black_box, sync::Barrier, thread, time::Instant};

use super::contestant::THREADS;

/// Far larger than most caches.
const LARGE: usize = 512 << 20;

/// Bytes read in one pass of a measurement, so that it takes long enough.
const PASS: usize = 1 << 30;
const PASSES: usize = 3;

/// Bytes of keys and values that SmolLM2-135M's attention reads a position in half precision, which is what llama-server
/// keeps: 30 layers of 3 heads of 64 numbers, twice.
pub const HALF_KV_BYTES: usize = 30 * 3 * 64 * 2 * 2;

/// Bytes a second from memory.
pub fn bandwidth() -> f64 {
    read(LARGE)
}

/// Tokens a second of one stream that only reads, again and again, from wherever so many bytes are kept: a large cache may hold them.
/// `kv_bytes` are those of one position.
pub fn decode(weight_bytes: usize, positions: usize, kv_bytes: usize) -> f64 {
    let bytes = weight_bytes + positions * kv_bytes;
    read(bytes) / bytes as f64
}

/// Bytes a second that as many threads as the engines have read from their shares of `bytes`; the best of a few passes.
fn read(bytes: usize) -> f64 {
    let threads = THREADS as usize;
    let words = bytes / threads / size_of::<u64>();
    let times = (PASS / bytes).max(1);
    let barrier = Barrier::new(threads + 1);
    thread::scope(|scope| {
        for thread in 0..threads {
            let barrier = &barrier;
            scope.spawn(move || {
                // Not zero, which would be one and the same page.
                let buffer = vec![thread as u64 + 1; words];
                for _ in 0..PASSES {
                    barrier.wait();
                    for _ in 0..times {
                        black_box(sum(black_box(&buffer)));
                    }
                    barrier.wait();
                }
            });
        }
        let pass = || {
            barrier.wait();
            let began = Instant::now();
            barrier.wait();
            (times * bytes) as f64 / began.elapsed().as_secs_f64()
        };
        (0..PASSES).map(|_| pass()).fold(0.0, f64::max)
    })
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
