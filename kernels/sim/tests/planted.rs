//! Mistakes that a kernel may have, planted one at a time: the simulator must see each.

#![allow(clippy::unwrap_used, reason = "a failing test may panic")]

use bytemuck::{Pod, Zeroable};
use kernels::launch::Launcher;
use kernels_sim::{
    Order, SimLauncher,
    check::{get, put},
};

/// Runs a planted kernel on `x[i] = i + 1` and gives `y`.
fn run(name: &str, threads: u32, order: Order) -> Result<Vec<f32>, String> {
    let mut sim = SimLauncher::new(order);
    let x: Vec<f32> = (1..=256u16).map(f32::from).collect();
    let x = put(&mut sim, &x);
    let y = sim.alloc(256 * 4).unwrap();
    let params = [x.address(), y.address()];
    sim.run(name, [1; 3], threads, 0, bytemuck::cast_slice(&params))
        .map_err(|error| error.to_string())?;
    Ok(get(&mut sim, y, 256))
}

fn fails_with(name: &str, threads: u32, words: &[&str]) {
    for order in Order::EACH {
        let error = run(name, threads, order).unwrap_err();
        for word in words {
            assert!(error.contains(word), "{order:?}: {error}");
        }
    }
}

#[test]
fn a_missing_barrier_changes_the_result_with_the_order() {
    let results = Order::EACH.map(|order| run("bug_missing_barrier", 256, order).unwrap());
    let right: Vec<f32> = (1..=256u16).rev().map(f32::from).collect();
    assert!(results.iter().all(|y| *y != right));
    let bits = results.map(|y| y.iter().map(|v| v.to_bits()).collect::<Vec<_>>());
    assert!(bits[0] != bits[1] && bits[1] != bits[2]);
}

#[test]
fn a_copy_that_is_not_waited_for_has_not_landed() {
    let y = run("bug_missing_copy_wait", 32, Order::Forward).unwrap();
    assert!(y[..128].iter().all(|v| v.is_nan()));
    let y = run("bug_early_copy_wait", 32, Order::Forward).unwrap();
    assert!(y[..128].iter().all(|v| v.is_finite()));
    assert!(y[128..].iter().all(|v| v.is_nan()));
}

#[test]
fn what_hopper_does_beside_the_threads_is_there_only_after_a_wait() {
    for order in Order::EACH {
        let y = run("bug_missing_phase_wait", 32, order).unwrap();
        assert!(y.iter().all(|v| v.is_nan()));
        let y = run("bug_missing_group_wait", 128, order).unwrap();
        for (i, (early, late)) in y[..128].iter().zip(&y[128..]).enumerate() {
            let x = (i + 1) as f32;
            assert_eq!((*early, *late), (x, x + 16.0));
        }
    }
    let error = ["deadlock", "32 at barrier_wait"];
    fails_with("bug_forgotten_arrival", 32, &error);
}

#[test]
fn lanes_that_part_are_reported() {
    fails_with(
        "bug_divergent_shuffle",
        32,
        &["deadlock", "16 at a warp operation", "16 finished"],
    );
    fails_with(
        "bug_mixed_operations",
        32,
        &["while other lanes of the warp are at"],
    );
    fails_with("bug_divergent_barrier", 64, &["deadlock"]);
}

#[test]
fn a_touch_past_the_end_is_reported_with_its_place() {
    fails_with(
        "bug_shared_overrun",
        64,
        &[
            "thread 63",
            "touches byte 256 of shared array kept of 256 bytes",
        ],
    );
    fails_with(
        "bug_buffer_overread",
        256,
        &["thread 255", "touches byte 1024 of a buffer of 1024 bytes"],
    );
    fails_with(
        "bug_buffer_overwrite",
        256,
        &["thread 255", "touches byte 1024 of a buffer of 1024 bytes"],
    );
}

#[test]
fn a_write_into_the_last_padding_is_reported() {
    let mut sim = SimLauncher::new(Order::Forward);
    let x = put(&mut sim, &[1f32; 257]);
    // 1020 bytes: the guard page begins four bytes later.
    let y = sim.alloc(255 * 4).unwrap();
    let params = [x.address(), y.address()];
    let bytes: &[u8] = bytemuck::cast_slice(&params);
    let error = sim
        .run("bug_missing_barrier", [1; 3], 256, 0, bytes)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "bug_missing_barrier: wrote byte 1023 of a buffer of 1020 bytes"
    );
}

#[test]
fn unaligned_vectors_unwritten_and_too_much_shared_memory_are_seen() {
    fails_with(
        "bug_misaligned",
        32,
        &["load16 of an address that is not a multiple of 16"],
    );
    let y = run("bug_unwritten", 32, Order::Forward).unwrap();
    assert!(y[..32].iter().all(|v| v.is_nan()));
    fails_with("bug_too_much_shared", 32, &["53248 bytes of static"]);
}

#[test]
fn pages_taken_as_they_lie_give_other_sums() {
    #[derive(Clone, Copy, Pod, Zeroable)]
    #[repr(C)]
    struct Params {
        pool: u64,
        table: u64,
        sums: u64,
        use_table: u32,
        unused: u32,
    }
    let sums = |use_table| {
        let each = Order::EACH.map(|order| {
            let sim = &mut SimLauncher::new(order);
            let numbers: Vec<u16> = (0..4u16)
                .flat_map(|page| [half::bf16::from_f32(f32::from(page)).to_bits(); 256])
                .collect();
            let (pool, table) = (put(sim, &numbers), put(sim, &[2u32, 0, 3, 1]));
            let sums = sim.alloc(16).unwrap();
            let params = Params {
                pool: pool.address(),
                table: table.address(),
                sums: sums.address(),
                use_table,
                unused: 0,
            };
            sim.run(
                "bug_wrong_page",
                [4, 1, 1],
                32,
                0,
                bytemuck::bytes_of(&params),
            )
            .unwrap();
            get::<f32>(sim, sums, 4)
        });
        assert!(each[0] == each[1] && each[1] == each[2]);
        each[0].clone()
    };
    assert_eq!(sums(1), [512.0, 0.0, 768.0, 256.0]);
    assert_eq!(sums(0), [0.0, 256.0, 512.0, 768.0]);
}

#[test]
fn launches_that_no_device_takes_are_refused() {
    let mut sim = SimLauncher::new(Order::Forward);
    let mut refused = |name: &str, grid, threads, params: &[u8]| {
        sim.run(name, grid, threads, 0, params)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refused("nothing", [1; 3], 32, &[]),
        "no kernel is called nothing"
    );
    assert!(refused("bug_unwritten", [1; 3], 33, &[0; 16]).contains("33 threads a block"));
    assert!(refused("bug_unwritten", [1; 3], 32, &[0; 15]).contains("15 bytes of parameters"));
    assert!(refused("bug_unwritten", [1, 70_000, 1], 32, &[0; 16]).contains("a grid of"));
}
