//! The rules of README, "How it works", that the compiler does not keep: which way crates depend, and which modules
//! know no I/O.

#![expect(clippy::expect_used, reason = "the helpers are tests too")]

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(ROOT)
        .output()
        .expect("cargo runs");
    serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON")
}

#[test]
fn crates_depend_one_way() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    let own = |name: &Value| {
        let name = name.as_str().unwrap_or_default();
        name.strip_prefix("codex-bridge")
            .map(|short| short.trim_start_matches('-').to_owned())
    };
    let edges: BTreeSet<(String, String)> = packages
        .iter()
        .flat_map(|package| {
            let from = own(&package["name"]);
            package["dependencies"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(move |dependency| Some((from.clone()?, own(&dependency["name"])?)))
        })
        .collect();
    let allowed = [
        ("", "protocol"),
        ("", "backend"),
        ("backend", "protocol"),
        ("backend", "kernels"),
        ("backend", "kernels-sim"),
        ("kernels-sim", "kernels"),
        ("e2e", "protocol"),
        // Compares the engine's numbers with llama.cpp's.
        ("e2e", "backend"),
        // Its own tests, with the feature `testing`.
        ("backend", "backend"),
    ];
    let stray: Vec<_> = edges
        .iter()
        // A crate may name itself, to have a feature on in its own tests.
        .filter(|(from, to)| from != to && !allowed.contains(&(from.as_str(), to.as_str())))
        .collect();
    assert!(
        edges.contains(&(String::new(), "protocol".to_owned())),
        "{edges:?}"
    );
    assert!(stray.is_empty(), "{stray:?}");
}

/// Normal dependencies, those of tests apart.
fn dependencies_of(metadata: &Value, package: &str) -> BTreeSet<String> {
    let packages = metadata["packages"].as_array().expect("packages");
    let package = packages
        .iter()
        .find(|found| found["name"] == package)
        .expect("the package");
    package["dependencies"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|dependency| dependency["kind"].is_null())
        .filter_map(|dependency| dependency["name"].as_str())
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_engine_knows_neither_http_nor_configuration_files() {
    let metadata = metadata();
    for (package, forbidden) in [
        (
            "codex-bridge-backend",
            &["warp", "hyper", "reqwest", "http", "config", "clap", "toml"][..],
        ),
        (
            "codex-bridge-protocol",
            &["warp", "hyper", "reqwest", "http", "config", "tokio"],
        ),
    ] {
        let found = dependencies_of(&metadata, package);
        assert!(found.contains("serde_json"), "{found:?}");
        for name in forbidden {
            assert!(!found.contains(*name), "{package} depends on {name}");
        }
    }
}

#[test]
fn one_module_of_the_bridge_names_the_engine() {
    let source = Path::new(ROOT).join("bridge/src");
    let mut namers = BTreeSet::new();
    for file in rust_files(&source) {
        let text = fs::read_to_string(&file).expect("a readable source file");
        if text.contains("backend::") || text.contains("codex_bridge_backend") {
            let place = file.strip_prefix(&source).expect("below the source");
            namers.insert(place.display().to_string());
        }
    }
    let stray: Vec<_> = namers
        .iter()
        .filter(|place| !place.starts_with("upstream/bundled"))
        .collect();
    assert!(namers.contains("upstream/bundled.rs"), "{namers:?}");
    assert!(stray.is_empty(), "{stray:?}");
}

#[test]
fn translation_and_rewriting_know_no_io() {
    const IO: [&str; 8] = [
        "tokio", "warp", "reqwest", "hyper", "std::net", "std::fs",
        // They do it for others.
        "upstream", "server",
    ];
    let source = Path::new(ROOT).join("bridge/src");
    let mut checked = 0;
    for place in [
        "translate.rs",
        "translate",
        "stream/fault.rs",
        "stream/form.rs",
        "stream/guard.rs",
        "stream/incoming.rs",
        "stream/items.rs",
        "stream/lifecycle.rs",
        "stream/order.rs",
        "stream/out.rs",
        "stream/parts.rs",
        "stream/peek.rs",
        "stream/resource.rs",
        "stream/rewriter.rs",
        "stream/terminal.rs",
    ] {
        for file in rust_files(&source.join(place)) {
            if file.components().any(|part| part.as_os_str() == "tests")
                || file.ends_with("tests.rs")
            {
                continue;
            }
            let text = fs::read_to_string(&file).expect("a readable source file");
            for word in IO {
                assert!(
                    !text.contains(&format!("{word}::")),
                    "{} uses {word}",
                    file.display()
                );
            }
            checked += 1;
        }
    }
    assert!(checked > 25, "{checked} files");
}

fn rust_files(place: &Path) -> Vec<std::path::PathBuf> {
    if place.is_file() {
        return vec![place.to_owned()];
    }
    let entries = fs::read_dir(place).expect("a folder of the source");
    entries
        .flat_map(|entry| {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                rust_files(&path)
            } else {
                vec![path]
            }
        })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}
