//! Plain loops over sixteen lanes: the device on processors without a known vector instruction set, and the easiest of the four to read.

use half::{bf16, f16};

use super::{Kernel, Simd};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Scalar;

#[inline(always)]
fn map<A: Copy, B: Copy + Default>(a: [A; 16], f: impl Fn(A) -> B) -> [B; 16] {
    let mut out = [B::default(); 16];
    for i in 0..16 {
        out[i] = f(a[i]);
    }
    out
}

#[inline(always)]
fn zip(a: [f32; 16], b: [f32; 16], f: impl Fn(f32, f32) -> f32) -> [f32; 16] {
    let mut out = [0.0; 16];
    for i in 0..16 {
        out[i] = f(a[i], b[i]);
    }
    out
}

impl Simd for Scalar {
    type F = [f32; 16];
    type I = [i32; 16];
    type B = [u8; 64];

    const TOKENS: usize = 2;
    const OFFSET_8: f32 = 0.0;

    #[inline]
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Output {
        kernel.run(self)
    }

    #[inline(always)]
    fn splat(self, x: f32) -> [f32; 16] {
        [x; 16]
    }

    #[inline(always)]
    fn load(self, x: &[f32; 16]) -> [f32; 16] {
        *x
    }

    #[inline(always)]
    fn store(self, x: [f32; 16], out: &mut [f32; 16]) {
        *out = x;
    }

    #[inline(always)]
    fn load_f16(self, x: &[u16; 16]) -> [f32; 16] {
        map(*x, |x| f16::from_bits(x).to_f32())
    }

    #[inline(always)]
    fn store_bf16(self, x: [f32; 16], out: &mut [u16; 16]) {
        *out = map(x, |x| bf16::from_f32(x).to_bits());
    }

    #[inline(always)]
    fn load_u8(self, x: &[u8; 16]) -> [f32; 16] {
        map(*x, f32::from)
    }

    #[inline(always)]
    fn load_i8(self, x: &[i8; 16]) -> [f32; 16] {
        map(*x, f32::from)
    }

    #[inline(always)]
    fn add(self, a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        zip(a, b, |a, b| a + b)
    }

    #[inline(always)]
    fn sub(self, a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        zip(a, b, |a, b| a - b)
    }

    #[inline(always)]
    fn mul(self, a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        zip(a, b, |a, b| a * b)
    }

    #[inline(always)]
    fn div(self, a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        zip(a, b, |a, b| a / b)
    }

    #[inline(always)]
    fn max(self, a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        zip(a, b, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn min(self, a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        zip(a, b, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    fn abs(self, a: [f32; 16]) -> [f32; 16] {
        map(a, f32::abs)
    }

    #[inline(always)]
    fn fma(self, a: [f32; 16], b: [f32; 16], c: [f32; 16]) -> [f32; 16] {
        // Not `mul_add`: without the instruction it is a call of libm.
        let mut out = c;
        for i in 0..16 {
            out[i] += a[i] * b[i];
        }
        out
    }

    #[inline(always)]
    fn round(self, x: [f32; 16]) -> [i32; 16] {
        // Adding 1.5 * 2^23 leaves the integer in the low bits, rounded to even; good for |x| < 2^22.
        map(x, |x| (x + 12_582_912.0).to_bits() as i32 - 0x4b40_0000)
    }

    #[inline(always)]
    fn float(self, x: [i32; 16]) -> [f32; 16] {
        map(x, |x| x as f32)
    }

    #[inline(always)]
    fn exp2(self, x: [i32; 16]) -> [f32; 16] {
        map(x, |x| f32::from_bits(((x + 127) as u32) << 23))
    }

    #[inline(always)]
    fn zero_i(self) -> [i32; 16] {
        [0; 16]
    }

    #[inline(always)]
    fn splat_i(self, x: i32) -> [i32; 16] {
        [x; 16]
    }

    #[inline(always)]
    fn scale_exponent(self, p: [f32; 16], shifted: [f32; 16]) -> [f32; 16] {
        zip(p, shifted, |p, shifted| {
            f32::from_bits(p.to_bits().wrapping_add(shifted.to_bits() << 23))
        })
    }

    #[inline(always)]
    fn widen_8(self, x: &[u8; 32]) -> [u8; 64] {
        let mut out = [0; 64];
        for (x, out) in x.iter().zip(out.as_chunks_mut::<2>().0) {
            *out = i16::from(*x as i8).to_le_bytes();
        }
        out
    }

    #[inline(always)]
    fn dot_16(self, acc: [i32; 16], weights: [u8; 64], x: i32) -> [i32; 16] {
        let (low, high) = (i32::from(x as i16), x >> 16);
        let mut out = acc;
        for (out, weights) in out.iter_mut().zip(weights.as_chunks::<4>().0) {
            let [a, b, c, d] = *weights;
            let pair = [i16::from_le_bytes([a, b]), i16::from_le_bytes([c, d])];
            *out += i32::from(pair[0]) * low + i32::from(pair[1]) * high;
        }
        out
    }

    #[inline(always)]
    fn store_pairs(self, a: [i32; 16], b: [i32; 16], out: &mut [u32; 16]) {
        let pair = |x: &[i32; 16], at: usize| x[at] as u32 & 0xffff | (x[at + 1] as u32) << 16;
        for i in 0..4 {
            for j in 0..2 {
                out[4 * i + j] = pair(&a, 4 * i + 2 * j);
                out[4 * i + 2 + j] = pair(&b, 4 * i + 2 * j);
            }
        }
    }

    #[inline(always)]
    fn store_i8(self, x: [i32; 16], out: &mut [i8; 16]) {
        *out = map(x, |x| x as i8);
    }

    #[inline(always)]
    fn bytes(self, x: &[u8; 64]) -> [u8; 64] {
        *x
    }

    #[inline(always)]
    fn store_bytes(self, x: [u8; 64], out: &mut [u8; 64]) {
        *out = x;
    }

    #[inline(always)]
    fn and(self, x: [u8; 64], mask: u8) -> [u8; 64] {
        let mut out = x;
        out.iter_mut().for_each(|x| *x &= mask);
        out
    }

    #[inline(always)]
    fn or(self, x: [u8; 64], y: [u8; 64]) -> [u8; 64] {
        let mut out = x;
        for i in 0..64 {
            out[i] |= y[i];
        }
        out
    }

    #[inline(always)]
    fn shr<const N: i32>(self, x: [u8; 64]) -> [u8; 64] {
        let mut out = x;
        out.iter_mut().for_each(|x| *x >>= N);
        out
    }

    #[inline(always)]
    fn shl<const N: i32>(self, x: [u8; 64]) -> [u8; 64] {
        let mut out = x;
        out.iter_mut().for_each(|x| *x <<= N);
        out
    }

    #[inline(always)]
    fn dot_u7(self, acc: [i32; 16], weights: [u8; 64], x: i32) -> [i32; 16] {
        let x = x.to_le_bytes().map(|x| i32::from(x as i8));
        let mut out = acc;
        for i in 0..16 {
            for j in 0..4 {
                out[i] += i32::from(weights[4 * i + j]) * x[j];
            }
        }
        out
    }

    #[inline(always)]
    fn dot_8(self, acc: [i32; 16], weights: [u8; 64], x: i32) -> [i32; 16] {
        let x = x.to_le_bytes().map(|x| i32::from(x as i8));
        let mut out = acc;
        for i in 0..16 {
            for j in 0..4 {
                out[i] += i32::from(weights[4 * i + j] as i8) * x[j];
            }
        }
        out
    }

    #[inline(always)]
    fn prepare_8(self, weights: [u8; 64]) -> [u8; 64] {
        weights
    }

    #[inline(always)]
    fn dot_bf16(self, acc: [f32; 16], weights: [u8; 64], x: u32) -> [f32; 16] {
        let low = f32::from_bits(x << 16);
        let high = f32::from_bits(x & 0xffff_0000);
        let mut out = acc;
        for i in 0..16 {
            let pair = u32::from_le_bytes([
                weights[4 * i],
                weights[4 * i + 1],
                weights[4 * i + 2],
                weights[4 * i + 3],
            ]);
            out[i] += f32::from_bits(pair << 16) * low;
            out[i] += f32::from_bits(pair & 0xffff_0000) * high;
        }
        out
    }

    #[inline(always)]
    fn zero_below(self, x: [f32; 16], low: [f32; 16], y: [f32; 16]) -> [f32; 16] {
        let mut out = y;
        for i in 0..16 {
            out[i] = if x[i] >= low[i] { y[i] } else { 0.0 };
        }
        out
    }
}
