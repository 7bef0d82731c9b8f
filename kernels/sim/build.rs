//! Compiles the kernels, and the broken ones that the tests plant, as plain C++ for this machine.

use std::path::{Path, PathBuf};

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let cuda = root.join("../cuda");
    let mut sources: Vec<PathBuf> = Vec::new();
    for folder in [&cuda, &root.join("cpp"), &root.join("planted")] {
        println!("cargo:rerun-if-changed={}", folder.display());
        let entries = std::fs::read_dir(folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            println!("cargo:rerun-if-changed={}", path.display());
            if path.extension().is_some_and(|e| e == "cu" || e == "cc") {
                sources.push(path);
            }
        }
    }
    sources.sort();
    // Fused multiplication and addition only where a kernel asks for it, as on the GPU. -march=native: fma() is one instruction.
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++17")
        .opt_level(1)
        .define("KERNELS_SIMULATED", None)
        .include(&cuda)
        .include(root.join("cpp"))
        .flag("-xc++")
        .flag_if_supported("-march=native")
        .flag("-ffp-contract=off")
        .flag("-fno-strict-aliasing")
        .flag("-fno-omit-frame-pointer")
        // Kernels register themselves, so nobody refers to their objects.
        .link_lib_modifier("+whole-archive")
        .files(sources);
    // With the sanitizers: bad addresses on stacks and in arrays are reported, undefined behaviour is an illegal instruction.
    println!("cargo:rerun-if-env-changed=KERNELS_SANITIZED");
    println!("cargo:rustc-check-cfg=cfg(kernels_sanitized)");
    if std::env::var_os("KERNELS_SANITIZED").is_some() {
        build
            .flag("-fsanitize=address,undefined")
            .flag("-fsanitize-undefined-trap-on-error");
        println!("cargo:rustc-link-lib=dylib=asan");
        println!("cargo:rustc-cfg=kernels_sanitized");
    }
    build.compile("kernels_simulated");
}
