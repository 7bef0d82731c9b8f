//! What a test run is given from outside: how often to try, and recordings beside the checkout.

use std::path::{Path, PathBuf};

/// How often a seeded check is repeated: `usual`, or what `CODEX_BRIDGE_FUZZ_RUNS` asks for.
///
/// # Panics
/// If that is not a number, lest a long run be short.
pub fn fuzz_runs(usual: u64) -> u64 {
    let Some(asked) = std::env::var_os("CODEX_BRIDGE_FUZZ_RUNS") else {
        return usual;
    };
    let asked = asked.to_string_lossy();
    match asked.parse() {
        Ok(runs) => runs,
        Err(error) => panic!("CODEX_BRIDGE_FUZZ_RUNS is {asked:?}: {error}"),
    }
}

/// The recorded requests of the real Codex: `../shared/fixtures/codex` beside the checkout, or one level higher for a work tree. Whoever goes without says so.
pub fn recordings() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    [
        "../../shared/fixtures/codex",
        "../../../shared/fixtures/codex",
    ]
    .iter()
    .map(|place| root.join(place))
    .find(|place| place.is_dir())
}
