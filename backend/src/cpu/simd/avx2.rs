//! AVX2 with FMA and F16C: two registers hold sixteen lanes. The byte product `vpmaddubsw` adds pairs with saturation, so weights stay below 128 or take the
//! sign trick: `|w| * sign(a, w)`.

use std::arch::x86_64::*;

use super::{Kernel, Simd};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2(());

impl Avx2 {
    pub(crate) fn new() -> Option<Self> {
        (is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c"))
        .then_some(Avx2(()))
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn with_avx2<K: Kernel>(simd: Avx2, kernel: K) -> K::Output {
    kernel.run(simd)
}

// SAFETY, for every `unsafe` in this file: an `Avx2` is made only by `Avx2::new`, after the processor was found to have the features that the instructions
// need; pointers come from references to arrays of exactly the size that is read or written.
impl Simd for Avx2 {
    type F = [__m256; 2];
    type I = [__m256i; 2];
    type B = [__m256i; 2];

    const TOKENS: usize = 4;
    const OFFSET_8: f32 = 0.0;

    #[inline]
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Output {
        // SAFETY: see above.
        unsafe { with_avx2(self, kernel) }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> [__m256; 2] {
        // SAFETY: see above.
        unsafe { [_mm256_set1_ps(x); 2] }
    }

    #[inline(always)]
    fn load(self, x: &[f32; 16]) -> [__m256; 2] {
        // SAFETY: see above.
        unsafe {
            [
                _mm256_loadu_ps(x.as_ptr()),
                _mm256_loadu_ps(x.as_ptr().add(8)),
            ]
        }
    }

    #[inline(always)]
    fn store(self, x: [__m256; 2], out: &mut [f32; 16]) {
        // SAFETY: see above.
        unsafe {
            _mm256_storeu_ps(out.as_mut_ptr(), x[0]);
            _mm256_storeu_ps(out.as_mut_ptr().add(8), x[1]);
        }
    }

    #[inline(always)]
    fn load_f16(self, x: &[u16; 16]) -> [__m256; 2] {
        // SAFETY: see above.
        unsafe {
            [
                _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().cast())),
                _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().add(8).cast())),
            ]
        }
    }

    #[inline(always)]
    fn store_bf16(self, x: [__m256; 2], out: &mut [u16; 16]) {
        // SAFETY: see above.
        unsafe {
            let round = |x: __m256| {
                let bits = _mm256_castps_si256(x);
                let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
                let rounded =
                    _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
                let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(x, x));
                let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x0040_0000));
                _mm256_srli_epi32::<16>(_mm256_blendv_epi8(rounded, quiet, nan))
            };
            let packed = _mm256_packus_epi32(round(x[0]), round(x[1]));
            _mm256_storeu_si256(
                out.as_mut_ptr().cast(),
                _mm256_permute4x64_epi64::<0b11_01_10_00>(packed),
            );
        }
    }

    #[inline(always)]
    fn load_u8(self, x: &[u8; 16]) -> [__m256; 2] {
        // SAFETY: see above.
        unsafe {
            let x = _mm_loadu_si128(x.as_ptr().cast());
            [
                _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(x)),
                _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128::<8>(x))),
            ]
        }
    }

    #[inline(always)]
    fn load_i8(self, x: &[i8; 16]) -> [__m256; 2] {
        // SAFETY: see above.
        unsafe {
            let x = _mm_loadu_si128(x.as_ptr().cast());
            [
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x)),
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128::<8>(x))),
            ]
        }
    }

    #[inline(always)]
    fn add(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: see above.
        unsafe { [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn sub(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: see above.
        unsafe { [_mm256_sub_ps(a[0], b[0]), _mm256_sub_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn mul(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: see above.
        unsafe { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn div(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: see above.
        unsafe { [_mm256_div_ps(a[0], b[0]), _mm256_div_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn max(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: see above.
        unsafe { [_mm256_max_ps(a[0], b[0]), _mm256_max_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn min(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: see above.
        unsafe { [_mm256_min_ps(a[0], b[0]), _mm256_min_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn abs(self, a: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: see above.
        unsafe {
            let sign = _mm256_set1_ps(-0.0);
            [_mm256_andnot_ps(sign, a[0]), _mm256_andnot_ps(sign, a[1])]
        }
    }

    #[inline(always)]
    fn fma(self, a: [__m256; 2], b: [__m256; 2], c: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: see above.
        unsafe {
            [
                _mm256_fmadd_ps(a[0], b[0], c[0]),
                _mm256_fmadd_ps(a[1], b[1], c[1]),
            ]
        }
    }

    #[inline(always)]
    fn round(self, x: [__m256; 2]) -> [__m256i; 2] {
        // SAFETY: see above.
        unsafe { [_mm256_cvtps_epi32(x[0]), _mm256_cvtps_epi32(x[1])] }
    }

    #[inline(always)]
    fn float(self, x: [__m256i; 2]) -> [__m256; 2] {
        // SAFETY: see above.
        unsafe { [_mm256_cvtepi32_ps(x[0]), _mm256_cvtepi32_ps(x[1])] }
    }

    #[inline(always)]
    fn exp2(self, x: [__m256i; 2]) -> [__m256; 2] {
        // SAFETY: see above.
        unsafe {
            x.map(|x| {
                _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(
                    x,
                    _mm256_set1_epi32(127),
                )))
            })
        }
    }

    #[inline(always)]
    fn zero_i(self) -> [__m256i; 2] {
        // SAFETY: see above.
        unsafe { [_mm256_setzero_si256(); 2] }
    }

    #[inline(always)]
    fn splat_i(self, x: i32) -> [__m256i; 2] {
        // SAFETY: see above.
        unsafe { [_mm256_set1_epi32(x); 2] }
    }

    #[inline(always)]
    fn scale_exponent(self, p: [__m256; 2], shifted: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: see above.
        unsafe {
            let mut out = p;
            for i in 0..2 {
                let exponent = _mm256_slli_epi32::<23>(_mm256_castps_si256(shifted[i]));
                out[i] = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p[i]), exponent));
            }
            out
        }
    }

    #[inline(always)]
    fn widen_8(self, x: &[u8; 32]) -> [__m256i; 2] {
        // SAFETY: see above.
        unsafe {
            [
                _mm256_cvtepi8_epi16(_mm_loadu_si128(x.as_ptr().cast())),
                _mm256_cvtepi8_epi16(_mm_loadu_si128(x.as_ptr().add(16).cast())),
            ]
        }
    }

    #[inline(always)]
    fn dot_16(self, acc: [__m256i; 2], weights: [__m256i; 2], x: i32) -> [__m256i; 2] {
        // SAFETY: see above.
        unsafe {
            let x = _mm256_set1_epi32(x);
            [
                _mm256_add_epi32(acc[0], _mm256_madd_epi16(weights[0], x)),
                _mm256_add_epi32(acc[1], _mm256_madd_epi16(weights[1], x)),
            ]
        }
    }

    #[inline(always)]
    fn store_pairs(self, a: [__m256i; 2], b: [__m256i; 2], out: &mut [u32; 16]) {
        // SAFETY: see above. The instruction packs 128 bits at a time: four lanes of `a`, then four of `b`.
        unsafe {
            _mm256_storeu_si256(out.as_mut_ptr().cast(), _mm256_packs_epi32(a[0], b[0]));
            _mm256_storeu_si256(
                out.as_mut_ptr().add(8).cast(),
                _mm256_packs_epi32(a[1], b[1]),
            );
        }
    }

    #[inline(always)]
    fn store_i8(self, x: [__m256i; 2], out: &mut [i8; 16]) {
        // SAFETY: see above.
        unsafe {
            // Inputs are within ±127, so the saturation of the packing never acts.
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(x[0], x[1]));
            let bytes = _mm_packs_epi16(
                _mm256_castsi256_si128(words),
                _mm256_extracti128_si256::<1>(words),
            );
            _mm_storeu_si128(out.as_mut_ptr().cast(), bytes);
        }
    }

    #[inline(always)]
    fn bytes(self, x: &[u8; 64]) -> [__m256i; 2] {
        // SAFETY: see above.
        unsafe {
            [
                _mm256_loadu_si256(x.as_ptr().cast()),
                _mm256_loadu_si256(x.as_ptr().add(32).cast()),
            ]
        }
    }

    #[inline(always)]
    fn store_bytes(self, x: [__m256i; 2], out: &mut [u8; 64]) {
        // SAFETY: see above.
        unsafe {
            _mm256_storeu_si256(out.as_mut_ptr().cast(), x[0]);
            _mm256_storeu_si256(out.as_mut_ptr().add(32).cast(), x[1]);
        }
    }

    #[inline(always)]
    fn and(self, x: [__m256i; 2], mask: u8) -> [__m256i; 2] {
        // SAFETY: see above.
        unsafe {
            let mask = _mm256_set1_epi8(mask as i8);
            [_mm256_and_si256(x[0], mask), _mm256_and_si256(x[1], mask)]
        }
    }

    #[inline(always)]
    fn or(self, x: [__m256i; 2], y: [__m256i; 2]) -> [__m256i; 2] {
        // SAFETY: see above.
        unsafe { [_mm256_or_si256(x[0], y[0]), _mm256_or_si256(x[1], y[1])] }
    }

    #[inline(always)]
    fn shr<const N: i32>(self, x: [__m256i; 2]) -> [__m256i; 2] {
        // SAFETY: see above.
        unsafe {
            let n = _mm_cvtsi32_si128(N);
            [_mm256_srl_epi16(x[0], n), _mm256_srl_epi16(x[1], n)]
        }
    }

    #[inline(always)]
    fn shl<const N: i32>(self, x: [__m256i; 2]) -> [__m256i; 2] {
        // SAFETY: see above.
        unsafe {
            let n = _mm_cvtsi32_si128(N);
            [_mm256_sll_epi16(x[0], n), _mm256_sll_epi16(x[1], n)]
        }
    }

    #[inline(always)]
    fn dot_u7(self, acc: [__m256i; 2], weights: [__m256i; 2], x: i32) -> [__m256i; 2] {
        // SAFETY: see above.
        unsafe {
            let x = _mm256_set1_epi32(x);
            let ones = _mm256_set1_epi16(1);
            let dot = |acc, weights| {
                _mm256_add_epi32(
                    acc,
                    _mm256_madd_epi16(_mm256_maddubs_epi16(weights, x), ones),
                )
            };
            [dot(acc[0], weights[0]), dot(acc[1], weights[1])]
        }
    }

    #[inline(always)]
    fn dot_8(self, acc: [__m256i; 2], weights: [__m256i; 2], x: i32) -> [__m256i; 2] {
        // SAFETY: see above.
        unsafe {
            let x = _mm256_set1_epi32(x);
            let ones = _mm256_set1_epi16(1);
            // |w| <= 128 and |a| <= 127: a pair is at most 32512.
            let dot = |acc, w| {
                let product = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
                _mm256_add_epi32(acc, _mm256_madd_epi16(product, ones))
            };
            [dot(acc[0], weights[0]), dot(acc[1], weights[1])]
        }
    }

    #[inline(always)]
    fn prepare_8(self, weights: [__m256i; 2]) -> [__m256i; 2] {
        weights
    }

    #[inline(always)]
    fn dot_bf16(self, acc: [__m256; 2], weights: [__m256i; 2], x: u32) -> [__m256; 2] {
        // SAFETY: see above.
        unsafe {
            let low_x = _mm256_set1_ps(f32::from_bits(x << 16));
            let high_x = _mm256_set1_ps(f32::from_bits(x & 0xffff_0000));
            let mask = _mm256_set1_epi32(0xffff_0000_u32 as i32);
            let dot = |acc, w| {
                let low =
                    _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(w)), low_x, acc);
                _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_and_si256(w, mask)), high_x, low)
            };
            [dot(acc[0], weights[0]), dot(acc[1], weights[1])]
        }
    }

    #[inline(always)]
    fn zero_below(self, x: [__m256; 2], low: [__m256; 2], y: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: see above.
        unsafe {
            let keep = |x, low, y| _mm256_and_ps(_mm256_cmp_ps::<_CMP_GE_OQ>(x, low), y);
            [keep(x[0], low[0], y[0]), keep(x[1], low[1], y[1])]
        }
    }

    #[inline(always)]
    fn prefetch(self, bytes: &[u8], ahead: usize) {
        // SAFETY: see above. A prefetch reads nothing and may be of any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().wrapping_add(ahead).cast()) }
    }

    #[inline(always)]
    fn reduce_add(self, x: [__m256; 2]) -> f32 {
        // SAFETY: see above.
        unsafe {
            let x = _mm256_add_ps(x[0], x[1]);
            let x = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)))
        }
    }

    #[inline(always)]
    fn reduce_max(self, x: [__m256; 2]) -> f32 {
        // SAFETY: see above.
        unsafe {
            let x = _mm256_max_ps(x[0], x[1]);
            let x = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let x = _mm_max_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)))
        }
    }
}
