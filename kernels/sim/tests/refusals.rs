//! Launches that do not fit their buffers are refused before they run.

#![allow(clippy::unwrap_used, reason = "a failing test may panic")]

use kernels::{
    launch::Launcher,
    ops::{Input, Matvec, Rows},
    pack::{Format, Packed},
};
use kernels_sim::{Order, SimLauncher};

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
