use std::collections::BTreeMap;

use pretty_assertions::assert_eq;

use super::*;

fn contents() -> [(&'static str, String); 2] {
    [("a", "new a".to_owned()), ("b", "new b".to_owned())]
}

/// Every name in the directory with its text; a directory has none.
fn listing(directory: &Path) -> BTreeMap<String, Option<String>> {
    fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            (
                entry.file_name().into_string().unwrap(),
                fs::read_to_string(entry.path()).ok(),
            )
        })
        .collect()
}

fn files(expected: &[(&str, &str)]) -> BTreeMap<String, Option<String>> {
    expected
        .iter()
        .map(|(name, text)| ((*name).to_owned(), Some((*text).to_owned())))
        .collect()
}

#[test]
fn the_directory_is_created_and_holds_only_the_files() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("new/folder");
    write_all(&directory, &contents(), false).unwrap();
    assert_eq!(
        listing(&directory),
        files(&[("a", "new a"), ("b", "new b")])
    );
}

#[test]
fn nothing_is_written_where_a_file_exists_and_each_is_named() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("b"), "old b").unwrap();
    let error = write_all(root.path(), &contents(), false).unwrap_err();
    let path = root.path().join("b");
    assert_eq!(
        error.to_string(),
        format!(
            "nothing written: {} is already there; --force replaces",
            path.display()
        )
    );
    assert_eq!(listing(root.path()), files(&[("b", "old b")]));
}

#[test]
fn force_replaces_and_leaves_no_old_copy() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("b"), "old b").unwrap();
    write_all(root.path(), &contents(), true).unwrap();
    assert_eq!(
        listing(root.path()),
        files(&[("a", "new a"), ("b", "new b")])
    );
}

#[test]
fn a_rename_that_fails_takes_the_earlier_ones_back() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("a"), "old a").unwrap();
    // A directory cannot be moved over the name reserved for the old file.
    fs::create_dir(root.path().join("b")).unwrap();
    let error = write_all(root.path(), &contents(), true).unwrap_err();
    assert!(
        matches!(&error, Error::Write { path, .. } if *path == root.path().join("b")),
        "{error}"
    );
    let mut expected = files(&[("a", "old a")]);
    expected.insert("b".to_owned(), None);
    assert_eq!(listing(root.path()), expected);
}
