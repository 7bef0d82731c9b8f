//! Makers of ids: `resp_…`, `msg_…`, `rs_…`, `fc_…`, `ctc_…`, `tsc_…`, `call_…`.
//!
//! Ids must be unique over a whole conversation, since a client replays them for as long as it lasts; so each carries
//! 96 random bits. A seeded maker exists for tests, where the same input must give the same bytes.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
};

/// A source of ids. Cheap to make: one a response.
#[derive(Debug, Clone)]
pub struct Ids {
    state: u64,
}

impl Ids {
    /// Seeded by the operating system's randomness (through the standard library's hasher keys).
    pub fn random() -> Self {
        Self::seeded(RandomState::new().build_hasher().finish())
    }

    pub fn seeded(seed: u64) -> Self {
        Self { state: seed }
    }

    /// `prefix` + `_` + 24 hexadecimal digits.
    pub fn make(&mut self, prefix: &str) -> String {
        let (high, low) = (self.next(), self.next());
        format!("{prefix}_{:08x}{low:016x}", high >> 32)
    }

    /// SplitMix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014).
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_one_maker_differ_and_a_seed_repeats_them() {
        let (mut one, mut two) = (Ids::seeded(7), Ids::seeded(7));
        let first = one.make("call");
        assert_eq!(first, two.make("call"));
        assert_ne!(first, one.make("call"));
        assert_eq!(first.len(), "call_".len() + 24);
        assert_ne!(Ids::random().make("resp"), Ids::random().make("resp"));
    }
}
