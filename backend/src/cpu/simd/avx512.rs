//! AVX-512: one register holds sixteen lanes. `vpdpbusd` multiplies unsigned weights with a signed activation broadcast from memory, four products a lane.

use std::arch::{asm, x86_64::*};

use super::{Kernel, Simd};

/// With the dot product of bf16 pairs (`BF16`) or with two fused multiply-adds in its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512<const BF16: bool>(());

impl<const BF16: bool> Avx512<BF16> {
    pub(crate) fn new() -> Option<Self> {
        let base = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vnni")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        (base && (!BF16 || is_x86_feature_detected!("avx512bf16"))).then_some(Avx512(()))
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16,avx2,fma,f16c")]
fn with_bf16<K: Kernel>(simd: Avx512<true>, kernel: K) -> K::Output {
    kernel.run(simd)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn without_bf16<K: Kernel>(simd: Avx512<false>, kernel: K) -> K::Output {
    kernel.run(simd)
}

/// The compiler takes the intrinsic apart into a product and a sum, for the latency of one chain; where products are the limit that is twice the work.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
fn dpwssd(acc: __m512i, a: __m512i, b: __m512i) -> __m512i {
    let mut acc = acc;
    // SAFETY: the instruction reads and writes the named registers only; the feature is enabled for this function.
    unsafe {
        asm!(
            "vpdpwssd {acc}, {a}, {b}",
            acc = inout(zmm_reg) acc,
            a = in(zmm_reg) a,
            b = in(zmm_reg) b,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    acc
}

// SAFETY, for every `unsafe` in this file: an `Avx512` is made only by `Avx512::new`, after the processor was found to have the features that the
// instructions need (bf16 ones only under `BF16`); pointers come from references to arrays of exactly the size that is read or written.
impl<const BF16: bool> Simd for Avx512<BF16> {
    type F = __m512;
    type I = __m512i;
    type B = __m512i;

    const TOKENS: usize = 16;
    const OFFSET_8: f32 = 128.0;

    #[inline]
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Output {
        if BF16 {
            // SAFETY: see above.
            unsafe { with_bf16(Avx512(()), kernel) }
        } else {
            // SAFETY: see above.
            unsafe { without_bf16(Avx512(()), kernel) }
        }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    fn load(self, x: &[f32; 16]) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_loadu_ps(x.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, x: __m512, out: &mut [f32; 16]) {
        // SAFETY: see above.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), x) }
    }

    #[inline(always)]
    fn load_f16(self, x: &[u16; 16]) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(x.as_ptr().cast())) }
    }

    #[inline(always)]
    fn store_bf16(self, x: __m512, out: &mut [u16; 16]) {
        // SAFETY: see above.
        unsafe {
            if BF16 {
                // As below, but subnormals become 0.
                let half = _mm512_cvtneps_pbh(x);
                _mm256_storeu_si256(
                    out.as_mut_ptr().cast(),
                    std::mem::transmute::<__m256bh, __m256i>(half),
                );
                return;
            }
            // Rounds to even; NaN is kept by setting its quiet bit.
            let bits = _mm512_castps_si512(x);
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x);
            let quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x0040_0000));
            let rounded = _mm512_mask_mov_epi32(rounded, nan, quiet);
            _mm256_storeu_si256(
                out.as_mut_ptr().cast(),
                _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(rounded)),
            );
        }
    }

    #[inline(always)]
    fn load_u8(self, x: &[u8; 16]) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(x.as_ptr().cast()))) }
    }

    #[inline(always)]
    fn load_i8(self, x: &[i8; 16]) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(x.as_ptr().cast()))) }
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_sub_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_div_ps(a, b) }
    }

    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_max_ps(a, b) }
    }

    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_min_ps(a, b) }
    }

    #[inline(always)]
    fn abs(self, a: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_abs_ps(a) }
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn round(self, x: __m512) -> __m512i {
        // SAFETY: see above. Rounds as MXCSR says: to nearest, ties to even.
        unsafe { _mm512_cvtps_epi32(x) }
    }

    #[inline(always)]
    fn float(self, x: __m512i) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_cvtepi32_ps(x) }
    }

    #[inline(always)]
    fn exp2(self, x: __m512i) -> __m512 {
        // SAFETY: see above.
        unsafe {
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_add_epi32(
                x,
                _mm512_set1_epi32(127),
            )))
        }
    }

    #[inline(always)]
    fn zero_i(self) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    fn splat_i(self, x: i32) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_set1_epi32(x) }
    }

    #[inline(always)]
    fn scale_exponent(self, p: __m512, shifted: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe {
            let exponent = _mm512_slli_epi32::<23>(_mm512_castps_si512(shifted));
            _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), exponent))
        }
    }

    #[inline(always)]
    fn widen_8(self, x: &[u8; 32]) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_cvtepi8_epi16(_mm256_loadu_si256(x.as_ptr().cast())) }
    }

    #[inline(always)]
    fn dot_16(self, acc: __m512i, weights: __m512i, x: i32) -> __m512i {
        // SAFETY: see above.
        unsafe { dpwssd(acc, weights, _mm512_set1_epi32(x)) }
    }

    #[inline(always)]
    fn store_pairs(self, a: __m512i, b: __m512i, out: &mut [u32; 16]) {
        // SAFETY: see above. The instruction packs 128 bits at a time: four lanes of `a`, then four of `b`.
        unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), _mm512_packs_epi32(a, b)) }
    }

    #[inline(always)]
    fn store_i8(self, x: __m512i, out: &mut [i8; 16]) {
        // SAFETY: see above.
        unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(x)) }
    }

    #[inline(always)]
    fn bytes(self, x: &[u8; 64]) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_loadu_si512(x.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store_bytes(self, x: __m512i, out: &mut [u8; 64]) {
        // SAFETY: see above.
        unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), x) }
    }

    #[inline(always)]
    fn and(self, x: __m512i, mask: u8) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_and_si512(x, _mm512_set1_epi8(mask as i8)) }
    }

    #[inline(always)]
    fn or(self, x: __m512i, y: __m512i) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_or_si512(x, y) }
    }

    #[inline(always)]
    fn shr<const N: i32>(self, x: __m512i) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_srl_epi16(x, _mm_cvtsi32_si128(N)) }
    }

    #[inline(always)]
    fn shl<const N: i32>(self, x: __m512i) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_sll_epi16(x, _mm_cvtsi32_si128(N)) }
    }

    #[inline(always)]
    fn dot_u7(self, acc: __m512i, weights: __m512i, x: i32) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_dpbusd_epi32(acc, weights, _mm512_set1_epi32(x)) }
    }

    #[inline(always)]
    fn dot_8(self, acc: __m512i, weights: __m512i, x: i32) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_dpbusd_epi32(acc, weights, _mm512_set1_epi32(x)) }
    }

    #[inline(always)]
    fn prepare_8(self, weights: __m512i) -> __m512i {
        // SAFETY: see above. Flipping the sign bit adds 128.
        unsafe { _mm512_xor_si512(weights, _mm512_set1_epi8(-128)) }
    }

    #[inline(always)]
    fn dot_bf16(self, acc: __m512, weights: __m512i, x: u32) -> __m512 {
        // SAFETY: see above.
        unsafe {
            let x = _mm512_set1_epi32(x as i32);
            if BF16 {
                _mm512_dpbf16_ps(
                    acc,
                    std::mem::transmute::<__m512i, __m512bh>(weights),
                    std::mem::transmute::<__m512i, __m512bh>(x),
                )
            } else {
                let high = _mm512_set1_epi32(0xffff_0000_u32 as i32);
                let low = _mm512_fmadd_ps(
                    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(weights)),
                    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(x)),
                    acc,
                );
                _mm512_fmadd_ps(
                    _mm512_castsi512_ps(_mm512_and_si512(weights, high)),
                    _mm512_castsi512_ps(_mm512_and_si512(x, high)),
                    low,
                )
            }
        }
    }

    #[inline(always)]
    fn zero_below(self, x: __m512, low: __m512, y: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_GE_OQ>(x, low), y) }
    }

    #[inline(always)]
    fn pow2(self, x: __m512) -> __m512 {
        // SAFETY: see above. `vscalefps` takes care of large and small exponents, so nothing is clamped: below -126 the result is subnormal or 0, and
        // 0 for -∞ too, though its fraction is NaN (the instruction's table of special cases).
        unsafe {
            let n = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x);
            _mm512_scalef_ps(self.pow2_fraction(_mm512_sub_ps(x, n)), n)
        }
    }

    #[inline(always)]
    fn prefetch(self, bytes: &[u8], ahead: usize) {
        // SAFETY: see above. A prefetch reads nothing and may be of any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().wrapping_add(ahead).cast()) }
    }

    #[inline(always)]
    fn reduce_add(self, x: __m512) -> f32 {
        // SAFETY: see above.
        unsafe {
            let x = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps::<1>(x));
            let x = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)))
        }
    }

    #[inline(always)]
    fn reduce_max(self, x: __m512) -> f32 {
        // SAFETY: see above.
        unsafe {
            let x = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps::<1>(x));
            let x = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let x = _mm_max_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)))
        }
    }
}
