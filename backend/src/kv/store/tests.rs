use std::{collections::BTreeMap, fs::OpenOptions, os::unix::fs::symlink, process::Command};

use pretty_assertions::assert_eq;
use tempfile::TempDir;

use super::*;

const PAGE_BYTES: usize = 40;

fn key(model: &str) -> Key {
    Key::new(model, "test", PAGE_BYTES)
}

fn open(dir: &TempDir, max_bytes: u64) -> Store {
    Store::open(dir.path(), max_bytes, key("model")).unwrap()
}

fn tokens(seed: u32, pages: usize) -> Vec<u32> {
    let count = (pages * PAGE_TOKENS) as u32;
    (0..count).map(|i| seed * 1000 + i).collect()
}

/// Bytes that tell which tokens they are for.
fn page(tokens: &[u32], index: usize) -> Vec<u8> {
    let hash = xxh3_64(bytemuck::cast_slice(&tokens[..(index + 1) * PAGE_TOKENS]));
    hash.to_le_bytes().repeat(PAGE_BYTES / 8)
}

fn save(store: &mut Store, tokens: &[u32]) {
    let mut writer = store.writer(tokens).unwrap().unwrap();
    for index in 0..tokens.len() / PAGE_TOKENS {
        writer.page(&page(tokens, index)).unwrap();
    }
    store.finish(writer).unwrap();
}

/// How many right pages come, and whether the end was clean; a broken file is discarded.
fn load(store: &mut Store, tokens: &[u32], first: usize) -> Option<(usize, bool)> {
    let mut reader = store.reader(tokens, first)?;
    let mut count = first;
    loop {
        match reader.page() {
            Ok(Some(bytes)) => {
                assert_eq!(bytes, page(tokens, count));
                count += 1;
            }
            Ok(None) => return Some((count, true)),
            Err(error) => {
                store.discard(reader.path(), &error);
                return Some((count, false));
            }
        }
    }
}

fn names(dir: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(dir.path()).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "lock")
        .collect();
    names.sort();
    names
}

fn make_pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

fn only_file(dir: &TempDir) -> PathBuf {
    let names = names(dir);
    assert_eq!(names.len(), 1, "{names:?}");
    dir.path().join(&names[0])
}

#[test]
fn what_was_stored_is_found_again_after_a_restart_up_to_where_tokens_differ() {
    let dir = TempDir::new().unwrap();
    let all = tokens(1, 10);
    let mut store = open(&dir, 1 << 20);
    assert!(store.reader(&all, 0).is_none());
    save(&mut store, &all);
    drop(store);
    let mut store = open(&dir, 1 << 20);
    let longer = [all.as_slice(), &[7; 100]].concat();
    assert_eq!(load(&mut store, &longer, 0), Some((10, true)));
    assert_eq!(load(&mut store, &longer, 4), Some((10, true)));
    let mut other = longer;
    other[PAGE_TOKENS * 6 + 3] += 1;
    assert_eq!(load(&mut store, &other, 0), Some((6, true)));
    other[0] += 1;
    assert_eq!(load(&mut store, &other, 0), None);
}

#[test]
fn a_flipped_bit_anywhere_gives_only_right_pages_and_the_file_is_removed() {
    let dir = TempDir::new().unwrap();
    let all = tokens(1, 4);
    save(&mut open(&dir, 1 << 20), &all);
    let path = only_file(&dir);
    let whole = fs::read(&path).unwrap();
    for bit in (0..8 * whole.len()).step_by(7) {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, bytes).unwrap();
        let mut store = open(&dir, 1 << 20);
        // `load` checks every page that comes.
        let loaded = load(&mut store, &all, 0);
        assert!(
            loaded.is_none_or(|(_, clean)| !clean),
            "bit {bit} went unseen: {loaded:?}"
        );
        // Without its magic it could be anybody's.
        let is_ours = bit / 8 >= 7;
        assert_eq!(names(&dir).is_empty(), is_ours, "bit {bit}");
        assert_eq!(store.index().longest(&all), None);
    }
}

#[test]
fn a_file_cut_at_any_length_is_removed() {
    let dir = TempDir::new().unwrap();
    let all = tokens(1, 3);
    save(&mut open(&dir, 1 << 20), &all);
    let path = only_file(&dir);
    let whole = fs::read(&path).unwrap();
    for length in (0..whole.len()).step_by(3) {
        fs::write(&path, &whole[..length]).unwrap();
        let mut store = open(&dir, 1 << 20);
        assert_eq!(load(&mut store, &all, 0), None);
        assert_eq!(names(&dir).is_empty(), length >= 7, "{length}");
    }
    fs::write(&path, [whole.as_slice(), b"more"].concat()).unwrap();
    assert_eq!(load(&mut open(&dir, 1 << 20), &all, 0), None);
}

#[test]
fn a_file_broken_while_the_store_is_open_is_noticed() {
    let dir = TempDir::new().unwrap();
    let all = tokens(1, 3);
    let mut store = open(&dir, 1 << 20);
    save(&mut store, &all);
    let file = OpenOptions::new()
        .write(true)
        .open(only_file(&dir))
        .unwrap();
    file.set_len(200).unwrap();
    assert_eq!(load(&mut store, &all, 0), None);
    assert!(names(&dir).is_empty());
}

#[test]
fn a_kill_while_writing_leaves_the_old_files_and_a_leftover_that_goes() {
    let dir = TempDir::new().unwrap();
    let (old, new) = (tokens(1, 3), tokens(2, 3));
    let mut store = open(&dir, 1 << 20);
    save(&mut store, &old);
    let mut writer = store.writer(&new).unwrap().unwrap();
    writer.page(&page(&new, 0)).unwrap();
    // As after a kill: nothing is cleaned up.
    std::mem::forget(writer);
    drop(store);
    assert_eq!(names(&dir).len(), 2);
    let mut store = open(&dir, 1 << 20);
    assert_eq!(names(&dir).len(), 1);
    assert_eq!(load(&mut store, &old, 0), Some((3, true)));
    assert_eq!(load(&mut store, &new, 0), None);
}

#[test]
fn a_writer_given_up_leaves_nothing() {
    let dir = TempDir::new().unwrap();
    let mut store = open(&dir, 1 << 20);
    let all = tokens(1, 3);
    let mut writer = store.writer(&all).unwrap().unwrap();
    writer.page(&page(&all, 0)).unwrap();
    assert!(store.finish(writer).is_err());
    assert!(names(&dir).is_empty());
}

#[test]
fn the_least_recently_used_files_go_when_the_cap_is_reached() {
    let dir = TempDir::new().unwrap();
    let all: Vec<Vec<u32>> = (0..4).map(|seed| tokens(seed, 3)).collect();
    let each = file::size(&key("model"), 3 * PAGE_TOKENS);
    let mut store = open(&dir, 3 * each + 10);
    let hour = |hours: u64| SystemTime::now() - Duration::from_secs(3600 * hours);
    for (index, tokens) in all[..3].iter().enumerate() {
        save(&mut store, tokens);
        let (path, _) = store.index().longest(tokens).unwrap();
        let path = path.to_path_buf();
        let file = OpenOptions::new().append(true).open(&path).unwrap();
        file.set_modified(hour(5 - index as u64)).unwrap();
    }
    drop(store);
    let mut store = open(&dir, 3 * each + 10);
    // Reading the oldest makes it the newest.
    assert_eq!(load(&mut store, &all[0], 0), Some((3, true)));
    save(&mut store, &all[3]);
    let found = |store: &Store| {
        let is_there = |tokens: &Vec<u32>| store.index().longest(tokens).is_some();
        all.iter().map(is_there).collect::<Vec<_>>()
    };
    assert_eq!(found(&store), [true, false, true, true]);
    assert!(store.bytes() <= 3 * each + 10);
    drop(store);
    // A lower cap is kept from the start.
    let mut store = open(&dir, 2 * each);
    assert_eq!(found(&store), [true, false, false, true]);
    assert!(store.writer(&tokens(9, 7)).unwrap().is_none());
}

#[test]
fn files_of_another_model_stay_and_count_and_those_of_another_build_go() {
    let dir = TempDir::new().unwrap();
    let all = tokens(1, 3);
    save(&mut open(&dir, 1 << 20), &all);
    let mut other = Store::open(dir.path(), 1 << 20, key("another")).unwrap();
    assert_eq!(load(&mut other, &all, 0), None);
    assert_eq!(other.bytes(), file::size(&key("model"), 3 * PAGE_TOKENS));
    drop(other);
    assert_eq!(load(&mut open(&dir, 1 << 20), &all, 0), Some((3, true)));
    let rebuilt = Key {
        build: 5,
        ..key("model")
    };
    drop(Store::open(dir.path(), 1 << 20, rebuilt).unwrap());
    assert!(names(&dir).is_empty());
}

/// Everything in the directory, with what a file holds.
fn contents(dir: &TempDir) -> BTreeMap<String, Vec<u8>> {
    let read = |name: &String| fs::read(dir.path().join(name)).unwrap();
    names(dir)
        .into_iter()
        .map(|name| (name.clone(), read(&name)))
        .collect()
}

#[test]
fn files_that_are_not_ours_are_left_alone_whatever_their_names() {
    let dir = TempDir::new().unwrap();
    for (name, bytes) in [
        ("notes.txt", "mine"),
        ("film.part", "half a download"),
        ("store.kv", "a database of another program"),
        ("empty.kv", ""),
        // Our magic under another name: a copy somebody made.
        ("copy.kv", "cbkv\0\0\0\x01 and more"),
        // Our name, somebody else's file.
        (
            "0123456789abcdef.kv",
            "not a header at all, but long enough to be one",
        ),
        ("0123456789abcdee.kv", ""),
        ("0123456789ABCDEF.part", "upper case"),
        ("0123456789abcdef0.part", "a digit too many"),
        ("0123456789abcdef.part.bak", "a copy"),
    ] {
        fs::write(dir.path().join(name), bytes).unwrap();
    }
    let before = contents(&dir);
    let mut store = open(&dir, 1 << 20);
    assert_eq!(store.bytes(), 0);
    let all = tokens(1, 3);
    save(&mut store, &all);
    drop(store);
    assert_eq!(load(&mut open(&dir, 1 << 20), &all, 0), Some((3, true)));
    // With no room for anything it gives up its own.
    drop(open(&dir, 10));
    assert_eq!(contents(&dir), before);
}

#[test]
fn what_the_store_made_and_nobody_can_read_is_removed() {
    let dir = TempDir::new().unwrap();
    for (name, bytes) in [
        ("0123456789abcdef.part", ""),
        ("0123456789abcdee.part", "begun"),
        ("0123456789abcded.kv", "cbkv\0\0\0\x01"),
        ("0123456789abcdec.kv", "cbkv\0\0\0\x07 of another version"),
    ] {
        fs::write(dir.path().join(name), bytes).unwrap();
    }
    drop(open(&dir, 1 << 20));
    assert!(names(&dir).is_empty());
}

#[test]
fn links_and_pipes_and_folders_are_not_touched_and_keep_nobody_waiting() {
    let dir = TempDir::new().unwrap();
    let elsewhere = TempDir::new().unwrap();
    let target = elsewhere.path().join("theirs");
    fs::write(&target, "theirs").unwrap();
    let path = |name: &str| dir.path().join(name);
    symlink(&target, path("0123456789abcdef.kv")).unwrap();
    symlink(&target, path("0123456789abcdef.part")).unwrap();
    fs::create_dir(path("0123456789abcdee.kv")).unwrap();
    fs::create_dir(path("0123456789abcdee.part")).unwrap();
    make_pipe(&path("0123456789abcded.kv"));
    make_pipe(&path("0123456789abcded.part"));
    let before = names(&dir);
    drop(open(&dir, 10));
    assert_eq!(names(&dir), before);
    assert_eq!(fs::read(&target).unwrap(), b"theirs");
}

#[test]
fn a_stored_prefix_that_became_a_pipe_is_not_waited_for() {
    let dir = TempDir::new().unwrap();
    let all = tokens(1, 3);
    let mut store = open(&dir, 1 << 20);
    save(&mut store, &all);
    let path = only_file(&dir);
    fs::remove_file(&path).unwrap();
    make_pipe(&path);
    assert_eq!(load(&mut store, &all, 0), None);
    assert_eq!(store.index().longest(&all), None);
    assert_eq!(only_file(&dir), path);
}

#[test]
fn a_file_is_not_written_through_a_link() {
    let dir = TempDir::new().unwrap();
    let all = tokens(1, 3);
    let mut store = open(&dir, 1 << 20);
    save(&mut store, &all);
    let part = only_file(&dir).with_extension(LEFTOVER);
    let target = dir.path().join("theirs");
    fs::write(&target, "theirs").unwrap();
    symlink(&target, &part).unwrap();
    assert!(store.writer(&all).is_err());
    assert_eq!(fs::read(&target).unwrap(), b"theirs");
    assert!(part.is_symlink());
}

#[test]
fn the_lock_is_neither_emptied_nor_followed() {
    let dir = TempDir::new().unwrap();
    let lock = dir.path().join(LOCK);
    fs::write(&lock, "a file of this name was there").unwrap();
    drop(open(&dir, 10));
    assert_eq!(fs::read(&lock).unwrap(), b"a file of this name was there");

    fs::remove_file(&lock).unwrap();
    let target = dir.path().join("theirs");
    fs::write(&target, "theirs").unwrap();
    symlink(&target, &lock).unwrap();
    let refused = Store::open(dir.path(), 10, key("model")).unwrap_err();
    let start = format!("{} cannot be the lock: ", lock.display());
    assert!(refused.to_string().starts_with(&start), "{refused}");
    assert_eq!(fs::read(&target).unwrap(), b"theirs");

    fs::remove_file(&lock).unwrap();
    make_pipe(&lock);
    assert!(Store::open(dir.path(), 10, key("model")).is_err());
}

#[test]
fn a_second_store_on_the_same_directory_is_refused() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir, 10);
    let second = Store::open(dir.path(), 10, key("model")).unwrap_err();
    assert_eq!(second.to_string(), "another process uses it");
    drop(store);
    open(&dir, 10);
}
