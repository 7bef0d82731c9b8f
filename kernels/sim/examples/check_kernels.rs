//! Every check of the kernels, one line each, on the simulator: the dry run of what a machine with a GPU runs (`check_kernels` of the backend).
//!
//! `cargo run --release -p codex-bridge-kernels-sim --example check_kernels -- [part of a name]`

use std::{io, process::ExitCode};

use kernels_sim::check::{On, report};

fn main() -> io::Result<ExitCode> {
    let part = std::env::args().nth(1).unwrap_or_default();
    let failed = report(&mut On::Simulator, &part, true, &mut io::stdout())?;
    println!("{failed} failed");
    Ok(ExitCode::from(u8::from(failed > 0)))
}
