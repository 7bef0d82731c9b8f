//! Numbers that are the same on every run.

/// SplitMix64 (Steele, Lea, Flood 2014).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn next_u32(&mut self) -> u32 {
        self.next_u64() as u32
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next_u64() % bound as u64) as usize
    }

    /// `-1.0..1.0`
    pub(super) fn uniform(&mut self) -> f32 {
        (self.next_u64() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    pub(super) fn numbers(&mut self, count: usize, scale: f32) -> Vec<f32> {
        (0..count).map(|_| self.uniform() * scale).collect()
    }
}
