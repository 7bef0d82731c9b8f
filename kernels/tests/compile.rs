//! Every kernel compiles for every target with NVRTC, without a GPU, spills no register, and uses no more registers or shared memory than `resources.json`
//! says.
//!
//! NVRTC comes from its PyPI package, once, into `.cache/`. Sources that did not change since they last passed are not compiled again. To accept a change:
//! `UPDATE_RESOURCES=1 cargo nextest run -p codex-bridge-kernels --test compile`, and say in the commit why.

#![allow(clippy::unwrap_used, reason = "a failing test may panic")]

use std::{
    collections::BTreeMap,
    fs::{self, File},
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::Command,
};

use codex_bridge_kernels::{
    nvrtc::{Nvrtc, options},
    source::{HEADERS, Kernel, SOURCES, Source},
};

/// The release whose cubins every supported driver takes: the first that knows sm_100a and sm_120a.
const NVRTC: &str = "nvidia-cuda-nvrtc-cu12==12.8.93";
const TARGETS: [&str; 6] = ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"];
const PTX: &str = "compute_80";

/// Registers and bytes of shared memory, by kernel and target.
type Resources = BTreeMap<String, BTreeMap<String, [u32; 2]>>;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The library, installed once. `None`, said aloud, where there is no pip or no network.
fn library() -> Option<PathBuf> {
    let cache = root().join("../.cache");
    let folder = cache.join(NVRTC);
    let library = folder.join("nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
    fs::create_dir_all(&cache).unwrap();
    let lock = File::create(cache.join("nvrtc.lock")).unwrap();
    lock.lock().unwrap();
    if library.exists() {
        return Some(library);
    }
    eprintln!("installing {NVRTC} (once)");
    let part = cache.join("nvrtc.part");
    let _ = fs::remove_dir_all(&part);
    let pip = Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"])
        .arg(&part)
        .arg(NVRTC)
        .output();
    match pip {
        Ok(output) if output.status.success() => {
            fs::rename(&part, &folder).unwrap();
            Some(library)
        }
        other => {
            eprintln!("SKIPPED: NVRTC cannot be installed with pip: {other:?}");
            None
        }
    }
}

/// Of everything that decides what a source compiles to.
fn fingerprint(source: Source, target: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    for text in HEADERS.iter().chain([&source]).map(|s| s.text) {
        text.hash(&mut hasher);
    }
    (NVRTC, options(target)).hash(&mut hasher);
    hasher.finish()
}

/// What ptxas said of a source, from the cache or from a compilation.
fn log_of(nvrtc: &Nvrtc, source: Source, target: &str) -> String {
    let folder = root().join("../.cache/nvrtc-logs");
    let path = folder.join(format!(
        "{}.{target}.{:016x}",
        source.name,
        fingerprint(source, target)
    ));
    if let Ok(log) = fs::read_to_string(&path) {
        return log;
    }
    let compiled = nvrtc
        .compile(source, target)
        .unwrap_or_else(|error| panic!("{error}"));
    assert!(!compiled.image.is_empty());
    fs::create_dir_all(&folder).unwrap();
    fs::write(&path, &compiled.log).unwrap();
    compiled.log
}

/// Kernels with their registers and shared memory; fails on a spill or a stack.
fn read_log(log: &str, target: &str) -> Vec<(String, [u32; 2])> {
    let number_before = |line: &str, word: &str| -> u32 {
        let before = line.split(word).next().unwrap_or_default();
        let digits = before.split_whitespace().next_back().unwrap_or_default();
        digits.parse().unwrap_or(0)
    };
    let mut kernel = String::new();
    let mut found = Vec::new();
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("entry function '") {
            kernel = rest.split('\'').next().unwrap_or_default().to_owned();
        }
        if line.contains("bytes stack frame") {
            for word in [" bytes stack", " bytes spill stores", " bytes spill loads"] {
                let bytes = number_before(line, word);
                assert_eq!(bytes, 0, "{kernel} on {target}: {}", line.trim());
            }
        }
        if let Some((_, rest)) = line.split_once("Used ") {
            let registers = number_before(rest, " registers");
            let shared = if rest.contains(" bytes smem") {
                number_before(rest, " bytes smem")
            } else {
                0
            };
            found.push((kernel.clone(), [registers, shared]));
        }
    }
    found
}

#[test]
fn every_kernel_compiles_for_every_target_without_spills() {
    let Some(path) = library() else { return };
    let nvrtc = Nvrtc::open(&path).unwrap();
    assert_eq!(nvrtc.version().unwrap(), (12, 8));
    let mut measured = Resources::new();
    for source in SOURCES {
        log_of(&nvrtc, source, PTX);
        for target in TARGETS {
            for (kernel, resources) in read_log(&log_of(&nvrtc, source, target), target) {
                measured
                    .entry(kernel)
                    .or_default()
                    .insert(target.to_owned(), resources);
            }
        }
    }
    let mut names: Vec<String> = Kernel::all().into_iter().map(Kernel::name).collect();
    names.sort();
    assert!(
        measured.keys().eq(&names),
        "the sources hold other kernels than the table:\n{:?}\n{names:?}",
        measured.keys()
    );

    let file = root().join("resources.json");
    if std::env::var_os("UPDATE_RESOURCES").is_some() {
        fs::write(&file, written(&measured)).unwrap();
    }
    let kept = fs::read_to_string(&file).unwrap();
    let kept: Resources = serde_json::from_str(&kept).unwrap();
    for (kernel, targets) in &measured {
        for (target, [registers, shared]) in targets {
            let [most_registers, most_shared] = kept
                .get(kernel)
                .and_then(|targets| targets.get(target))
                .unwrap_or_else(|| panic!("{kernel} on {target} is not in resources.json"));
            assert!(
                registers <= most_registers && shared <= most_shared,
                "{kernel} on {target} uses {registers} registers and {shared} bytes of shared memory; \
                 resources.json has {most_registers} and {most_shared}"
            );
        }
    }
}

/// One line a kernel.
fn written(resources: &Resources) -> String {
    let lines: Vec<String> = resources
        .iter()
        .map(|(kernel, targets)| {
            let targets: Vec<String> = targets
                .iter()
                .map(|(target, [registers, shared])| {
                    format!("\"{target}\": [{registers}, {shared}]")
                })
                .collect();
            format!("  \"{kernel}\": {{{}}}", targets.join(", "))
        })
        .collect();
    format!("{{\n{}\n}}\n", lines.join(",\n"))
}
