//! Activations as tensor cores take them.

use half::{bf16, f16};
use kernels::{
    launch::{Launcher, Memory},
    ops::{Encode, EncodeSm90, EncodedShape, Rows},
    pack::{Encoding, Packed},
};

use super::{On, get, launch, matrix::Matrix, put, random::Random};

pub(super) const EPS: f32 = 1e-5;

/// The root mean square norm in f64.
pub(super) fn normed(x: &[f32], weight: &[f32]) -> Vec<f64> {
    x.chunks_exact(weight.len())
        .flat_map(|x| {
            let mean = x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / weight.len() as f64;
            let factor = 1.0 / (mean + f64::from(EPS)).sqrt();
            x.iter()
                .zip(weight)
                .map(move |(x, w)| f64::from(*x) * factor * f64::from(*w))
        })
        .collect()
}

/// What a row of activations is worth once it is encoded.
fn decoded(encoding: Encoding, columns: usize, values: &[u8], scales: &[f32]) -> Vec<f64> {
    (0..columns)
        .map(|c| {
            let half = |c: usize| u16::from_le_bytes([values[2 * c], values[2 * c + 1]]);
            match encoding {
                Encoding::Int8 => f64::from(values[c] as i8) * f64::from(scales[c / 32 * 2]),
                Encoding::Bf16 => f64::from(bf16::from_bits(half(c)).to_f32()),
                Encoding::F16 => f64::from(f16::from_bits(half(c)).to_f32()) * f64::from(scales[0]),
            }
        })
        .collect()
}

/// Encodes rows.
fn encode(
    sim: &mut dyn Launcher,
    shape: EncodedShape,
    x: Memory,
    tokens: usize,
    columns: usize,
    norm: Option<(Memory, f32)>,
) -> (Memory, Memory) {
    let values = sim.alloc(tokens * shape.stride()).unwrap();
    let scales = sim.alloc(tokens * shape.scales_stride() * 8).unwrap();
    let op = Encode {
        x,
        norm,
        rows: None,
        tokens,
        columns,
        shape,
        values,
        scales,
    };
    launch(sim, &op.launch().unwrap());
    (values, scales)
}

/// How rows come to a product.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    /// Each block encodes them.
    Plain,
    Encoded,
    /// For the products of Hopper.
    Tiles,
}

/// `tokens` rows `x`, normed if there is a weight, as a product with `weights` takes them.
pub(super) fn rows(
    sim: &mut dyn Launcher,
    form: Form,
    weights: Packed,
    x: Memory,
    tokens: usize,
    norm: Option<Memory>,
) -> Rows {
    let (shape, columns) = (EncodedShape::of(weights), weights.columns);
    let norm = norm.map(|norm| (norm, EPS));
    match form {
        Form::Plain => Rows::Plain { x, norm },
        Form::Encoded => {
            let (values, scales) = encode(sim, shape, x, tokens, columns, norm);
            Rows::Encoded { values, scales }
        }
        Form::Tiles => {
            let values = sim.alloc(shape.tiles_bytes(tokens)).unwrap();
            let scales = sim.alloc(tokens * shape.scales_stride() * 8).unwrap();
            let op = Encode {
                x,
                norm,
                rows: None,
                tokens,
                columns,
                shape,
                values,
                scales,
            };
            launch(sim, &EncodeSm90(op).launch().unwrap());
            Rows::Tiles { values, scales }
        }
    }
}

/// The rows as the tensor cores see them, in f64.
pub(super) fn as_encoded(on: &mut On<'_>, matrix: &Matrix, x: &[f32]) -> Vec<f64> {
    let columns = matrix.shape.columns;
    let tokens = x.len() / columns;
    let shape = EncodedShape::of(matrix.shape);
    let (values, scales): (Vec<u8>, Vec<f32>) = on.once(|sim| {
        let x = put(sim, x);
        let (values, scales) = encode(sim, shape, x, tokens, columns, None);
        (
            get(sim, values, tokens * shape.stride()),
            get(sim, scales, tokens * shape.scales_stride() * 2),
        )
    });
    (0..tokens)
        .flat_map(|t| {
            decoded(
                shape.encoding,
                columns,
                &values[t * shape.stride()..],
                &scales[t * shape.scales_stride() * 2..],
            )
        })
        .collect()
}

pub fn rows_are_encoded_to_the_precision_of_their_kind(on: &mut On<'_>) {
    for (encoding, blocks, columns, bound) in [
        (Encoding::Int8, 20, 610, 6e-3),
        (Encoding::Bf16, 20, 610, 3e-3),
        (Encoding::F16, 20, 610, 4e-4),
    ] {
        let mut random = Random(11);
        let (tokens, shape) = (3, EncodedShape { encoding, blocks });
        let mut x = random.numbers(4 * columns, 3.0);
        // A row of zeros and one of tiny numbers.
        x[..columns].fill(0.0);
        x[columns..2 * columns].iter_mut().for_each(|x| *x *= 1e-30);
        let weight = random.numbers(columns, 1.0);
        for norm in [false, true] {
            let bytes = on.run(|sim| {
                let (x, w) = (put(sim, &x), put(sim, &weight));
                let rows = put(sim, &[0u32, 1, 3]);
                let values = sim.alloc(tokens * shape.stride()).unwrap();
                let scales = sim.alloc(tokens * shape.scales_stride() * 8).unwrap();
                sim.clear(scales).unwrap();
                let op = Encode {
                    x,
                    norm: norm.then_some((w, EPS)),
                    rows: Some((rows, 4)),
                    tokens,
                    columns,
                    shape,
                    values,
                    scales,
                };
                launch(sim, &op.launch().unwrap());
                let mut bytes: Vec<u8> = get(sim, values, values.bytes());
                bytes.extend(get::<u8>(sim, scales, scales.bytes()));
                bytes
            });
            let (values, scales) = bytes.split_at(tokens * shape.stride());
            let scales: Vec<f32> = bytemuck::pod_collect_to_vec(scales);
            for (token, row) in [0, 1, 3].into_iter().enumerate() {
                let x = &x[row * columns..(row + 1) * columns];
                let want: Vec<f64> = if norm {
                    normed(x, &weight)
                } else {
                    x.iter().map(|x| f64::from(*x)).collect()
                };
                let values = &values[token * shape.stride()..(token + 1) * shape.stride()];
                let stride = shape.scales_stride() * 2;
                let scales = &scales[token * stride..(token + 1) * stride];
                let got: Vec<f64> = decoded(encoding, columns, values, scales);
                if row == 0 {
                    assert!(got.iter().all(|v| *v == 0.0));
                } else if !(row == 1 && encoding == Encoding::Bf16 && !norm) {
                    let apart: f64 = got.iter().zip(&want).map(|(g, w)| (g - w).powi(2)).sum();
                    let size: f64 = want.iter().map(|w| w * w).sum();
                    assert!((apart / size).sqrt() < bound, "{encoding:?} {row} {norm}");
                }
                if encoding == Encoding::Int8 {
                    for (b, scale) in scales.chunks_exact(2).enumerate() {
                        let sum: i32 = values[b * 32..b * 32 + 32]
                            .iter()
                            .map(|q| i32::from(*q as i8))
                            .sum();
                        assert_eq!(scale[1], scale[0] * sum as f32);
                    }
                }
                assert!(values[columns * encoding.bytes()..].iter().all(|v| *v == 0));
            }
        }
    }
}
