//! Advanced SIMD: four registers hold sixteen lanes. Signed bytes are multiplied four to a lane by `sdot` where the processor has it, else by widening
//! products and pairwise sums.

use std::arch::{aarch64::*, asm};

use super::{Kernel, Simd};

/// With the dot product instruction (`DOT`) or without.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neon<const DOT: bool>(());

impl<const DOT: bool> Neon<DOT> {
    pub(crate) fn new() -> Option<Self> {
        let found = std::arch::is_aarch64_feature_detected!("neon")
            && (!DOT || std::arch::is_aarch64_feature_detected!("dotprod"));
        found.then_some(Neon(()))
    }
}

#[target_feature(enable = "neon,dotprod")]
fn with_dot<K: Kernel>(simd: Neon<true>, kernel: K) -> K::Output {
    kernel.run(simd)
}

#[target_feature(enable = "neon")]
fn without_dot<K: Kernel>(simd: Neon<false>, kernel: K) -> K::Output {
    kernel.run(simd)
}

/// The intrinsic is stable only in compilers newer than the oldest that this crate supports.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn sdot(acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    let mut acc = acc;
    // SAFETY: the instruction reads and writes the named registers only; the feature is enabled for this function.
    unsafe {
        asm!(
            "sdot {acc:v}.4s, {a:v}.16b, {b:v}.16b",
            acc = inout(vreg) acc,
            a = in(vreg) a,
            b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    acc
}

// SAFETY, for every `unsafe` in this file: a `Neon` is made only by `Neon::new`, after the processor was found to have the features that the instructions
// need (`sdot` only under `DOT`); pointers come from references to arrays of exactly the size that is read or written.
impl<const DOT: bool> Neon<DOT> {
    #[inline(always)]
    fn dot(self, acc: [int32x4_t; 4], weights: [uint8x16_t; 4], x: i32) -> [int32x4_t; 4] {
        // SAFETY: see above.
        unsafe {
            let x = vreinterpretq_s8_s32(vdupq_n_s32(x));
            let mut out = acc;
            for i in 0..4 {
                let w = vreinterpretq_s8_u8(weights[i]);
                out[i] = if DOT {
                    sdot(acc[i], w, x)
                } else {
                    let low = vpaddlq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(x)));
                    let high = vpaddlq_s16(vmull_high_s8(w, x));
                    vaddq_s32(acc[i], vpaddq_s32(low, high))
                };
            }
            out
        }
    }
}

impl<const DOT: bool> Simd for Neon<DOT> {
    type F = [float32x4_t; 4];
    type I = [int32x4_t; 4];
    type B = [uint8x16_t; 4];

    const TOKENS: usize = 4;
    const OFFSET_8: f32 = 0.0;

    #[inline]
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Output {
        if DOT {
            // SAFETY: see above.
            unsafe { with_dot(Neon(()), kernel) }
        } else {
            // SAFETY: see above.
            unsafe { without_dot(Neon(()), kernel) }
        }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> [float32x4_t; 4] {
        // SAFETY: see above.
        unsafe { [vdupq_n_f32(x); 4] }
    }

    #[inline(always)]
    fn load(self, x: &[f32; 16]) -> [float32x4_t; 4] {
        // SAFETY: see above.
        unsafe {
            [
                vld1q_f32(x.as_ptr().add(4 * 0)),
                vld1q_f32(x.as_ptr().add(4 * 1)),
                vld1q_f32(x.as_ptr().add(4 * 2)),
                vld1q_f32(x.as_ptr().add(4 * 3)),
            ]
        }
    }

    #[inline(always)]
    fn store(self, x: [float32x4_t; 4], out: &mut [f32; 16]) {
        // SAFETY: see above.
        unsafe {
            for i in 0..4 {
                vst1q_f32(out.as_mut_ptr().add(4 * i), x[i]);
            }
        }
    }

    #[inline(always)]
    fn load_f16(self, x: &[u16; 16]) -> [float32x4_t; 4] {
        // SAFETY: see above.
        unsafe {
            let mut out = [vdupq_n_f32(0.0); 4];
            for i in 0..4 {
                // Exponent and mantissa moved up, then times 2^112 for the difference of the exponents' bias; infinities and NaN get the largest exponent.
                let bits = vmovl_u16(vld1_u16(x.as_ptr().add(4 * i)));
                let sign = vshlq_n_u32::<16>(vandq_u32(bits, vdupq_n_u32(0x8000)));
                let rest = vshlq_n_u32::<13>(vandq_u32(bits, vdupq_n_u32(0x7fff)));
                let special = vandq_u32(
                    vcgeq_u32(rest, vdupq_n_u32(0x0f80_0000)),
                    vdupq_n_u32(0x7f80_0000),
                );
                let value = vmulq_f32(
                    vreinterpretq_f32_u32(rest),
                    vdupq_n_f32(f32::from_bits(0x7780_0000)),
                );
                out[i] = vreinterpretq_f32_u32(vorrq_u32(
                    vorrq_u32(vreinterpretq_u32_f32(value), special),
                    sign,
                ));
            }
            out
        }
    }

    #[inline(always)]
    fn store_bf16(self, x: [float32x4_t; 4], out: &mut [u16; 16]) {
        // SAFETY: see above.
        unsafe {
            for i in 0..4 {
                let bits = vreinterpretq_u32_f32(x[i]);
                let odd = vandq_u32(vshrq_n_u32::<16>(bits), vdupq_n_u32(1));
                let rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
                let number = vceqq_f32(x[i], x[i]);
                let quiet = vorrq_u32(bits, vdupq_n_u32(0x0040_0000));
                vst1_u16(
                    out.as_mut_ptr().add(4 * i),
                    vshrn_n_u32::<16>(vbslq_u32(number, rounded, quiet)),
                );
            }
        }
    }

    #[inline(always)]
    fn load_u8(self, x: &[u8; 16]) -> [float32x4_t; 4] {
        // SAFETY: see above.
        unsafe {
            let x = vld1q_u8(x.as_ptr());
            let low = vmovl_u8(vget_low_u8(x));
            let high = vmovl_u8(vget_high_u8(x));
            [
                vcvtq_f32_u32(vmovl_u16(vget_low_u16(low))),
                vcvtq_f32_u32(vmovl_u16(vget_high_u16(low))),
                vcvtq_f32_u32(vmovl_u16(vget_low_u16(high))),
                vcvtq_f32_u32(vmovl_u16(vget_high_u16(high))),
            ]
        }
    }

    #[inline(always)]
    fn load_i8(self, x: &[i8; 16]) -> [float32x4_t; 4] {
        // SAFETY: see above.
        unsafe {
            let x = vld1q_s8(x.as_ptr());
            let low = vmovl_s8(vget_low_s8(x));
            let high = vmovl_s8(vget_high_s8(x));
            [
                vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))),
                vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))),
                vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
                vcvtq_f32_s32(vmovl_s16(vget_high_s16(high))),
            ]
        }
    }

    #[inline(always)]
    fn add(self, a: [float32x4_t; 4], b: [float32x4_t; 4]) -> [float32x4_t; 4] {
        // SAFETY: see above.
        unsafe {
            [
                vaddq_f32(a[0], b[0]),
                vaddq_f32(a[1], b[1]),
                vaddq_f32(a[2], b[2]),
                vaddq_f32(a[3], b[3]),
            ]
        }
    }

    #[inline(always)]
    fn sub(self, a: [float32x4_t; 4], b: [float32x4_t; 4]) -> [float32x4_t; 4] {
        // SAFETY: see above.
        unsafe {
            [
                vsubq_f32(a[0], b[0]),
                vsubq_f32(a[1], b[1]),
                vsubq_f32(a[2], b[2]),
                vsubq_f32(a[3], b[3]),
            ]
        }
    }

    #[inline(always)]
    fn mul(self, a: [float32x4_t; 4], b: [float32x4_t; 4]) -> [float32x4_t; 4] {
        // SAFETY: see above.
        unsafe {
            [
                vmulq_f32(a[0], b[0]),
                vmulq_f32(a[1], b[1]),
                vmulq_f32(a[2], b[2]),
                vmulq_f32(a[3], b[3]),
            ]
        }
    }

    #[inline(always)]
    fn div(self, a: [float32x4_t; 4], b: [float32x4_t; 4]) -> [float32x4_t; 4] {
        // SAFETY: see above.
        unsafe {
            [
                vdivq_f32(a[0], b[0]),
                vdivq_f32(a[1], b[1]),
                vdivq_f32(a[2], b[2]),
                vdivq_f32(a[3], b[3]),
            ]
        }
    }

    #[inline(always)]
    fn max(self, a: [float32x4_t; 4], b: [float32x4_t; 4]) -> [float32x4_t; 4] {
        // SAFETY: see above.
        unsafe {
            [
                vmaxq_f32(a[0], b[0]),
                vmaxq_f32(a[1], b[1]),
                vmaxq_f32(a[2], b[2]),
                vmaxq_f32(a[3], b[3]),
            ]
        }
    }

    #[inline(always)]
    fn min(self, a: [float32x4_t; 4], b: [float32x4_t; 4]) -> [float32x4_t; 4] {
        // SAFETY: see above.
        unsafe {
            [
                vminq_f32(a[0], b[0]),
                vminq_f32(a[1], b[1]),
                vminq_f32(a[2], b[2]),
                vminq_f32(a[3], b[3]),
            ]
        }
    }

    #[inline(always)]
    fn abs(self, a: [float32x4_t; 4]) -> [float32x4_t; 4] {
        // SAFETY: see above.
        unsafe {
            [
                vabsq_f32(a[0]),
                vabsq_f32(a[1]),
                vabsq_f32(a[2]),
                vabsq_f32(a[3]),
            ]
        }
    }

    #[inline(always)]
    fn fma(
        self,
        a: [float32x4_t; 4],
        b: [float32x4_t; 4],
        c: [float32x4_t; 4],
    ) -> [float32x4_t; 4] {
        // SAFETY: see above.
        unsafe {
            [
                vfmaq_f32(c[0], a[0], b[0]),
                vfmaq_f32(c[1], a[1], b[1]),
                vfmaq_f32(c[2], a[2], b[2]),
                vfmaq_f32(c[3], a[3], b[3]),
            ]
        }
    }

    #[inline(always)]
    fn round(self, x: [float32x4_t; 4]) -> [int32x4_t; 4] {
        // SAFETY: see above.
        unsafe {
            [
                vcvtnq_s32_f32(x[0]),
                vcvtnq_s32_f32(x[1]),
                vcvtnq_s32_f32(x[2]),
                vcvtnq_s32_f32(x[3]),
            ]
        }
    }

    #[inline(always)]
    fn float(self, x: [int32x4_t; 4]) -> [float32x4_t; 4] {
        // SAFETY: see above.
        unsafe {
            [
                vcvtq_f32_s32(x[0]),
                vcvtq_f32_s32(x[1]),
                vcvtq_f32_s32(x[2]),
                vcvtq_f32_s32(x[3]),
            ]
        }
    }

    #[inline(always)]
    fn exp2(self, x: [int32x4_t; 4]) -> [float32x4_t; 4] {
        // SAFETY: see above.
        unsafe {
            [
                vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(x[0], vdupq_n_s32(127)))),
                vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(x[1], vdupq_n_s32(127)))),
                vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(x[2], vdupq_n_s32(127)))),
                vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(x[3], vdupq_n_s32(127)))),
            ]
        }
    }

    #[inline(always)]
    fn zero_i(self) -> [int32x4_t; 4] {
        // SAFETY: see above.
        unsafe { [vdupq_n_s32(0); 4] }
    }

    #[inline(always)]
    fn splat_i(self, x: i32) -> [int32x4_t; 4] {
        // SAFETY: see above.
        unsafe { [vdupq_n_s32(x); 4] }
    }

    #[inline(always)]
    fn scale_exponent(self, p: [float32x4_t; 4], shifted: [float32x4_t; 4]) -> [float32x4_t; 4] {
        // SAFETY: see above.
        unsafe {
            let mut out = p;
            for i in 0..4 {
                let exponent = vshlq_n_s32::<23>(vreinterpretq_s32_f32(shifted[i]));
                out[i] = vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(p[i]), exponent));
            }
            out
        }
    }

    #[inline(always)]
    fn widen_8(self, x: &[u8; 32]) -> [uint8x16_t; 4] {
        // SAFETY: see above.
        unsafe {
            let mut out = [vdupq_n_u8(0); 4];
            for (i, out) in out.iter_mut().enumerate() {
                let wide = vmovl_s8(vld1_s8(x.as_ptr().add(8 * i).cast()));
                *out = vreinterpretq_u8_s16(wide);
            }
            out
        }
    }

    #[inline(always)]
    fn dot_16(self, acc: [int32x4_t; 4], weights: [uint8x16_t; 4], x: i32) -> [int32x4_t; 4] {
        // SAFETY: see above.
        unsafe {
            let x = vreinterpretq_s16_s32(vdupq_n_s32(x));
            let mut out = acc;
            for i in 0..4 {
                let w = vreinterpretq_s16_u8(weights[i]);
                let low = vmull_s16(vget_low_s16(w), vget_low_s16(x));
                let high = vmull_high_s16(w, x);
                out[i] = vaddq_s32(acc[i], vpaddq_s32(low, high));
            }
            out
        }
    }

    #[inline(always)]
    fn store_pairs(self, a: [int32x4_t; 4], b: [int32x4_t; 4], out: &mut [u32; 16]) {
        // SAFETY: see above.
        unsafe {
            for i in 0..4 {
                let pairs = vcombine_s16(vqmovn_s32(a[i]), vqmovn_s32(b[i]));
                vst1q_u32(out.as_mut_ptr().add(4 * i), vreinterpretq_u32_s16(pairs));
            }
        }
    }

    #[inline(always)]
    fn store_i8(self, x: [int32x4_t; 4], out: &mut [i8; 16]) {
        // SAFETY: see above.
        unsafe {
            // Inputs are within ±127, so the saturation of the narrowing never acts.
            let low = vcombine_s16(vqmovn_s32(x[0]), vqmovn_s32(x[1]));
            let high = vcombine_s16(vqmovn_s32(x[2]), vqmovn_s32(x[3]));
            vst1q_s8(
                out.as_mut_ptr(),
                vcombine_s8(vqmovn_s16(low), vqmovn_s16(high)),
            );
        }
    }

    #[inline(always)]
    fn bytes(self, x: &[u8; 64]) -> [uint8x16_t; 4] {
        // SAFETY: see above.
        unsafe {
            [
                vld1q_u8(x.as_ptr().add(16 * 0)),
                vld1q_u8(x.as_ptr().add(16 * 1)),
                vld1q_u8(x.as_ptr().add(16 * 2)),
                vld1q_u8(x.as_ptr().add(16 * 3)),
            ]
        }
    }

    #[inline(always)]
    fn store_bytes(self, x: [uint8x16_t; 4], out: &mut [u8; 64]) {
        // SAFETY: see above.
        unsafe {
            for i in 0..4 {
                vst1q_u8(out.as_mut_ptr().add(16 * i), x[i]);
            }
        }
    }

    #[inline(always)]
    fn and(self, x: [uint8x16_t; 4], mask: u8) -> [uint8x16_t; 4] {
        // SAFETY: see above.
        unsafe {
            let mask = vdupq_n_u8(mask);
            [
                vandq_u8(x[0], mask),
                vandq_u8(x[1], mask),
                vandq_u8(x[2], mask),
                vandq_u8(x[3], mask),
            ]
        }
    }

    #[inline(always)]
    fn or(self, x: [uint8x16_t; 4], y: [uint8x16_t; 4]) -> [uint8x16_t; 4] {
        // SAFETY: see above.
        unsafe {
            [
                vorrq_u8(x[0], y[0]),
                vorrq_u8(x[1], y[1]),
                vorrq_u8(x[2], y[2]),
                vorrq_u8(x[3], y[3]),
            ]
        }
    }

    #[inline(always)]
    fn shr<const N: i32>(self, x: [uint8x16_t; 4]) -> [uint8x16_t; 4] {
        // SAFETY: see above.
        unsafe {
            let n = vdupq_n_s8(-(N as i8));
            [
                vshlq_u8(x[0], n),
                vshlq_u8(x[1], n),
                vshlq_u8(x[2], n),
                vshlq_u8(x[3], n),
            ]
        }
    }

    #[inline(always)]
    fn shl<const N: i32>(self, x: [uint8x16_t; 4]) -> [uint8x16_t; 4] {
        // SAFETY: see above.
        unsafe {
            let n = vdupq_n_s8(N as i8);
            [
                vshlq_u8(x[0], n),
                vshlq_u8(x[1], n),
                vshlq_u8(x[2], n),
                vshlq_u8(x[3], n),
            ]
        }
    }

    #[inline(always)]
    fn dot_u7(self, acc: [int32x4_t; 4], weights: [uint8x16_t; 4], x: i32) -> [int32x4_t; 4] {
        self.dot(acc, weights, x)
    }

    #[inline(always)]
    fn dot_8(self, acc: [int32x4_t; 4], weights: [uint8x16_t; 4], x: i32) -> [int32x4_t; 4] {
        self.dot(acc, weights, x)
    }

    #[inline(always)]
    fn prepare_8(self, weights: [uint8x16_t; 4]) -> [uint8x16_t; 4] {
        weights
    }

    #[inline(always)]
    fn dot_bf16(self, acc: [float32x4_t; 4], weights: [uint8x16_t; 4], x: u32) -> [float32x4_t; 4] {
        // SAFETY: see above.
        unsafe {
            let low_x = vdupq_n_f32(f32::from_bits(x << 16));
            let high_x = vdupq_n_f32(f32::from_bits(x & 0xffff_0000));
            let mut out = acc;
            for i in 0..4 {
                let w = vreinterpretq_u32_u8(weights[i]);
                let low = vfmaq_f32(acc[i], vreinterpretq_f32_u32(vshlq_n_u32::<16>(w)), low_x);
                out[i] = vfmaq_f32(
                    low,
                    vreinterpretq_f32_u32(vandq_u32(w, vdupq_n_u32(0xffff_0000))),
                    high_x,
                );
            }
            out
        }
    }

    #[inline(always)]
    fn zero_below(
        self,
        x: [float32x4_t; 4],
        low: [float32x4_t; 4],
        y: [float32x4_t; 4],
    ) -> [float32x4_t; 4] {
        // SAFETY: see above.
        unsafe {
            [
                vreinterpretq_f32_u32(vandq_u32(
                    vcgeq_f32(x[0], low[0]),
                    vreinterpretq_u32_f32(y[0]),
                )),
                vreinterpretq_f32_u32(vandq_u32(
                    vcgeq_f32(x[1], low[1]),
                    vreinterpretq_u32_f32(y[1]),
                )),
                vreinterpretq_f32_u32(vandq_u32(
                    vcgeq_f32(x[2], low[2]),
                    vreinterpretq_u32_f32(y[2]),
                )),
                vreinterpretq_f32_u32(vandq_u32(
                    vcgeq_f32(x[3], low[3]),
                    vreinterpretq_u32_f32(y[3]),
                )),
            ]
        }
    }
}
