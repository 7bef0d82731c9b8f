//! Sixteen lanes, four instruction sets. Every kernel of the CPU device is written once over [`Simd`]; an implementation is a token that exists only on a
//! processor that has the instructions, so its methods are safe to call.
//!
//! Lanes are the same everywhere (sums are kept in sixteen partial sums and reduced in one order), so results of different instruction sets differ by the
//! rounding of fused multiply-add and by nothing else.
//!
//! Everything in a kernel must be `#[inline(always)]`, or the compiler makes it a function without the instruction set: right, but many times slower.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
pub(crate) mod scalar;

use std::fmt;

/// Lanes of a vector, rows of a tile, tokens of a KV page.
pub(crate) const LANES: usize = 16;

/// An instruction set of the CPU device.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Isa {
    /// AVX-512 F, BW, DQ, VL, VNNI and BF16: AMD from Zen 4, Intel from Sapphire Rapids.
    Avx512Bf16,
    /// AVX-512 F, BW, DQ, VL and VNNI: Intel from Cascade Lake.
    Avx512,
    /// AVX2, FMA and F16C.
    Avx2,
    /// Advanced SIMD with the dot product instructions: Armv8.2 and later, all Apple processors.
    NeonDot,
    /// Advanced SIMD.
    Neon,
    /// No vector instructions by name; the compiler may still use those of the target.
    Scalar,
}

impl Isa {
    /// All that this processor can run, fastest first.
    pub fn available() -> Vec<Isa> {
        [
            Isa::Avx512Bf16,
            Isa::Avx512,
            Isa::Avx2,
            Isa::NeonDot,
            Isa::Neon,
            Isa::Scalar,
        ]
        .into_iter()
        .filter(|&isa| Level::new(isa).is_some())
        .collect()
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Isa::Avx512Bf16 => "avx512-vnni-bf16",
            Isa::Avx512 => "avx512-vnni",
            Isa::Avx2 => "avx2",
            Isa::NeonDot => "neon-dotprod",
            Isa::Neon => "neon",
            Isa::Scalar => "scalar",
        })
    }
}

/// An instruction set that was found on this processor.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Level {
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16(avx512::Avx512<true>),
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Avx512<false>),
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2),
    #[cfg(target_arch = "aarch64")]
    NeonDot(neon::Neon<true>),
    #[cfg(target_arch = "aarch64")]
    Neon(neon::Neon<false>),
    Scalar(scalar::Scalar),
}

impl Level {
    /// `None` when this processor does not have `isa`.
    pub(crate) fn new(isa: Isa) -> Option<Level> {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Bf16 => avx512::Avx512::new().map(Level::Avx512Bf16),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512::Avx512::new().map(Level::Avx512),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2::Avx2::new().map(Level::Avx2),
            #[cfg(target_arch = "aarch64")]
            Isa::NeonDot => neon::Neon::new().map(Level::NeonDot),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => neon::Neon::new().map(Level::Neon),
            Isa::Scalar => Some(Level::Scalar(scalar::Scalar)),
            _ => None,
        }
    }

    /// Runs `kernel` compiled for this instruction set.
    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Bf16(simd) => simd.vectorize(kernel),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512(simd) => simd.vectorize(kernel),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2(simd) => simd.vectorize(kernel),
            #[cfg(target_arch = "aarch64")]
            Level::NeonDot(simd) => simd.vectorize(kernel),
            #[cfg(target_arch = "aarch64")]
            Level::Neon(simd) => simd.vectorize(kernel),
            Level::Scalar(simd) => simd.vectorize(kernel),
        }
    }
}

/// A piece of work written over [`Simd`]. `run` must be `#[inline(always)]`.
pub(crate) trait Kernel {
    type Output;

    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// Operations on sixteen lanes. `F`: sixteen f32. `I`: sixteen i32. `B`: 64 bytes, lane `i` holding bytes `4 i..4 i + 4`.
pub(crate) trait Simd: Copy + Send + Sync + fmt::Debug + 'static {
    type F: Copy;
    type I: Copy;
    type B: Copy;

    /// Tokens a matrix kernel keeps in registers at once: 16, 4 or 2.
    const TOKENS: usize;

    /// Runs `kernel` in a function that has the instruction set enabled.
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Output;

    fn splat(self, x: f32) -> Self::F;
    fn load(self, x: &[f32; 16]) -> Self::F;
    fn store(self, x: Self::F, out: &mut [f32; 16]);
    /// IEEE half precision, as bits.
    fn load_f16(self, x: &[u16; 16]) -> Self::F;
    /// Rounds to nearest, ties to even.
    fn store_bf16(self, x: Self::F, out: &mut [u16; 16]);
    fn load_u8(self, x: &[u8; 16]) -> Self::F;
    fn load_i8(self, x: &[i8; 16]) -> Self::F;

    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    fn abs(self, a: Self::F) -> Self::F;
    /// `a * b + c`.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;

    /// To the nearest integer, ties to even.
    fn round(self, x: Self::F) -> Self::I;
    fn float(self, x: Self::I) -> Self::F;
    /// `2^x` for `-126 <= x <= 127`.
    fn exp2(self, x: Self::I) -> Self::F;
    fn zero_i(self) -> Self::I;
    fn splat_i(self, x: i32) -> Self::I;
    /// `p * 2^n` where `shifted = n + 1.5 * 2^23`: adds `n` to the exponent of `p`, which must stay normal.
    fn scale_exponent(self, p: Self::F, shifted: Self::F) -> Self::F;
    /// The low byte of each lane.
    fn store_i8(self, x: Self::I, out: &mut [i8; 16]);

    fn bytes(self, x: &[u8; 64]) -> Self::B;
    fn store_bytes(self, x: Self::B, out: &mut [u8; 64]);
    fn and(self, x: Self::B, mask: u8) -> Self::B;
    fn or(self, x: Self::B, y: Self::B) -> Self::B;
    /// Shifts, of whole bytes or of pairs: bits that cross a byte are unspecified, so a mask follows.
    fn shr<const N: i32>(self, x: Self::B) -> Self::B;
    fn shl<const N: i32>(self, x: Self::B) -> Self::B;

    /// Adds to each lane the dot product of its four weights with the four signed bytes of `x`. Weights are unsigned and at most 127.
    fn dot_u7(self, acc: Self::I, weights: Self::B, x: i32) -> Self::I;
    /// As `dot_u7` with signed weights plus [`Simd::OFFSET_8`], as `prepare_8` makes them.
    fn dot_8(self, acc: Self::I, weights: Self::B, x: i32) -> Self::I;
    /// What is added to signed weights before `dot_8`: 128 where the instruction wants them unsigned, else 0.
    const OFFSET_8: f32;
    fn prepare_8(self, weights: Self::B) -> Self::B;
    /// Sixteen pairs of signed bytes, each widened to 16 bits: lane `i` holds bytes `2 i` and `2 i + 1`.
    fn widen_8(self, x: &[u8; 32]) -> Self::B;
    /// Adds to each lane the dot product of its two signed 16-bit weights with the two of `x`, low half first.
    fn dot_16(self, acc: Self::I, weights: Self::B, x: i32) -> Self::I;
    /// Narrows the lanes of `a` and of `b` to 16 bits, as the x of [`Simd::dot_16`]: pair `p` of `a` is word `p / 2 * 4 + p % 2`, that of `b` two words on.
    fn store_pairs(self, a: Self::I, b: Self::I, out: &mut [u32; 16]);
    /// Adds to each lane the dot product of its two bf16 weights with the two bf16 of `x`, low half first.
    fn dot_bf16(self, acc: Self::F, weights: Self::B, x: u32) -> Self::F;

    /// Sum of the lanes, halves added to halves: 8, 4, 2, 1.
    #[inline(always)]
    fn reduce_add(self, x: Self::F) -> f32 {
        let mut lanes = [0.0; 16];
        self.store(x, &mut lanes);
        let mut width = 8;
        while width > 0 {
            for i in 0..width {
                lanes[i] += lanes[i + width];
            }
            width /= 2;
        }
        lanes[0]
    }

    #[inline(always)]
    fn reduce_max(self, x: Self::F) -> f32 {
        let mut lanes = [0.0; 16];
        self.store(x, &mut lanes);
        let mut width = 8;
        while width > 0 {
            for i in 0..width {
                lanes[i] = if lanes[i] > lanes[i + width] {
                    lanes[i]
                } else {
                    lanes[i + width]
                };
            }
            width /= 2;
        }
        lanes[0]
    }

    /// `2^x`, relative error below 2e-7; 0 below -126, `2^127` above 127.
    #[inline(always)]
    fn pow2(self, x: Self::F) -> Self::F {
        let low = self.splat(-126.0);
        let clamped = self.min(self.max(x, low), self.splat(127.0));
        let n = self.round(clamped);
        let p = self.pow2_fraction(self.sub(clamped, self.float(n)));
        self.zero_below(x, low, self.mul(p, self.exp2(n)))
    }

    /// `2^x` for `|x| <= 1/2`: the Taylor series to the sixth power, relative error below 2e-7.
    #[inline(always)]
    fn pow2_fraction(self, x: Self::F) -> Self::F {
        let mut p = self.splat(1.540_353e-4);
        for c in [
            1.333_355_8e-3,
            9.618_129e-3,
            5.550_411e-2,
            2.402_265e-1,
            6.931_472e-1,
            1.0,
        ] {
            p = self.fma(p, x, self.splat(c));
        }
        p
    }

    /// `2^x` for `x <= 0`, relative error below 3e-6, exactly 1 at 0; below -126 it is `2^-126`.
    #[inline(always)]
    fn pow2_weight(self, x: Self::F) -> Self::F {
        // Adding it leaves the nearest integer in the low bits.
        let shift = self.splat(12_582_912.0);
        let x = self.max(x, self.splat(-126.0));
        let shifted = self.add(x, shift);
        let x = self.sub(x, self.sub(shifted, shift));
        let mut p = self.splat(9.582_854e-3);
        for c in [5.590_643e-2, 2.402_41e-1, 6.931_242e-1, 1.0] {
            p = self.fma(p, x, self.splat(c));
        }
        self.scale_exponent(p, shifted)
    }

    /// `e^x`.
    #[inline(always)]
    fn exp(self, x: Self::F) -> Self::F {
        self.pow2(self.mul(x, self.splat(std::f32::consts::LOG2_E)))
    }

    /// Asks for the cache line `ahead` bytes after the start of `bytes`, wherever that is.
    #[inline(always)]
    fn prefetch(self, _bytes: &[u8], _ahead: usize) {}

    /// `y` where `x >= low`, else 0.
    fn zero_below(self, x: Self::F, low: Self::F, y: Self::F) -> Self::F;
}
