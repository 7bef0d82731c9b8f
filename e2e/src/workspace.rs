//! Where things lie: the workspace, its ignored cache, and the profile directory this program was built into.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

/// The checkout this crate was built from.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// The git-ignored folder for everything fetched from a registry.
pub fn cache() -> PathBuf {
    root().join(".cache").join("e2e")
}

/// `target/<profile>`, found from the running executable: `deps/x-hash` for a test, `x` itself for a binary.
pub fn profile_dir() -> Result<PathBuf> {
    let executable = env::current_exe().context("the path of the running executable")?;
    let folder = executable
        .parent()
        .context("the executable lies in no folder")?;
    let folder = if folder.ends_with("deps") {
        folder.parent().unwrap_or(folder)
    } else {
        folder
    };
    Ok(folder.to_path_buf())
}
