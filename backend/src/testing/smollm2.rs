//! The one real model that tests use, where the machine has it.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// SmolLM2-135M-Instruct in Q4_1: the file that `CODEX_BRIDGE_TEST_MODEL` names, or the one the end-to-end tests have installed into `.cache/e2e/llama`.
/// `None`, said aloud, where there is neither; the test then has nothing to do.
pub fn smollm2() -> Option<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let found = env::var_os("CODEX_BRIDGE_TEST_MODEL")
        .map(PathBuf::from)
        .or_else(|| {
            find(
                &workspace?.join(".cache/e2e/llama/lib"),
                "SmolLM2-135M-Instruct.Q4_1.gguf",
            )
        });
    if found.is_none() {
        println!(
            "skipped: CODEX_BRIDGE_TEST_MODEL names no SmolLM2, and the end-to-end tests have installed none"
        );
    }
    found
}

/// The first file of that name below a folder.
fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).ok()?.flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(_) if entry.file_name() == name => return Some(entry.path()),
                _ => {}
            }
        }
    }
    None
}
