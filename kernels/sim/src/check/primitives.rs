//! Each primitive of `device.cuh` against its definition.

use half::{bf16, f16};
use kernels::{
    launch::Launch,
    pack::{e4m3, e4m3_value},
    source::{Kernel, Primitive},
};

use super::{On, get, put, random::Random};

/// Runs a kernel on eight words a thread.
fn run(on: &mut On<'_>, primitive: Primitive, input: &[[u32; 8]]) -> Vec<[u32; 8]> {
    on.run(|sim| {
        let (x, y) = (put(sim, input), sim.alloc(size_of_val(input)).unwrap());
        sim.clear(y).unwrap();
        let params = [x.address(), y.address()];
        let launch = Launch::new(Kernel::Primitive(primitive), [1; 3], 0, params);
        assert_eq!(launch.threads as usize, input.len());
        sim.launch(&launch).unwrap();
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

pub fn shuffles_sums_and_votes_of_two_warps(on: &mut On<'_>) {
    let mut random = Random(1);
    let mut input = words(&mut random, 64);
    for lane in &mut input {
        for word in [2, 4, 5] {
            lane[word] = random.uniform().to_bits();
        }
        lane[3] %= 1000;
    }
    let output = run(on, Primitive::Shuffles, &input);
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

pub fn barriers_and_shared_memory_turn_a_block_around(on: &mut On<'_>) {
    let input = words(&mut Random(2), 64);
    let mut turned = input.clone();
    turned.reverse();
    assert_eq!(run(on, Primitive::Barrier, &input), turned);
}

pub fn copies_land_when_waited_for_and_are_zeros_where_there_is_nothing(on: &mut On<'_>) {
    let input = words(&mut Random(3), 64);
    for (i, (out, mut want)) in run(on, Primitive::Copy, &input)
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

pub fn matrices_come_to_lanes_by_row_and_by_column(on: &mut On<'_>) {
    let input = words(&mut Random(4), 32);
    // Matrix k, row r, column c of 16-bit numbers: lane 8 k + r put down its row.
    let number = |k: usize, r: usize, c: usize| input[8 * k + r][c / 2] >> (c % 2 * 16) & 0xffff;
    for (lane, out) in run(on, Primitive::Matrices, &input).iter().enumerate() {
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

pub fn tensor_cores_multiply_bf16_and_f16(on: &mut On<'_>) {
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
    let output = run(on, Primitive::MmaBf16, &input);
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

pub fn tensor_cores_multiply_int8(on: &mut On<'_>) {
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
    let both = run(on, Primitive::MmaInt8, &input);
    let half = run(on, Primitive::MmaHalf, &input);
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

pub fn conversions_round_like_their_definitions(on: &mut On<'_>) {
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
        for (out, lane) in run(on, Primitive::Conversions, &input).iter().zip(&input) {
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

pub fn functions_are_exact_or_as_near_as_they_say(on: &mut On<'_>) {
    let mut random = Random(9);
    let input: Vec<[u32; 8]> = (0..64)
        .map(|_| {
            let mut words = std::array::from_fn(|_| random.next_u32());
            words[0] = (random.uniform() * 40.0).to_bits();
            words[1] = (random.uniform() * 3.0).to_bits();
            words
        })
        .collect();
    for (out, lane) in run(on, Primitive::Functions, &input).iter().zip(&input) {
        let (x, y) = (f32::from_bits(lane[0]), f32::from_bits(lane[1]));
        let near = |got: u32, want: f64, bound: f64| {
            let got = f64::from(f32::from_bits(got));
            assert!((got - want).abs() <= bound, "{x}: {got} {want}");
        };
        let power = f64::from(x).exp2();
        near(out[0], power, power * 2f64.powi(-21));
        let log = f64::from(x.abs()).log2();
        near(out[1], log, 2f64.powi(-21) * log.abs().max(1.0));
        assert_eq!(f32::from_bits(out[2]), x / y);
        assert_eq!(f32::from_bits(out[3]), x.abs().sqrt());
        assert_eq!(out[4] as i32, x.round_ties_even() as i32);
        assert_eq!(out[5], lane[2].count_ones());
        assert_eq!(out[6], lane[6]);
        let sum = lane[5].wrapping_add(lane[3]).wrapping_add(lane[7]);
        assert_eq!(out[7], sum);
    }
}

/// Of everything but what is only near by its definition; without NaN, whose payload is anybody's, and with sums of products that are exact.
pub fn bits_are_those_of_the_simulator(on: &mut On<'_>) {
    let exact = [
        Primitive::Shuffles,
        Primitive::Barrier,
        Primitive::Copy,
        Primitive::Matrices,
        Primitive::MmaBf16,
        Primitive::MmaInt8,
        Primitive::MmaHalf,
        Primitive::Conversions,
    ];
    for primitive in exact {
        let mut random = Random(10);
        let threads = Kernel::Primitive(primitive).threads() as usize;
        for _ in 0..20 {
            let mut input: Vec<[u32; 8]> = (0..threads)
                .map(|_| match primitive {
                    Primitive::MmaBf16 => std::array::from_fn(|_| {
                        let mut half =
                            || u32::from(bf16::from_f32(random.below(9) as f32 - 4.0).to_bits());
                        half() | half() << 16
                    }),
                    Primitive::Shuffles | Primitive::Conversions => std::array::from_fn(|_| {
                        (random.uniform() * (random.uniform() * 14.0).exp2()).to_bits()
                            & 0xffff_efff
                    }),
                    _ => std::array::from_fn(|_| random.next_u32()),
                })
                .collect();
            // A word that is summed up.
            input.iter_mut().for_each(|lane| lane[3] %= 1000);
            let got = run(on, primitive, &input);
            let want = run(&mut On::Simulator, primitive, &input);
            assert!(got == want, "{primitive:?}");
        }
    }
}

pub fn atomics_give_every_ticket_once(on: &mut On<'_>) {
    // Who draws which ticket is chance: they are sorted.
    let words = on.run(|sim| {
        let memory = sim.alloc(48).unwrap();
        sim.clear(memory).unwrap();
        let tickets = sim.alloc(4 * 64 * 4).unwrap();
        let part = |at| memory.part(at, 16).unwrap().address();
        let params = [part(0), part(16), part(32), tickets.address()];
        let kernel = Kernel::Primitive(Primitive::Atomics);
        sim.launch(&Launch::new(kernel, [4, 1, 1], 0, params))
            .unwrap();
        let mut drawn: Vec<u32> = get(sim, tickets, 256);
        drawn.sort_unstable();
        assert!(drawn.into_iter().eq(0..256));
        get::<u64>(sim, memory, 6)
    });
    // The largest of i * 7 % 101 is 100; the last i that has it is 173.
    assert_eq!((words[0], words[2], words[4]), (256, 100, 100 << 32 | 173));
}
