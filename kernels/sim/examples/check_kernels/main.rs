//! Every check of the kernels, one line each: primitives against their definition and, on a GPU, against the simulator bit for bit; every kernel against f64.
//!
//! It is made to be carried to a machine with a GPU, which needs the driver and nothing else:
//!
//! ```text
//! cargo build --release -p codex-bridge-kernels-sim --example check_kernels && strip target/release/examples/check_kernels
//! check_kernels compile sm_90a LIBNVRTC FOLDER    here: machine code of all kernels for an architecture, by the compiler library at LIBNVRTC
//! check_kernels gpu FOLDER [NUMBER]               there: the checks, on the GPU of this number (0) with the machine code in FOLDER
//! check_kernels simulator [NAME]                  here: the dry run, of checks whose name contains NAME
//! ```

mod gpu;

use std::{error::Error, fs, io, path::Path, process::ExitCode};

use gpu::Gpu;
use kernels::{nvrtc::Nvrtc, source::sources};
use kernels_sim::check::{On, report};

const USAGE: &str =
    "check_kernels compile ARCH LIBNVRTC FOLDER | gpu FOLDER [NUMBER] | simulator [NAME]";

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let failed = match arguments[..] {
        ["compile", arch, library, folder] => {
            compile(arch, Path::new(library), Path::new(folder))?;
            return Ok(ExitCode::SUCCESS);
        }
        ["gpu", folder] => check(Path::new(folder), 0)?,
        ["gpu", folder, number] => check(Path::new(folder), number.parse()?)?,
        ["simulator"] => report(&mut On::Simulator, "", true, &mut io::stdout())?,
        ["simulator", name] => report(&mut On::Simulator, name, true, &mut io::stdout())?,
        _ => return Err(USAGE.into()),
    };
    println!("{failed} failed");
    Ok(ExitCode::from(u8::from(failed > 0)))
}

fn compile(arch: &str, library: &Path, folder: &Path) -> Result<(), Box<dyn Error>> {
    let nvrtc = Nvrtc::open(library)?;
    fs::create_dir_all(folder)?;
    for source in sources(arch) {
        let image = nvrtc.compile(source, arch)?.image;
        fs::write(folder.join(gpu::file(source.name, arch)), &image)?;
        println!("{} for {arch}: {} bytes", source.name, image.len());
    }
    Ok(())
}

fn check(folder: &Path, number: i32) -> Result<usize, Box<dyn Error>> {
    let mut gpu = Gpu::open(folder, number)?;
    println!("{} ({})", gpu.name, gpu.arch);
    let hopper = gpu.arch == "sm_90a";
    Ok(report(
        &mut On::Device(&mut gpu),
        "",
        hopper,
        &mut io::stdout(),
    )?)
}
