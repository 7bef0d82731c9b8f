//! `pull`, `inspect`, and a start that finds no model: exit statuses and the one line.

use std::fs;

use pretty_assertions::assert_eq;

use crate::{codex_bridge, told};

#[test]
fn a_name_that_means_nothing_is_status_66() {
    let listed = "the aliases are smollm2-135m, llama-3.2-1b, ";
    for arguments in [
        &["pull", "no-such-model"][..],
        &["inspect", "no-such-model"],
        &["--listen", "127.0.0.1:0", "--model", "no-such-model"],
    ] {
        let (status, stdout, stderr) = told(&codex_bridge(arguments, &[]));
        assert_eq!(
            (status, stdout.as_str()),
            (Some(66), ""),
            "{arguments:?}: {stderr}"
        );
        let last = stderr.lines().last().unwrap_or_default();
        assert!(
            last.starts_with("\"no-such-model\" names no model: ") && last.contains(listed),
            "{stderr}"
        );
    }
}

#[test]
fn a_file_that_is_not_there_is_status_66() {
    let line = "/nonexistent/m.gguf: there is no such file or folder\n";
    for command in ["pull", "inspect"] {
        assert_eq!(
            told(&codex_bridge(&[command, "/nonexistent/m.gguf"], &[])),
            (Some(66), String::new(), line.to_owned())
        );
    }
    let arguments = ["--listen", "127.0.0.1:0", "--model", "/nonexistent/m.gguf"];
    let (status, _, stderr) = told(&codex_bridge(&arguments, &[]));
    assert_eq!(status, Some(66));
    assert!(stderr.ends_with(line), "{stderr}");
}

#[test]
fn a_file_that_is_no_model_is_status_65_and_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page.gguf");
    fs::write(&path, "<!doctype html><p>404").unwrap();
    let path = path.display().to_string();
    let (status, stdout, stderr) = told(&codex_bridge(&["inspect", &path], &[]));
    assert_eq!((status, stdout.as_str()), (Some(65), ""), "{stderr}");
    assert!(
        stderr.starts_with(&path) && stderr.lines().count() == 1,
        "{stderr}"
    );
}

#[test]
fn a_path_is_pulled_from_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    fs::write(&path, "weights").unwrap();
    let path = path.display().to_string();
    assert_eq!(
        told(&codex_bridge(&["pull", &path], &[])),
        (Some(0), format!("{path}\n"), String::new())
    );
}

#[test]
fn without_a_home_there_is_no_place_for_a_model() {
    let (status, _, stderr) = told(&codex_bridge(&["pull", "smollm2-135m"], &[]));
    assert_eq!(status, Some(69));
    assert_eq!(
        stderr,
        "no place to keep models: neither XDG_DATA_HOME nor HOME is set; give the path of a file\n"
    );
}

#[test]
fn what_cannot_be_fetched_is_status_69_and_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().display().to_string();
    // Port 1 is reserved for a service that nobody runs.
    let variables = [
        ("HOME", home.as_str()),
        ("HF_ENDPOINT", "http://127.0.0.1:1"),
    ];
    let (status, stdout, stderr) = told(&codex_bridge(&["pull", "hf:a/b/m.gguf"], &variables));
    assert_eq!((status, stdout.as_str()), (Some(69), ""), "{stderr}");
    assert!(
        stderr.starts_with("http://127.0.0.1:1/a/b/resolve/main/m.gguf: cannot be reached: ")
            && stderr.lines().count() == 1,
        "{stderr}"
    );
}
