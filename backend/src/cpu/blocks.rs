//! Unpacking a block of a packed tile into registers: 32 columns of sixteen rows as eight groups of bytes, and what they are multiplied with. One type a
//! format, so that a matrix kernel is compiled once for each.

use super::simd::Simd;
use crate::model::weights::Format;

/// The scales of a block: `weight = d * q + m`, for the first and the second half of its columns.
pub(crate) struct Scales<F> {
    pub(crate) d: [F; 2],
    pub(crate) m: [F; 2],
}

/// A block format in its packed form (see [`super::pack`]).
pub(crate) trait Blocks {
    const FORMAT: Format;
    /// The halves of a block have scales of their own.
    const HALVES: bool = false;
    /// Numbers need 8 bits and are signed in the tile.
    const EIGHT: bool = false;

    /// `record`: the numbers of the block. Eight groups of four columns.
    fn quants<S: Simd>(simd: S, record: &[u8]) -> [S::B; 8];

    /// `scales`: those of a record; `block`: the block in it.
    fn scales<S: Simd>(simd: S, scales: &[u8], block: usize) -> Scales<S::F>;
}

pub(crate) struct Q8_0;
pub(crate) struct Q4_0;
pub(crate) struct Q4_1;
pub(crate) struct Q4K;
pub(crate) struct Q5K;
pub(crate) struct Q6K;

#[inline(always)]
fn at<const N: usize>(bytes: &[u8], start: usize) -> &[u8; N] {
    &bytes[start..start + N].as_chunks().0[0]
}

#[inline(always)]
fn halves(bytes: &[u8], start: usize) -> &[u16; 16] {
    // Tiles are whole cache lines of a page-aligned map and scales lie at even places.
    bytemuck::cast_ref::<[u8; 32], [u16; 16]>(at(bytes, start))
}

#[inline(always)]
fn nibbles<S: Simd>(simd: S, record: &[u8]) -> [S::B; 8] {
    let v = [
        simd.bytes(at(record, 0)),
        simd.bytes(at(record, 64)),
        simd.bytes(at(record, 128)),
        simd.bytes(at(record, 192)),
    ];
    [
        simd.and(v[0], 15),
        simd.and(v[1], 15),
        simd.and(v[2], 15),
        simd.and(v[3], 15),
        simd.and(simd.shr::<4>(v[0]), 15),
        simd.and(simd.shr::<4>(v[1]), 15),
        simd.and(simd.shr::<4>(v[2]), 15),
        simd.and(simd.shr::<4>(v[3]), 15),
    ]
}

/// Scales of a K-quant with minima: `d * sc * q - dmin * m`.
#[inline(always)]
fn scales_k<S: Simd>(simd: S, scales: &[u8], block: usize) -> Scales<S::F> {
    let sub = 64 + block * 32;
    let d = simd.mul(
        simd.load_f16(halves(scales, 0)),
        simd.load_u8(at(scales, sub)),
    );
    let m = simd.mul(
        simd.load_f16(halves(scales, 32)),
        simd.load_u8(at(scales, sub + 16)),
    );
    let m = simd.sub(simd.splat(0.0), m);
    Scales {
        d: [d, d],
        m: [m, m],
    }
}

impl Blocks for Q8_0 {
    const FORMAT: Format = Format::Q8_0;
    const EIGHT: bool = true;

    #[inline(always)]
    fn quants<S: Simd>(simd: S, record: &[u8]) -> [S::B; 8] {
        [
            simd.prepare_8(simd.bytes(at(record, 0))),
            simd.prepare_8(simd.bytes(at(record, 64))),
            simd.prepare_8(simd.bytes(at(record, 128))),
            simd.prepare_8(simd.bytes(at(record, 192))),
            simd.prepare_8(simd.bytes(at(record, 256))),
            simd.prepare_8(simd.bytes(at(record, 320))),
            simd.prepare_8(simd.bytes(at(record, 384))),
            simd.prepare_8(simd.bytes(at(record, 448))),
        ]
    }

    #[inline(always)]
    fn scales<S: Simd>(simd: S, scales: &[u8], block: usize) -> Scales<S::F> {
        let d = simd.load_f16(halves(scales, 32 * block));
        let m = simd.mul(d, simd.splat(-S::OFFSET_8));
        Scales {
            d: [d, d],
            m: [m, m],
        }
    }
}

impl Blocks for Q4_0 {
    const FORMAT: Format = Format::Q4_0;

    #[inline(always)]
    fn quants<S: Simd>(simd: S, record: &[u8]) -> [S::B; 8] {
        nibbles(simd, record)
    }

    #[inline(always)]
    fn scales<S: Simd>(simd: S, scales: &[u8], block: usize) -> Scales<S::F> {
        let d = simd.load_f16(halves(scales, 32 * block));
        let m = simd.mul(d, simd.splat(-8.0));
        Scales {
            d: [d, d],
            m: [m, m],
        }
    }
}

impl Blocks for Q4_1 {
    const FORMAT: Format = Format::Q4_1;

    #[inline(always)]
    fn quants<S: Simd>(simd: S, record: &[u8]) -> [S::B; 8] {
        nibbles(simd, record)
    }

    #[inline(always)]
    fn scales<S: Simd>(simd: S, scales: &[u8], _: usize) -> Scales<S::F> {
        let d = simd.load_f16(halves(scales, 0));
        let m = simd.load_f16(halves(scales, 32));
        Scales {
            d: [d, d],
            m: [m, m],
        }
    }
}

impl Blocks for Q4K {
    const FORMAT: Format = Format::Q4K;

    #[inline(always)]
    fn quants<S: Simd>(simd: S, record: &[u8]) -> [S::B; 8] {
        nibbles(simd, record)
    }

    #[inline(always)]
    fn scales<S: Simd>(simd: S, scales: &[u8], block: usize) -> Scales<S::F> {
        scales_k(simd, scales, block)
    }
}

impl Blocks for Q5K {
    const FORMAT: Format = Format::Q5K;

    #[inline(always)]
    fn quants<S: Simd>(simd: S, record: &[u8]) -> [S::B; 8] {
        let q = nibbles(simd, record);
        let high = simd.bytes(at(record, 256));
        [
            simd.or(q[0], simd.and(simd.shl::<4>(high), 16)),
            simd.or(q[1], simd.and(simd.shl::<3>(high), 16)),
            simd.or(q[2], simd.and(simd.shl::<2>(high), 16)),
            simd.or(q[3], simd.and(simd.shl::<1>(high), 16)),
            simd.or(q[4], simd.and(high, 16)),
            simd.or(q[5], simd.and(simd.shr::<1>(high), 16)),
            simd.or(q[6], simd.and(simd.shr::<2>(high), 16)),
            simd.or(q[7], simd.and(simd.shr::<3>(high), 16)),
        ]
    }

    #[inline(always)]
    fn scales<S: Simd>(simd: S, scales: &[u8], block: usize) -> Scales<S::F> {
        scales_k(simd, scales, block)
    }
}

impl Blocks for Q6K {
    const FORMAT: Format = Format::Q6K;
    const HALVES: bool = true;

    #[inline(always)]
    fn quants<S: Simd>(simd: S, record: &[u8]) -> [S::B; 8] {
        let q = nibbles(simd, record);
        let high = [simd.bytes(at(record, 256)), simd.bytes(at(record, 320))];
        [
            simd.or(q[0], simd.and(simd.shl::<4>(high[0]), 48)),
            simd.or(q[1], simd.and(simd.shl::<2>(high[0]), 48)),
            simd.or(q[2], simd.and(high[0], 48)),
            simd.or(q[3], simd.and(simd.shr::<2>(high[0]), 48)),
            simd.or(q[4], simd.and(simd.shl::<4>(high[1]), 48)),
            simd.or(q[5], simd.and(simd.shl::<2>(high[1]), 48)),
            simd.or(q[6], simd.and(high[1], 48)),
            simd.or(q[7], simd.and(simd.shr::<2>(high[1]), 48)),
        ]
    }

    #[inline(always)]
    fn scales<S: Simd>(simd: S, scales: &[u8], block: usize) -> Scales<S::F> {
        let sub = 32 + block * 32;
        let d = simd.load_f16(halves(scales, 0));
        let first: &[i8; 16] = bytemuck::cast_ref::<[u8; 16], _>(at(scales, sub));
        let second: &[i8; 16] = bytemuck::cast_ref::<[u8; 16], _>(at(scales, sub + 16));
        let d = [
            simd.mul(d, simd.load_i8(first)),
            simd.mul(d, simd.load_i8(second)),
        ];
        let offset = simd.splat(-32.0);
        Scales {
            m: [simd.mul(d[0], offset), simd.mul(d[1], offset)],
            d,
        }
    }
}
