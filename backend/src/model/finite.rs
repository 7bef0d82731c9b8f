//! Are the weights numbers? A scale that is infinite or not a number would turn every answer into noise, and is the mark of a broken conversion.

use std::ops::Range;

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

pub(super) fn check(weights: &Weights) -> Result<(), Fault> {
    let every = weights.bytes().div_ceil(MOST_BYTES).max(1);
    for tensor in weights.tensors() {
        check_tensor(tensor, every)?;
        tensor.release();
    }
    Ok(())
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
