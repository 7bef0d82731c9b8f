//! Are the weights numbers? A scale that is infinite or not a number would turn every answer into noise, and is the mark of a broken conversion.

use std::{
    num::NonZero,
    ops::Range,
    panic::resume_unwind,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use super::{
    error::Fault,
    quant::first_non_finite,
    weights::{Tensor, Weights},
};

/// Every block is checked in models of up to this many bytes; in larger ones evenly spread stretches that amount to it, so that a start from a slow disk
/// (250 MB/s) is not held up by more than four seconds. A device that repacks sees every block and can check the rest ([`first_non_finite`]).
const MOST_BYTES: u64 = 1 << 30;
/// Bytes of a stretch, before it is rounded to whole blocks: long enough that reading ahead is not wasted.
const STRETCH: usize = 1 << 20;

/// More readers than this wait for the disk or the memory, not for a processor.
const MOST_THREADS: usize = 4;

/// Tells of the first tensor at fault.
pub(super) fn check(weights: &Weights) -> Result<(), Fault> {
    let every = weights.bytes().div_ceil(MOST_BYTES).max(1);
    let tensors: Vec<&Tensor> = weights.tensors().collect();
    let next = AtomicUsize::new(0);
    // Everyone takes tensors in their order and ends at a fault, so none before the first fault stays unread.
    let read = || -> Option<(usize, Fault)> {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let tensor = tensors.get(index)?;
            let checked = check_tensor(tensor, every);
            tensor.release();
            if let Err(fault) = checked {
                return Some((index, fault));
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let faults = thread::scope(|scope| {
        let spawn = |_| thread::Builder::new().spawn_scoped(scope, read).ok();
        let helpers: Vec<_> = (1..threads.min(MOST_THREADS)).filter_map(spawn).collect();
        let mut faults = vec![read()];
        faults.extend(
            helpers
                .into_iter()
                .map(|helper| helper.join().unwrap_or_else(|panic| resume_unwind(panic))),
        );
        faults
    });
    let first = faults.into_iter().flatten().min_by_key(|(index, _)| *index);
    first.map_or(Ok(()), |(_, fault)| Err(fault))
}

/// One stretch of `every` is read.
fn check_tensor(tensor: &Tensor, every: u64) -> Result<(), Fault> {
    let size = tensor.format.block_bytes();
    let bytes = tensor.bytes();
    for range in stretches(bytes.len() / size, STRETCH / size, every) {
        let blocks = &bytes[range.start * size..range.end * size];
        if let Some(block) = first_non_finite(tensor.format, blocks) {
            return Err(Fault::new(
                &tensor.name,
                format_args!(
                    "an infinite or undefined {} in block {} of {}",
                    if tensor.format.block_len() == 1 {
                        "number"
                    } else {
                        "scale"
                    },
                    range.start + block,
                    tensor.format
                ),
                "finite weights",
            ));
        }
    }
    Ok(())
}

fn stretches(blocks: usize, length: usize, every: u64) -> impl Iterator<Item = Range<usize>> {
    (0..blocks)
        .step_by(length.saturating_mul(every as usize))
        .map(move |from| from..(from + length).min(blocks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_cover_everything_or_the_wanted_share() {
        let all: Vec<_> = stretches(10, 4, 1).collect();
        assert_eq!(all, [0..4, 4..8, 8..10]);
        let third: Vec<_> = stretches(100, 4, 3).collect();
        assert_eq!(third.len(), 9);
        assert_eq!(third[1], 12..16);
    }
}
