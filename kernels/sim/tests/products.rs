//! The products of a layer against f64, for every format, in three thread orders with equal bits, and with equal bits whatever else is in the batch.

#![allow(clippy::unwrap_used, reason = "a failing test may panic")]

mod support;

use half::{bf16, f16};
use kernels::{
    launch::{Launcher, Memory},
    ops::{Embed, Encode, EncodedShape, GateUp, Input, Matvec, Rows},
    pack::{Encoding, Format, Packed, gate_up_row},
};
use kernels_sim::{Order, SimLauncher};
use support::{Random, distance, get, in_each_order, launch, numbers_of, put, random_row};

const EPS: f32 = 1e-5;

/// A matrix as the file has it.
struct Matrix {
    shape: Packed,
    rows: Vec<Vec<u8>>,
}

impl Matrix {
    fn random(random: &mut Random, format: Format, rows: usize, columns: usize) -> Matrix {
        Matrix {
            shape: Packed::new(format, rows, columns).unwrap(),
            rows: (0..rows)
                .map(|_| random_row(random, format, columns))
                .collect(),
        }
    }

    fn packed(&self) -> Vec<u8> {
        self.shape
            .pack_ordered(|row| self.rows.get(row).map(Vec::as_slice))
    }

    fn numbers(&self, row: usize) -> Vec<f64> {
        numbers_of(self.shape.format, self.shape.columns, &self.rows[row])
    }

    /// `[tokens][rows]`
    fn times(&self, x: &[f64]) -> Vec<f64> {
        let rows: Vec<Vec<f64>> = (0..self.rows.len()).map(|r| self.numbers(r)).collect();
        x.chunks_exact(self.shape.columns)
            .flat_map(|x| {
                rows.iter()
                    .map(move |row| row.iter().zip(x).map(|(a, b)| a * b).sum())
            })
            .collect()
    }
}

/// Every format with column counts that are no multiples of its records, where it has such.
fn shapes() -> Vec<(Format, usize)> {
    Format::ALL
        .into_iter()
        .flat_map(|format| match format.block_columns() {
            1 => vec![(format, 576), (format, 80)],
            32 => vec![(format, 576), (format, 96)],
            _ => vec![(format, 768)],
        })
        .collect()
}

/// The root mean square norm in f64.
fn normed(x: &[f32], weight: &[f32]) -> Vec<f64> {
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

/// Encodes rows on the simulator.
fn encode(
    sim: &mut SimLauncher,
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

#[test]
fn rows_are_encoded_to_the_precision_of_their_kind() {
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
            let bytes = in_each_order(|sim| {
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

/// `W x` of encoded rows, on one device.
fn product(sim: &mut SimLauncher, matrix: &Matrix, x: &[f32], add: Option<&[f32]>) -> Vec<f32> {
    let (columns, rows) = (matrix.shape.columns, matrix.shape.rows);
    let tokens = x.len() / columns;
    let weights = put(sim, &matrix.packed());
    let x = put(sim, x);
    let (values, scales) = encode(
        sim,
        EncodedShape::of(matrix.shape),
        x,
        tokens,
        columns,
        None,
    );
    let out = match add {
        Some(add) => put(sim, add),
        None => sim.alloc(tokens * rows * 4).unwrap(),
    };
    let op = Matvec {
        input: Input {
            shape: matrix.shape,
            weights,
            rows: Rows::Encoded { values, scales },
            tokens,
        },
        out,
        add: add.is_some(),
    };
    launch(sim, &op.launch().unwrap());
    get(sim, out, tokens * rows)
}

/// The rows as the tensor cores see them, in f64.
fn as_encoded(matrix: &Matrix, x: &[f32]) -> Vec<f64> {
    let sim = &mut SimLauncher::new(Order::Forward);
    let columns = matrix.shape.columns;
    let tokens = x.len() / columns;
    let shape = EncodedShape::of(matrix.shape);
    let x = put(sim, x);
    let (values, scales) = encode(sim, shape, x, tokens, columns, None);
    let values: Vec<u8> = get(sim, values, tokens * shape.stride());
    let scales: Vec<f32> = get(sim, scales, tokens * shape.scales_stride() * 2);
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

#[test]
fn products_of_every_format_match_f64_in_every_order() {
    for (format, columns) in shapes() {
        let mut random = Random(21);
        // 40 rows: the last tile is half empty. 3 tokens: most of a fragment is empty.
        let matrix = Matrix::random(&mut random, format, 40, columns);
        let x = random.numbers(3 * columns, 1.0);
        let got = in_each_order(|sim| product(sim, &matrix, &x, None));
        let want = matrix.times(&as_encoded(&matrix, &x));
        let apart = distance(&got, &want);
        assert!(apart < 1e-5, "{format:?} x {columns}: {apart}");
        // And the encoding itself costs little.
        let exact: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
        let apart = distance(&got, &matrix.times(&exact));
        assert!(apart < 1e-2, "{format:?} x {columns}: {apart}");
    }
}

#[test]
fn the_residual_is_added() {
    let mut random = Random(22);
    let matrix = Matrix::random(&mut random, Format::Q4_1, 48, 576);
    let (x, residual) = (random.numbers(2 * 576, 1.0), random.numbers(2 * 48, 1.0));
    let sim = &mut SimLauncher::new(Order::Forward);
    let plain = product(sim, &matrix, &x, None);
    let got = in_each_order(|sim| product(sim, &matrix, &x, Some(&residual)));
    for ((got, plain), residual) in got.iter().zip(plain).zip(residual) {
        assert_eq!(*got, residual + plain);
    }
}

#[test]
fn a_tokens_bits_do_not_depend_on_its_company() {
    for (format, columns) in shapes() {
        let mut random = Random(23);
        let rows = 80;
        let matrix = Matrix::random(&mut random, format, rows, columns);
        let x = random.numbers(201 * columns, 1.0);
        let sim = &mut SimLauncher::new(Order::Forward);
        // Two blocks of a prompt's product with a ragged end, two of the next, one of the narrowest.
        let prompt = in_each_order(|sim| product(sim, &matrix, &x, None));
        for (first, tokens) in [(0, 37), (130, 64), (0, 1), (7, 1), (127, 2), (200, 1)] {
            let part = &x[first * columns..(first + tokens) * columns];
            let alone = product(sim, &matrix, part, None);
            let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert!(
                bits(&alone) == bits(&prompt[first * rows..(first + tokens) * rows]),
                "{format:?} {tokens} tokens from {first}"
            );
        }
    }
}

#[test]
fn rows_encoded_in_the_prologue_give_the_bits_of_rows_encoded_before() {
    for (format, columns) in shapes() {
        let mut random = Random(24);
        let matrix = Matrix::random(&mut random, format, 24, columns);
        let (x, weight) = (
            random.numbers(3 * columns, 2.0),
            random.numbers(columns, 1.0),
        );
        let run = |sim: &mut SimLauncher, before: bool| {
            let (weights, x, w) = (put(sim, &matrix.packed()), put(sim, &x), put(sim, &weight));
            let norm = Some((w, EPS));
            let rows = if before {
                let shape = EncodedShape::of(matrix.shape);
                let (values, scales) = encode(sim, shape, x, 3, columns, norm);
                Rows::Encoded { values, scales }
            } else {
                Rows::Plain { x, norm }
            };
            let out = sim.alloc(3 * 24 * 4).unwrap();
            let input = Input {
                shape: matrix.shape,
                weights,
                rows,
                tokens: 3,
            };
            let op = Matvec {
                input,
                out,
                add: false,
            };
            launch(sim, &op.launch().unwrap());
            get::<f32>(sim, out, 3 * 24)
        };
        let before = run(&mut SimLauncher::new(Order::Forward), true);
        let fused = in_each_order(|sim| run(sim, false));
        assert_eq!(before, fused, "{format:?}");
        let apart = distance(&fused, &matrix.times(&normed(&x, &weight)));
        assert!(apart < 1e-2, "{format:?}: {apart}");
    }
}

#[test]
fn gate_and_up_match_f64_in_every_order() {
    for (format, columns) in shapes() {
        let mut random = Random(25);
        let ffn = 20;
        let [gate, up] = [0, 1].map(|_| Matrix::random(&mut random, format, ffn, columns));
        let shape = Packed::new(format, ffn.div_ceil(8) * 16, columns).unwrap();
        let packed = shape.pack_ordered(|place| {
            let (matrix, row) = gate_up_row(place);
            [&gate, &up][matrix].rows.get(row).map(Vec::as_slice)
        });
        let x = random.numbers(2 * columns, 3.0);
        let got = in_each_order(|sim| {
            let (weights, x) = (put(sim, &packed), put(sim, &x));
            let out = sim.alloc(2 * ffn * 4).unwrap();
            let rows = Rows::Plain { x, norm: None };
            let input = Input {
                shape,
                weights,
                rows,
                tokens: 2,
            };
            launch(sim, &GateUp { input, out, ffn }.launch().unwrap());
            get::<f32>(sim, out, 2 * ffn)
        });
        let x = as_encoded(&gate, &x);
        let want: Vec<f64> = gate
            .times(&x)
            .iter()
            .zip(up.times(&x))
            .map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up)
            .collect();
        let apart = distance(&got, &want);
        assert!(apart < 1e-5, "{format:?} x {columns}: {apart}");
    }
}

#[test]
fn embeddings_are_the_numbers_of_the_file() {
    for (format, columns) in shapes() {
        let mut random = Random(26);
        let matrix = Matrix::random(&mut random, format, 37, columns);
        let ids = [36u32, 0, 9, 17, 36, 24];
        let got = in_each_order(|sim| {
            let weights = put(sim, &matrix.packed());
            let x = sim.alloc(ids.len() * columns * 4).unwrap();
            let op = Embed {
                shape: matrix.shape,
                weights,
                ids: put(sim, &ids),
                tokens: ids.len(),
                x,
            };
            launch(sim, &op.launch().unwrap());
            get::<f32>(sim, x, ids.len() * columns)
        });
        let want: Vec<f64> = ids
            .iter()
            .flat_map(|id| matrix.numbers(*id as usize))
            .collect();
        let apart = distance(&got, &want);
        assert!(apart < 1e-6, "{format:?} x {columns}: {apart}");
    }
}

#[test]
fn buffers_that_are_too_short_are_refused() {
    let shape = Packed::new(Format::Bf16, 32, 64).unwrap();
    let sim = &mut SimLauncher::new(Order::Forward);
    let (weights, short) = (sim.alloc(shape.bytes()).unwrap(), sim.alloc(252).unwrap());
    let input = |weights, x| Input {
        shape,
        weights,
        rows: Rows::Plain { x, norm: None },
        tokens: 1,
    };
    let refused = |input, out| {
        let op = Matvec {
            input,
            out,
            add: false,
        };
        op.launch().unwrap_err().to_string()
    };
    let long = sim.alloc(256).unwrap();
    assert_eq!(
        refused(input(weights, short), long),
        "x has 252 bytes; 256 are needed"
    );
    assert_eq!(
        refused(input(long, long), long),
        "weights has 256 bytes; 4096 are needed"
    );
    assert_eq!(
        refused(input(weights, long), weights.part(0, 64).unwrap()),
        "out has 64 bytes; 128 are needed"
    );
}
