//! The products of a layer against f64, for every format and width, and with equal bits whatever else is in the batch.

use kernels::{
    launch::Launcher,
    ops::{GateUp, Input, Matvec},
    pack::{Format, Packed, gate_up_row},
};

use super::{
    On, bits, distance,
    encode::{Form, as_encoded, normed, rows},
    get, launch,
    matrix::{Matrix, shapes},
    put,
    random::Random,
};

/// `W x`, or `add + W x`.
pub(super) fn product(
    sim: &mut dyn Launcher,
    matrix: &Matrix,
    x: &[f32],
    form: Form,
    add: Option<&[f32]>,
) -> Vec<f32> {
    let (shape, tokens) = (matrix.shape, x.len() / matrix.shape.columns);
    let weights = put(sim, &matrix.packed());
    let x = put(sim, x);
    let rows = rows(sim, form, shape, x, tokens, None);
    let out = match add {
        Some(add) => put(sim, add),
        None => sim.alloc(tokens * shape.rows * 4).unwrap(),
    };
    let input = Input {
        shape,
        weights,
        rows,
        tokens,
    };
    let add = add.is_some();
    launch(sim, &Matvec { input, out, add }.launch().unwrap());
    get(sim, out, tokens * shape.rows)
}

pub fn products_of_every_format_match_f64_in_every_order(on: &mut On<'_>) {
    for (format, columns) in shapes() {
        let mut random = Random(21);
        // 40 rows: the last tile is half empty. 3 tokens: most of a fragment is empty.
        let matrix = Matrix::random(&mut random, format, 40, columns);
        let x = random.numbers(3 * columns, 1.0);
        let got = on.run(|sim| product(sim, &matrix, &x, Form::Encoded, None));
        let want = matrix.times(&as_encoded(on, &matrix, &x));
        let apart = distance(&got, &want);
        assert!(apart < 1e-5, "{format:?} x {columns}: {apart}");
        // And the encoding itself costs little.
        let exact: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
        let apart = distance(&got, &matrix.times(&exact));
        assert!(apart < 1e-2, "{format:?} x {columns}: {apart}");
    }
}

pub fn the_residual_is_added(on: &mut On<'_>) {
    let mut random = Random(22);
    let matrix = Matrix::random(&mut random, Format::Q4_1, 48, 576);
    let (x, residual) = (random.numbers(2 * 576, 1.0), random.numbers(2 * 48, 1.0));
    let plain = on.once(|sim| product(sim, &matrix, &x, Form::Encoded, None));
    let got = on.run(|sim| product(sim, &matrix, &x, Form::Encoded, Some(&residual)));
    for ((got, plain), residual) in got.iter().zip(plain).zip(residual) {
        assert_eq!(*got, residual + plain);
    }
}

pub fn a_tokens_bits_do_not_depend_on_its_company(on: &mut On<'_>) {
    for (format, columns) in shapes() {
        let mut random = Random(23);
        let rows = 80;
        let matrix = Matrix::random(&mut random, format, rows, columns);
        let x = random.numbers(201 * columns, 1.0);
        // Two blocks of a prompt's product with a ragged end, two of the next, one of the narrowest.
        let prompt = on.run(|sim| product(sim, &matrix, &x, Form::Encoded, None));
        let apart = distance(&prompt, &matrix.times(&as_encoded(on, &matrix, &x)));
        assert!(apart < 1e-5, "{format:?} x {columns}: {apart}");
        for (first, tokens) in [(0, 37), (130, 64), (0, 1), (7, 1), (127, 2), (200, 1)] {
            let part = &x[first * columns..(first + tokens) * columns];
            let alone = on.once(|sim| product(sim, &matrix, part, Form::Encoded, None));
            assert!(
                bits(&alone) == bits(&prompt[first * rows..(first + tokens) * rows]),
                "{format:?} {tokens} tokens from {first}"
            );
        }
    }
}

pub fn rows_encoded_in_the_prologue_give_the_bits_of_rows_encoded_before(on: &mut On<'_>) {
    for (format, columns) in shapes() {
        let mut random = Random(24);
        let matrix = Matrix::random(&mut random, format, 24, columns);
        let (x, weight) = (
            random.numbers(3 * columns, 2.0),
            random.numbers(columns, 1.0),
        );
        let run = |sim: &mut dyn Launcher, form: Form| {
            let (weights, x, w) = (put(sim, &matrix.packed()), put(sim, &x), put(sim, &weight));
            let rows = rows(sim, form, matrix.shape, x, 3, Some(w));
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
        let before = on.once(|sim| run(sim, Form::Encoded));
        let fused = on.run(|sim| run(sim, Form::Plain));
        assert_eq!(before, fused, "{format:?}");
        let apart = distance(&fused, &matrix.times(&normed(&x, &weight)));
        assert!(apart < 1e-2, "{format:?}: {apart}");
    }
}

/// The weights of gate and up, apart and packed together.
pub(super) struct GateUpWeights {
    pub(super) gate: Matrix,
    pub(super) up: Matrix,
    shape: Packed,
    packed: Vec<u8>,
}

impl GateUpWeights {
    pub(super) fn random(
        random: &mut Random,
        format: Format,
        ffn: usize,
        columns: usize,
    ) -> GateUpWeights {
        let [gate, up] = [0, 1].map(|_| Matrix::random(random, format, ffn, columns));
        let shape = Packed::new(format, ffn.div_ceil(8) * 16, columns).unwrap();
        let packed = shape.pack_ordered(|place| {
            let (matrix, row) = gate_up_row(place);
            [&gate, &up][matrix].rows.get(row).map(Vec::as_slice)
        });
        GateUpWeights {
            gate,
            up,
            shape,
            packed,
        }
    }

    /// `silu(gate x) * up x`
    pub(super) fn run(&self, sim: &mut dyn Launcher, x: &[f32], form: Form) -> Vec<f32> {
        let (shape, ffn) = (self.shape, self.gate.shape.rows);
        let tokens = x.len() / shape.columns;
        let (weights, x) = (put(sim, &self.packed), put(sim, x));
        let rows = rows(sim, form, shape, x, tokens, None);
        let out = sim.alloc(tokens * ffn * 4).unwrap();
        let input = Input {
            shape,
            weights,
            rows,
            tokens,
        };
        launch(sim, &GateUp { input, out, ffn }.launch().unwrap());
        get(sim, out, tokens * ffn)
    }
}

pub fn gate_and_up_match_f64_in_every_order(on: &mut On<'_>) {
    for (format, columns) in shapes() {
        let mut random = Random(25);
        let (ffn, tokens) = (20, 133);
        let weights = GateUpWeights::random(&mut random, format, ffn, columns);
        let x = random.numbers(tokens * columns, 3.0);
        let got = on.run(|sim| weights.run(sim, &x, Form::Encoded));
        let decoded = as_encoded(on, &weights.gate, &x);
        let want: Vec<f64> = weights
            .gate
            .times(&decoded)
            .iter()
            .zip(weights.up.times(&decoded))
            .map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up)
            .collect();
        let apart = distance(&got, &want);
        assert!(apart < 1e-5, "{format:?} x {columns}: {apart}");
        // The last two, and the first twenty, by narrower blocks that encode for themselves.
        for own in [tokens - 2..tokens, 0..20] {
            let x = &x[own.start * columns..own.end * columns];
            let few = on.run(|sim| weights.run(sim, x, Form::Plain));
            let same = bits(&few) == bits(&got[own.start * ffn..own.end * ffn]);
            assert!(same, "{format:?} x {columns}: tokens {own:?}");
        }
    }
}
