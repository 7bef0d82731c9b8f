//! The request side is a pure function: it knows no runtime, no HTTP, and logs nothing.

#![expect(
    clippy::unwrap_used,
    reason = "an unreadable source file is a failed test"
)]

use std::{
    fs,
    path::{Path, PathBuf},
};

#[test]
fn translate_names_no_runtime_no_http_and_no_log() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = vec![source.join("translate.rs")];
    collect(&source.join("translate"), &mut files);
    assert!(files.len() > 10);
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for foreign in ["tokio", "warp", "reqwest", "hyper", "tracing"] {
            let uses =
                text.contains(&format!("{foreign}::")) || text.contains(&format!("use {foreign}"));
            assert!(!uses, "{} uses {foreign}", file.display());
        }
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push(path);
        }
    }
}
