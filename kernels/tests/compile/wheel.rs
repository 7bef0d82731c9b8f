//! NVIDIA's compilers from their PyPI packages, each installed once into `.cache/` of the project.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

/// A file of a package, given as `name==version`. `None`, said aloud, where there is no pip or no network.
pub(crate) fn file(package: &str, path: &str) -> Option<PathBuf> {
    let cache = cache();
    let folder = cache.join(package);
    fs::create_dir_all(&cache).unwrap();
    let lock = File::create(cache.join("wheels.lock")).unwrap();
    lock.lock().unwrap();
    if !folder.exists() {
        eprintln!("installing {package} (once)");
        let part = cache.join("wheel.part");
        let _ = fs::remove_dir_all(&part);
        let pip = Command::new("python3")
            .args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"])
            .arg(&part)
            .arg(package)
            .output();
        match pip {
            Ok(output) if output.status.success() => fs::rename(&part, &folder).unwrap(),
            Ok(output) => {
                let why = String::from_utf8_lossy(&output.stderr);
                eprintln!("SKIPPED: pip cannot install {package}:\n{why}");
                return None;
            }
            Err(error) => {
                eprintln!("SKIPPED: python3 -m pip, which installs {package}: {error}");
                return None;
            }
        }
    }
    let file = folder.join(path);
    assert!(file.exists(), "{package} holds no {path}");
    Some(file)
}

/// Where tests keep what is dear to make again.
pub(crate) fn cache() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache")
}
