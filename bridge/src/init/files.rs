//! Several files that appear together or not at all.

use std::{
    fs, io,
    io::Write as _,
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

/// Why no file was written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: cannot be used as a directory: {source}", directory.display())]
    Directory {
        directory: PathBuf,
        source: io::Error,
    },
    #[error("nothing written: {} already there; --force replaces", names(.0))]
    Exists(Vec<PathBuf>),
    #[error("nothing written: {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

fn names(paths: &[PathBuf]) -> String {
    let names: Vec<String> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let verb = if names.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", names.join(", "))
}

/// Creates the directory and writes `(name, text)` files into it.
pub(super) fn write_all(
    directory: &Path,
    contents: &[(&str, String)],
    force: bool,
) -> Result<(), Error> {
    let paths: Vec<PathBuf> = contents
        .iter()
        .map(|(name, _)| directory.join(name))
        .collect();
    // A dangling link is something that is there, too.
    let existing: Vec<PathBuf> = paths
        .iter()
        .filter(|path| path.symlink_metadata().is_ok())
        .cloned()
        .collect();
    if !force && !existing.is_empty() {
        return Err(Error::Exists(existing));
    }
    fs::create_dir_all(directory).map_err(|source| Error::Directory {
        directory: directory.to_owned(),
        source,
    })?;

    let mut ready = Vec::new();
    for (path, (_, text)) in paths.into_iter().zip(contents) {
        match temporary(directory, text) {
            Ok(file) => ready.push((path, file)),
            Err(source) => return Err(Error::Write { path, source }),
        }
    }
    let mut placed = Placed::default();
    for (path, file) in ready {
        if let Err(source) = placed.put(directory, &path, file, force) {
            placed.take_back();
            return Err(Error::Write { path, source });
        }
    }
    placed.keep();
    Ok(())
}

fn temporary(directory: &Path, text: &str) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".codex-bridge-");
    // Files that the user's other programs read, unlike a temporary file; the umask still applies.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = builder.tempfile_in(directory)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    Ok(file)
}

/// Files put in place so far, each with what it replaced.
#[derive(Default)]
struct Placed(Vec<(PathBuf, Option<PathBuf>)>);

impl Placed {
    fn put(
        &mut self,
        directory: &Path,
        path: &Path,
        file: NamedTempFile,
        force: bool,
    ) -> io::Result<()> {
        let mut replaced = None;
        if force && path.symlink_metadata().is_ok() {
            // The name is reserved by a temporary file, over which the old one moves.
            let aside = NamedTempFile::new_in(directory)?
                .into_temp_path()
                .keep()
                .map_err(io::Error::from)?;
            if let Err(error) = fs::rename(path, &aside) {
                // The reserved name goes again; if it cannot, an empty hidden file is left.
                let _ = fs::remove_file(&aside);
                return Err(error);
            }
            replaced = Some(aside);
        }
        // A file that appeared since the first look is not overwritten either.
        match file.persist_noclobber(path) {
            Ok(_) => self.0.push((path.to_owned(), replaced)),
            Err(error) => {
                if let Some(aside) = replaced {
                    fs::rename(aside, path)?;
                }
                return Err(error.error);
            }
        }
        Ok(())
    }

    /// The replaced files are no longer needed. One that cannot be removed is a hidden leftover, not a failure.
    fn keep(self) {
        for aside in self.0.into_iter().filter_map(|(_, replaced)| replaced) {
            let _ = fs::remove_file(aside);
        }
    }

    /// As far as the file system lets us: the fault that brought us here is the one to report.
    fn take_back(self) {
        for (path, replaced) in self.0.into_iter().rev() {
            let _ = match replaced {
                Some(aside) => fs::rename(aside, path),
                None => fs::remove_file(path),
            };
        }
    }
}

#[cfg(test)]
mod tests;
