//! Every kernel compiles for every target with NVRTC, without a GPU, spills no register, and uses the registers and the shared memory that `resources.json`
//! says. Those for Hopper use what only it has.
//!
//! NVRTC comes from its PyPI package. Sources that did not change since they last passed are not compiled again. To accept a change:
//! `UPDATE_RESOURCES=1 cargo nextest run -p codex-bridge-kernels --test compile`, and say in the commit why.

#![allow(clippy::unwrap_used, reason = "a failing test may panic")]

mod resources;
mod sass;
mod wheel;

use std::{
    cell::LazyCell,
    collections::BTreeMap,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
};

use codex_bridge_kernels::{
    nvrtc::{Nvrtc, options},
    source::{HEADERS, Kernel, SOURCES_SM90, Source, sources},
};

/// The release whose cubins every supported driver takes: the first that knows sm_100a and sm_120a.
const NVRTC: &str = "nvidia-cuda-nvrtc-cu12==12.8.93";
const LIBRARY: &str = "nvidia/cuda_nvrtc/lib/libnvrtc.so.12";

const TARGETS: [&str; 6] = ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"];
/// The target of `*_sm90.cu`.
const HOPPER: &str = "sm_90a";

/// A source with everything it includes.
fn with_headers(source: Source) -> Vec<Source> {
    let mut all = vec![source];
    let mut next = 0;
    while let Some(source) = all.get(next) {
        let included = HEADERS.into_iter().filter(|header| {
            source
                .text
                .contains(&format!("#include \"{}\"", header.name))
        });
        let new: Vec<Source> = included.filter(|header| !all.contains(header)).collect();
        all.extend(new);
        next += 1;
    }
    all
}

/// Of everything that decides what a source compiles to.
fn fingerprint(source: Source, target: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    for source in with_headers(source) {
        (source.name, source.text).hash(&mut hasher);
    }
    (NVRTC, options(target)).hash(&mut hasher);
    hasher.finish()
}

/// What was made of a source, from the cache or new.
fn kept(source: Source, target: &str, kind: &str, make: impl FnOnce() -> String) -> String {
    let folder = wheel::cache().join("nvrtc-logs");
    let fingerprint = fingerprint(source, target);
    let path = folder.join(format!(
        "{}.{target}.{fingerprint:016x}.{kind}",
        source.name
    ));
    if let Ok(text) = fs::read_to_string(&path) {
        return text;
    }
    let text = make();
    fs::create_dir_all(&folder).unwrap();
    fs::write(&path, &text).unwrap();
    text
}

/// Compiles all sources for a target.
fn compile(target: &str) {
    let Some(path) = wheel::file(NVRTC, LIBRARY) else {
        return;
    };
    let nvrtc = Nvrtc::open(&path).unwrap();
    assert_eq!(nvrtc.version().unwrap(), (12, 8));
    let mut measured = BTreeMap::new();
    let disassembler = if target == HOPPER {
        wheel::file(sass::PACKAGE, sass::PROGRAM)
    } else {
        None
    };
    for source in sources(target) {
        let compiled = LazyCell::new(|| {
            let compiled = nvrtc.compile(source, target);
            compiled.unwrap_or_else(|error| panic!("{error}"))
        });
        let log = kept(source, target, "log", || compiled.log.clone());
        measured.extend(resources::read_log(&log, target));
        if let Some(disassembler) = &disassembler
            && SOURCES_SM90.contains(&source)
        {
            let code = kept(source, target, "sass", || {
                sass::instructions(disassembler, source.name, &compiled.image)
            });
            check_hopper(source, &code);
        }
    }
    if !TARGETS.contains(&target) {
        // PTX has no registers yet.
        return;
    }
    let mut names: Vec<String> = Kernel::all().into_iter().map(Kernel::name).collect();
    if target == HOPPER {
        names.extend(Kernel::all_sm90().into_iter().map(Kernel::name));
    }
    names.sort();
    assert!(
        measured.keys().eq(&names),
        "the sources hold other kernels than the table:\n{:?}\n{names:?}",
        measured.keys()
    );
    if std::env::var_os("UPDATE_RESOURCES").is_some() {
        resources::update(target, &measured);
    }
    let kept = resources::read();
    for (kernel, [registers, shared]) in &measured {
        let [kept_registers, kept_shared] = kept
            .get(kernel)
            .and_then(|targets| targets.get(target))
            .unwrap_or_else(|| panic!("{kernel} on {target} is not in resources.json"));
        assert!(
            registers == kept_registers && shared == kept_shared,
            "{kernel} on {target} uses {registers} registers and {shared} bytes of shared memory; \
             resources.json has {kept_registers} and {kept_shared}"
        );
    }
}

/// The kernels of a source for Hopper use its warp groups and its memory engine.
fn check_hopper(source: Source, code: &str) {
    let used: BTreeMap<String, [u32; 2]> = code.lines().filter_map(sass::read).collect();
    let own = |kernel: &Kernel| kernel.source() == source.name;
    for kernel in Kernel::all_sm90().into_iter().filter(own) {
        let name = kernel.name();
        let [products, copies] = used.get(&name).copied().unwrap_or_default();
        match kernel {
            Kernel::EncodeSm90(_) => assert_eq!((products, copies), (0, 0), "{name}"),
            Kernel::Attention(..) => assert!(products > 0, "{name}: no HGMMA"),
            _ => assert!(
                products > 0 && copies > 0,
                "{name}: {products} HGMMA, {copies} UBLKCP"
            ),
        }
    }
}

macro_rules! targets {
    ($($test:ident: $target:literal)*) => {
        $(
            #[test]
            fn $test() {
                compile($target);
            }
        )*
    };
}
// One test a target, so that they run side by side.
targets! {
    every_kernel_compiles_for_sm_80_without_spills: "sm_80"
    every_kernel_compiles_for_sm_86_without_spills: "sm_86"
    every_kernel_compiles_for_sm_89_without_spills: "sm_89"
    every_kernel_compiles_for_sm_90a_without_spills: "sm_90a"
    every_kernel_compiles_for_sm_100a_without_spills: "sm_100a"
    every_kernel_compiles_for_sm_120a_without_spills: "sm_120a"
    every_kernel_compiles_to_ptx: "compute_80"
}

#[test]
fn the_readme_shows_the_resources() {
    // With UPDATE_RESOURCES the other tests are writing both.
    if std::env::var_os("UPDATE_RESOURCES").is_none() {
        assert_eq!(
            resources::in_readme(),
            resources::markdown(&resources::read())
        );
    }
}
