//! Each primitive of `device.cuh` on the simulator against its definition.

#![allow(clippy::unwrap_used, reason = "a failing test may panic")]

mod support;

use half::{bf16, f16};
use kernels::{
    launch::Launcher,
    pack::{e4m3, e4m3_value},
};
use kernels_sim::{Order, SimLauncher};
use support::{Random, get, in_each_order, put};

/// Runs a kernel on eight words a thread.
fn run(name: &str, input: &[[u32; 8]]) -> Vec<[u32; 8]> {
    in_each_order(|sim| {
        let (x, y) = (put(sim, input), sim.alloc(size_of_val(input)).unwrap());
        sim.clear(y).unwrap();
        let params = [x.address(), y.address()];
        sim.run(
            name,
            [1; 3],
            input.len() as u32,
            0,
            bytemuck::cast_slice(&params),
        )
        .unwrap();
        get(sim, y, input.len())
    })
}

fn words(random: &mut Random, threads: usize) -> Vec<[u32; 8]> {
    (0..threads)
        .map(|_| std::array::from_fn(|_| random.next_u32()))
        .collect()
}

/// In the order in which a butterfly of shuffles adds.
fn butterfly(mut values: Vec<f32>, f: impl Fn(f32, f32) -> f32) -> Vec<f32> {
    for mask in [16, 8, 4, 2, 1] {
        values = (0..32).map(|i| f(values[i], values[i ^ mask])).collect();
    }
    values
}

#[test]
fn shuffles_sums_and_votes_of_two_warps() {
    let mut random = Random(1);
    let mut input = words(&mut random, 64);
    for lane in &mut input {
        for word in [2, 4, 5] {
            lane[word] = random.uniform().to_bits();
        }
        lane[3] %= 1000;
    }
    let output = run("primitive_shuffles", &input);
    for warp in 0..2 {
        let lanes = &input[warp * 32..warp * 32 + 32];
        let floats: Vec<f32> = lanes.iter().map(|l| f32::from_bits(l[2])).collect();
        let sums = butterfly(floats.clone(), |a, b| a + b);
        let most = butterfly(floats, f32::max);
        for (i, lane) in lanes.iter().enumerate() {
            let out = output[warp * 32 + i];
            assert_eq!(out[0], lanes[i ^ 5][0]);
            assert_eq!(out[1], lanes[(lane[1] as i32 % 32) as usize & 31][0]);
            let votes = (0..32).filter(|k| lanes[*k][0].is_multiple_of(3));
            assert_eq!(out[2], votes.fold(0, |bits, k| bits | 1 << k));
            assert_eq!(out[3], sums[i].to_bits());
            assert_eq!(out[4], lanes.iter().map(|l| l[3]).sum::<u32>());
            assert_eq!(out[5], most[i].to_bits());
            let dot: i32 = lane[0]
                .to_le_bytes()
                .iter()
                .zip(lane[1].to_le_bytes())
                .map(|(a, b)| i32::from(*a as i8) * i32::from(b as i8))
                .sum();
            assert_eq!(out[6] as i32, dot + lane[3] as i32);
            let [a, b, c] = [2, 4, 5].map(|k| f32::from_bits(lane[k]));
            assert_eq!(out[7], a.mul_add(b, c).to_bits());
        }
    }
}

#[test]
fn barriers_and_shared_memory_turn_a_block_around() {
    let input = words(&mut Random(2), 64);
    let mut turned = input.clone();
    turned.reverse();
    assert_eq!(run("primitive_barrier", &input), turned);
}

#[test]
fn copies_land_when_waited_for_and_are_zeros_where_there_is_nothing() {
    let input = words(&mut Random(3), 64);
    for (i, (out, mut want)) in run("primitive_copy", &input)
        .into_iter()
        .zip(input)
        .enumerate()
    {
        if i % 2 == 1 {
            want[4..].fill(0);
        }
        assert_eq!(out, want);
    }
}

#[test]
fn matrices_come_to_lanes_by_row_and_by_column() {
    let input = words(&mut Random(4), 32);
    // Matrix k, row r, column c of 16-bit numbers: lane 8 k + r put down its row.
    let number = |k: usize, r: usize, c: usize| input[8 * k + r][c / 2] >> (c % 2 * 16) & 0xffff;
    for (lane, out) in run("primitive_matrices", &input).iter().enumerate() {
        let (row, column) = (lane / 4, lane % 4 * 2);
        for k in 0..4 {
            assert_eq!(
                out[k],
                number(k, row, column) | number(k, row, column + 1) << 16
            );
            assert_eq!(
                out[4 + k],
                number(k, column, row) | number(k, column + 1, row) << 16
            );
        }
    }
}

/// A and B of a warp from the fragments of 16-bit numbers.
fn halves(input: &[[u32; 8]], number: impl Fn(u16) -> f32) -> ([[f32; 16]; 16], [[f32; 8]; 16]) {
    let (mut a, mut b) = ([[0.0; 16]; 16], [[0.0; 8]; 16]);
    for (lane, words) in input.iter().enumerate() {
        let (g, t) = (lane / 4, lane % 4);
        for e in 0..2 {
            let part = |word: u32| number((word >> (16 * e)) as u16);
            a[g][2 * t + e] = part(words[0]);
            a[g + 8][2 * t + e] = part(words[1]);
            a[g][2 * t + 8 + e] = part(words[2]);
            a[g + 8][2 * t + 8 + e] = part(words[3]);
            b[2 * t + e][g] = part(words[4]);
            b[2 * t + 8 + e][g] = part(words[5]);
        }
    }
    (a, b)
}

#[test]
fn tensor_cores_multiply_bf16_and_f16() {
    let mut random = Random(5);
    let input: Vec<[u32; 8]> = (0..32)
        .map(|_| {
            std::array::from_fn(|_| {
                // Two numbers that are small integers in both formats' halves: every sum is exact.
                let mut half = || u32::from(bf16::from_f32(random.below(9) as f32 - 4.0).to_bits());
                half() | half() << 16
            })
        })
        .collect();
    let output = run("primitive_mma_bf16", &input);
    let (a, b) = halves(&input, |bits| bf16::from_bits(bits).to_f32());
    let (fa, fb) = halves(&input, |bits| f16::from_bits(bits).to_f32());
    for (lane, out) in output.iter().enumerate() {
        for e in 0..4 {
            let (row, column) = (lane / 4 + e / 2 * 8, lane % 4 * 2 + e % 2);
            let exact: f32 = (0..16).map(|k| a[row][k] * b[k][column]).sum();
            assert_eq!(f32::from_bits(out[e]), exact);
            let more = (0..16).fold(exact, |sum, k| sum + fa[row][k] * fb[k][column]);
            assert_eq!(f32::from_bits(out[4 + e]), more);
        }
    }
}

#[test]
fn tensor_cores_multiply_int8() {
    let input = words(&mut Random(6), 32);
    let byte = |word: u32, e: usize| word.to_le_bytes()[e];
    let (mut a, mut b) = ([[0u8; 32]; 16], [[0i8; 8]; 32]);
    for (lane, words) in input.iter().enumerate() {
        let (g, t) = (lane / 4, lane % 4);
        for e in 0..4 {
            a[g][4 * t + e] = byte(words[0], e);
            a[g + 8][4 * t + e] = byte(words[1], e);
            a[g][4 * t + 16 + e] = byte(words[2], e);
            a[g + 8][4 * t + 16 + e] = byte(words[3], e);
            b[4 * t + e][g] = byte(words[4], e) as i8;
            b[4 * t + 16 + e][g] = byte(words[5], e) as i8;
        }
    }
    let both = run("primitive_mma_int8", &input);
    let half = run("primitive_mma_half", &input);
    for lane in 0..32 {
        for e in 0..4 {
            let (row, column) = (lane / 4 + e / 2 * 8, lane % 4 * 2 + e % 2);
            let signed = |k: usize| i32::from(a[row][k] as i8) * i32::from(b[k][column]);
            let unsigned = |k: usize| i32::from(a[row][k]) * i32::from(b[k][column]);
            assert_eq!(both[lane][e] as i32, (0..32).map(signed).sum::<i32>());
            assert_eq!(both[lane][4 + e] as i32, (0..32).map(unsigned).sum::<i32>());
            assert_eq!(half[lane][e] as i32, (0..16).map(signed).sum::<i32>());
        }
    }
}

#[test]
fn conversions_round_like_their_definitions() {
    let mut random = Random(7);
    for round in 0..40u32 {
        let input: Vec<[u32; 8]> = (0..64u32)
            .map(|i| {
                let x = if round < 20 {
                    random.uniform() * (random.uniform() * 12.0).exp2()
                } else {
                    // Ties, edges and what is no number.
                    let bits = [
                        0x7f80_0000,
                        0x7fc0_0001,
                        0x3f80_8000,
                        0x3f81_8000,
                        0x477f_f000,
                    ];
                    f32::from_bits(bits[(i % 5) as usize] + (round << 12) * (i % 3))
                };
                [
                    x.to_bits(),
                    random.uniform().to_bits(),
                    random.next_u32(),
                    0,
                    0,
                    0,
                    0,
                    0,
                ]
            })
            .collect();
        for (out, lane) in run("primitive_conversions", &input).iter().zip(&input) {
            let (x, y) = (f32::from_bits(lane[0]), f32::from_bits(lane[1]));
            let same = |got: f32, want: f32| {
                assert!(
                    got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
                    "{x}: {got} {want}"
                );
            };
            same(
                bf16::from_bits(out[0] as u16).to_f32(),
                bf16::from_f32(x).to_f32(),
            );
            assert_eq!(out[0] >> 16, u32::from(bf16::from_f32(y).to_bits()));
            same(
                f16::from_bits(out[1] as u16).to_f32(),
                f16::from_f32(x).to_f32(),
            );
            assert_eq!(out[1] >> 16, u32::from(f16::from_f32(y).to_bits()));
            same(
                f32::from_bits(out[2]),
                f16::from_bits(lane[0] as u16).to_f32(),
            );
            same(e4m3_value(out[3] as u8), e4m3_value(e4m3(x)));
            let bytes = lane[2].to_le_bytes();
            same(f32::from_bits(out[4]), e4m3_value(bytes[0]));
            for (i, byte) in bytes.iter().enumerate() {
                let want = e4m3_value(*byte);
                if !want.is_nan() {
                    let half = out[5 + i / 2] >> (i % 2 * 16);
                    same(f16::from_bits(half as u16).to_f32() * 256.0, want);
                }
            }
            for (i, byte) in bytes[..2].iter().enumerate() {
                let want = e4m3_value(*byte);
                if !want.is_nan() {
                    same(bf16::from_bits((out[7] >> (i * 16)) as u16).to_f32(), want);
                }
            }
        }
    }
}

#[test]
fn atomics_give_every_ticket_once() {
    for order in Order::EACH {
        let mut sim = SimLauncher::new(order);
        let memory = sim.alloc(48).unwrap();
        sim.clear(memory).unwrap();
        let tickets = sim.alloc(4 * 64 * 4).unwrap();
        let part = |at| memory.part(at, 16).unwrap().address();
        let params = [part(0), part(16), part(32), tickets.address()];
        sim.run(
            "primitive_atomics",
            [4, 1, 1],
            64,
            0,
            bytemuck::cast_slice(&params),
        )
        .unwrap();
        let mut drawn: Vec<u32> = get(&mut sim, tickets, 256);
        drawn.sort_unstable();
        assert!(drawn.into_iter().eq(0..256));
        let words: Vec<u64> = get(&mut sim, memory, 6);
        // The largest of i * 7 % 101 is 100; the last i that has it is 173.
        assert_eq!((words[0], words[2], words[4]), (256, 100, 100 << 32 | 173));
    }
}
