//! Counter-based random numbers: Philox 4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", §3.3). There is no state to share or
//! to advance: the number for a position is computed from the seed and the position alone.

/// Multipliers of the two halves.
const M: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
/// What the key gains each round: the golden ratio and √3 − 1.
const W: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let low = u64::from(M[0]) * u64::from(counter[0]);
        let high = u64::from(M[1]) * u64::from(counter[2]);
        counter = [
            (high >> 32) as u32 ^ counter[1] ^ key[0],
            high as u32,
            (low >> 32) as u32 ^ counter[3] ^ key[1],
            low as u32,
        ];
        key = [key[0].wrapping_add(W[0]), key[1].wrapping_add(W[1])];
    }
    counter
}

/// Evenly spread over `[0, 1)`, 53 bits of it random.
pub(super) fn uniform(seed: u64, position: u64) -> f64 {
    let counter = [position as u32, (position >> 32) as u32, 0, 0];
    let words = philox(counter, [seed as u32, (seed >> 32) as u32]);
    let bits = u64::from(words[0]) << 32 | u64::from(words[1]);
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_the_known_answers_of_its_authors() {
        let ones = u32::MAX;
        let cases = [
            (
                [0; 4],
                [0; 2],
                [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8],
            ),
            (
                [ones; 4],
                [ones; 2],
                [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd],
            ),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, expected) in cases {
            assert_eq!(philox(counter, key), expected);
        }
    }

    #[test]
    fn uniform_numbers_fill_ten_bins_evenly() {
        let mut bins = [0; 10];
        for position in 0..100_000 {
            bins[(uniform(7, position) * 10.0) as usize] += 1;
        }
        for bin in bins {
            assert!((9_600..10_400).contains(&bin), "{bins:?}");
        }
    }
}
