//! Models in several files, as `gguf-split` makes them: `NAME-00001-of-00003.gguf` has the metadata, every file a share of the tensors and the keys
//! `split.no` (from 0), `split.count` and `split.tensors.count`.

use std::path::{Path, PathBuf};

use super::metadata::Metadata;
use crate::model::error::Fault;

const MOST_PARTS: usize = 1000;

/// The paths of all parts, `first` among them.
pub(super) fn parts(first: &Path, metadata: &Metadata<'_>) -> Result<Vec<PathBuf>, Fault> {
    let parts = metadata.count("split.count")?.unwrap_or(1) as usize;
    if parts <= 1 {
        return Ok(vec![first.to_owned()]);
    }
    if parts > MOST_PARTS {
        return Err(Fault::new(
            "split.count",
            parts,
            format_args!("up to {MOST_PARTS}"),
        ));
    }
    let name = first
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    if let Some(number @ 1..) = metadata.count("split.no")? {
        return Err(Fault::new(
            "split.no",
            format_args!("part {} of {parts}", u64::from(number) + 1),
            "the first part of a split model: name that file instead",
        ));
    }
    let Some(stem) = name.strip_suffix(&suffix(0, parts)) else {
        return Err(Fault::new(
            "file name",
            name,
            format_args!(
                "names that end in {} for the first of {parts} parts",
                suffix(0, parts)
            ),
        ));
    };
    Ok((0..parts)
        .map(|part| first.with_file_name(stem.to_owned() + &suffix(part, parts)))
        .collect())
}

fn suffix(part: usize, parts: usize) -> String {
    format!("-{:05}-of-{parts:05}.gguf", part + 1)
}

/// Is a file really part `number` of `parts`?
pub(super) fn check(metadata: &Metadata<'_>, number: usize, parts: usize) -> Result<(), Fault> {
    for (key, expected) in [("split.no", number), ("split.count", parts)] {
        let found = metadata.count(key)?;
        if found.map(|found| found as usize) != Some(expected) {
            let found = found.map_or("nothing".to_owned(), |found| found.to_string());
            return Err(Fault::new(key, found, expected));
        }
    }
    Ok(())
}

/// Did all parts together bring the tensors that the first announced?
pub(super) fn all_there(metadata: &Metadata<'_>, found: usize) -> Result<(), Fault> {
    let key = "split.tensors.count";
    match metadata.count(key)? {
        Some(announced) if announced as usize != found => Err(Fault::new(
            key,
            format_args!("{announced} tensors announced, {found} in the parts"),
            "models whose parts are all there",
        )),
        _ => Ok(()),
    }
}
