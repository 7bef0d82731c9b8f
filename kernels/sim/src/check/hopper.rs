//! What only Hopper has, against the kernels that every target has: the same sums in the same order.
//!
//! The simulator's tensor cores add in one order, so the bits are the same there. Whether those of a GPU are is for a GPU to say; they are near in any case.

use half::{bf16, f16};
use kernels::{
    launch::Launch,
    pack::Format,
    source::{Kernel, Primitive},
};

use super::{
    On, attention, bits, distance,
    encode::{Form, as_encoded},
    get,
    matrix::Matrix,
    products::{GateUpWeights, product},
    put, qkv,
    random::Random,
};

const PLAIN: [Format; 3] = [Format::Bf16, Format::F16, Format::Fp8];

pub fn four_warps_multiply_a_tile_that_the_memory_engine_brought(on: &mut On<'_>) {
    let mut random = Random(8);
    // Small integers in both formats' halves: every sum is exact.
    let mut pair = || {
        let mut half = || u32::from(bf16::from_f32(random.below(9) as f32 - 4.0).to_bits());
        half() | half() << 16
    };
    let a: Vec<[u32; 8]> = (0..128).map(|_| std::array::from_fn(|_| pair())).collect();
    let tiles: Vec<u32> = (0..2 * 1024).map(|_| pair()).collect();
    let out: Vec<u32> = on.run(|sim| {
        let (a, tiles) = (put(sim, &a), put(sim, &tiles));
        let out = sim.alloc(128 * 2 * 64 * 4).unwrap();
        let params = [a.address(), tiles.address(), out.address()];
        let kernel = Kernel::Primitive(Primitive::Group);
        sim.launch(&Launch::new(kernel, [1; 3], 0, params)).unwrap();
        get(sim, out, 128 * 2 * 64)
    });
    let halves = |word: u32| [word as u16, (word >> 16) as u16];
    for (kind, number) in [(|x| bf16::from_bits(x).to_f32()) as fn(u16) -> f32, |x| {
        f16::from_bits(x).to_f32()
    }]
    .into_iter()
    .enumerate()
    {
        // [64 rows][32 along the sum], [32 along the sum][128 columns]
        let (mut first, mut second) = (vec![[0.0; 32]; 64], vec![[0.0; 128]; 32]);
        for (thread, words) in a.iter().enumerate() {
            let (row, t) = (thread / 32 * 16 + thread % 32 / 4, thread % 4);
            for (i, word) in words.iter().enumerate() {
                let k = i / 4 * 16 + i % 4 / 2 * 8 + 2 * t;
                for (e, half) in halves(*word).into_iter().enumerate() {
                    first[row + i % 2 * 8][k + e] = number(half);
                }
            }
        }
        for (i, word) in tiles.iter().enumerate() {
            let (tile, group, half, column, k) =
                (i / 1024, i / 64 % 16, i / 32 % 2, i / 4 % 8, i % 4 * 2);
            for (e, bits) in halves(*word).into_iter().enumerate() {
                second[tile * 16 + half * 8 + k + e][group * 8 + column] = number(bits);
            }
        }
        for thread in 0..128 {
            for i in 0..64 {
                let row = thread / 32 * 16 + thread % 32 / 4 + i % 4 / 2 * 8;
                let column = i / 4 * 8 + thread % 4 * 2 + i % 2;
                let want: f32 = (0..32).map(|k| first[row][k] * second[k][column]).sum();
                let got = f32::from_bits(out[(thread * 2 + kind) * 64 + i]);
                assert_eq!(got, want, "row {row}, column {column}");
            }
        }
    }
}

pub fn products_of_tiles_are_those_of_rows(on: &mut On<'_>) {
    for format in PLAIN {
        // Records in odd and even number, fewer than slices; tiles that fill two blocks and a half; a ragged end of tokens.
        for (columns, rows, tokens) in [(576, 136, 133), (80, 40, 7), (320, 24, 128)] {
            let mut random = Random(51);
            let matrix = Matrix::random(&mut random, format, rows, columns);
            let x = random.numbers(tokens * columns, 1.0);
            let add = random.numbers(tokens * rows, 1.0);
            let tiles = on.run(|sim| product(sim, &matrix, &x, Form::Tiles, Some(&add)));
            let want: Vec<f64> = matrix
                .times(&as_encoded(on, &matrix, &x))
                .iter()
                .zip(&add)
                .map(|(product, add)| product + f64::from(*add))
                .collect();
            let apart = distance(&tiles, &want);
            assert!(apart < 1e-5, "{format:?} x {columns}: {apart}");
            if on.simulated() {
                let plain = on.once(|sim| product(sim, &matrix, &x, Form::Encoded, Some(&add)));
                assert!(bits(&tiles) == bits(&plain), "{format:?} x {columns}");
            }
        }
    }
}

pub fn gate_and_up_of_tiles_are_those_of_rows(on: &mut On<'_>) {
    for format in PLAIN {
        let mut random = Random(52);
        let (columns, ffn, tokens) = (576, 76, 130);
        let weights = GateUpWeights::random(&mut random, format, ffn, columns);
        let x = random.numbers(tokens * columns, 3.0);
        let tiles = on.run(|sim| weights.run(sim, &x, Form::Tiles));
        let rows = on.once(|sim| weights.run(sim, &x, Form::Encoded));
        if on.simulated() {
            assert!(bits(&tiles) == bits(&rows), "{format:?}");
        }
        let rows: Vec<f64> = rows.iter().map(|x| f64::from(*x)).collect();
        let apart = distance(&tiles, &rows);
        assert!(apart < 1e-5, "{format:?}: {apart}");
    }
}

pub fn queries_keys_and_values_of_tiles_are_those_of_rows(on: &mut On<'_>) {
    qkv::check(on, true);
}

pub fn attention_of_prompts_is_that_of_every_target(on: &mut On<'_>) {
    attention::check_hopper(on);
}
