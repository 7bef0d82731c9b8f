//! The names a model can have.
//!
//! ```text
//! ./demo.gguf   /models/Demo-8B/   ~/demo.gguf                      a path
//! hf:OWNER/REPO[@REVISION]/FILE[#sha256=HEX]                        a file of a repository on Hugging Face
//! pip:PACKAGE==VERSION/FILE[#sha256=HEX]                            a file in a Python package
//! smollm2-135m                                                      one of the aliases
//! ```

use std::path::{Path, PathBuf};

use super::{
    alias,
    digest::{self, Digest},
    error::Error,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    Path(PathBuf),
    Hub(HubFile),
    Package(PackageFile),
}

/// A file of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubFile {
    pub owner: String,
    pub repository: String,
    pub revision: String,
    /// With `/` between folders.
    pub file: String,
    pub sha256: Option<Digest>,
}

/// A file inside a wheel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageFile {
    pub package: String,
    pub version: String,
    pub file: String,
    pub sha256: Option<Digest>,
}

impl Reference {
    /// # Errors
    /// The text is of none of the forms above.
    pub fn read(text: &str, home: Option<&Path>) -> Result<Self, Error> {
        let wrong = |problem: String| Error::Reference {
            reference: text.to_owned(),
            problem,
        };
        let text = alias::named(text).map_or(text, |alias| alias.reference);
        if let Some(rest) = text.strip_prefix("hf:") {
            return hub(rest).map(Self::Hub).map_err(wrong);
        }
        if let Some(rest) = text.strip_prefix("pip:") {
            return package(rest).map(Self::Package).map_err(wrong);
        }
        let path = match (text.strip_prefix("~/"), home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => PathBuf::from(text),
        };
        let looks_like_a_path = text.contains(std::path::is_separator) || text.ends_with(".gguf");
        if looks_like_a_path || path.exists() {
            return Ok(Self::Path(path));
        }
        Err(wrong(format!(
            "it is no file or folder here, and no alias; the aliases are {}; hf:OWNER/REPO/FILE and \
             pip:PACKAGE==VERSION/FILE name others",
            alias::names()
        )))
    }
}

fn hub(text: &str) -> Result<HubFile, String> {
    const FORM: &str = "hf:OWNER/REPO/FILE is the form";
    let (text, sha256) = checksum(text)?;
    let mut parts = text.splitn(3, '/');
    let (Some(owner), Some(repository), Some(file)) = (parts.next(), parts.next(), parts.next())
    else {
        return Err(FORM.to_owned());
    };
    let (repository, revision) = repository.split_once('@').unwrap_or((repository, "main"));
    for part in [owner, repository, revision] {
        plain(part)?;
    }
    let file = plain_path(file)?;
    if let Some((base, number, count)) = file.strip_suffix(".gguf").and_then(shard)
        && number != 1
    {
        return Err(format!(
            "this is part {number} of {count}; name the first one, {base}-00001-of-{count:05}.gguf"
        ));
    }
    Ok(HubFile {
        owner: owner.to_owned(),
        repository: repository.to_owned(),
        revision: revision.to_owned(),
        file,
        sha256,
    })
}

fn package(text: &str) -> Result<PackageFile, String> {
    const FORM: &str = "pip:PACKAGE==VERSION/FILE is the form";
    let (text, sha256) = checksum(text)?;
    let (requirement, file) = text.split_once('/').ok_or(FORM)?;
    let (package, version) = requirement.split_once("==").ok_or(FORM)?;
    plain(package)?;
    plain(version)?;
    Ok(PackageFile {
        package: package.to_owned(),
        version: version.to_owned(),
        file: plain_path(file)?,
        sha256,
    })
}

fn checksum(text: &str) -> Result<(&str, Option<Digest>), String> {
    let Some((text, fragment)) = text.split_once('#') else {
        return Ok((text, None));
    };
    let digest = fragment.strip_prefix("sha256=").and_then(digest::from_hex);
    match digest {
        Some(digest) => Ok((text, Some(digest))),
        None => Err(format!(
            "#{fragment} is no checksum; #sha256= and 64 hexadecimal digits are"
        )),
    }
}

/// A name that can stand in a URL and in a path, and on a command line, and mean nothing else there.
fn plain(name: &str) -> Result<(), String> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "._+-".contains(letter);
    if name.is_empty() || name.starts_with(['.', '-']) || !name.chars().all(fits) {
        return Err(format!(
            "{name:?} must be made of letters, digits, `.`, `_`, `+` and `-`"
        ));
    }
    Ok(())
}

fn plain_path(path: &str) -> Result<String, String> {
    path.split('/').try_for_each(plain)?;
    Ok(path.to_owned())
}

/// `demo-00002-of-00003` → `("demo", 2, 3)`.
pub(super) fn shard(stem: &str) -> Option<(&str, u32, u32)> {
    let (rest, count) = stem.rsplit_once("-of-")?;
    let (base, number) = rest.rsplit_once('-')?;
    let five = |digits: &str| {
        (digits.len() == 5 && digits.bytes().all(|byte| byte.is_ascii_digit()))
            .then(|| digits.parse().ok())
            .flatten()
    };
    Some((base, five(number)?, five(count)?))
}

/// More parts than any model has.
const MOST_PARTS: u32 = 1000;

impl HubFile {
    /// The file itself, or every part of a model that is split.
    ///
    /// # Errors
    /// It claims to have more parts than any model has.
    pub(super) fn parts(&self) -> Result<Vec<Self>, Error> {
        let Some((base, _, count)) = self.file.strip_suffix(".gguf").and_then(shard) else {
            return Ok(vec![self.clone()]);
        };
        if count == 0 || count > MOST_PARTS {
            return Err(Error::Reference {
                reference: self.file.clone(),
                problem: format!("it has {count} parts; 1 to {MOST_PARTS} are allowed"),
            });
        }
        let part = |number| Self {
            file: format!("{base}-{number:05}-of-{count:05}.gguf"),
            // A checksum in the name is that of the named file.
            sha256: self.sha256.filter(|_| number == 1),
            ..self.clone()
        };
        Ok((1..=count).map(part).collect())
    }

    /// Where it is kept, below the folder of models.
    pub(super) fn place(&self) -> PathBuf {
        [
            "hf",
            &self.owner,
            &self.repository,
            &self.revision,
            &self.file,
        ]
        .iter()
        .collect()
    }
}

impl PackageFile {
    pub(super) fn place(&self) -> PathBuf {
        let release = format!("{}-{}", self.package, self.version);
        ["pip", &release, &self.file].iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    fn read(text: &str) -> Result<Reference, String> {
        Reference::read(text, Some(Path::new("/home/a"))).map_err(|error| error.to_string())
    }

    #[test]
    fn every_form_is_read() {
        assert_eq!(
            read("hf:acme/Demo-GGUF@v1.2/q4/demo.gguf"),
            Ok(Reference::Hub(HubFile {
                owner: "acme".into(),
                repository: "Demo-GGUF".into(),
                revision: "v1.2".into(),
                file: "q4/demo.gguf".into(),
                sha256: None,
            }))
        );
        let hex = "ab".repeat(32);
        assert_eq!(
            read(&format!("pip:demo-model==0.1/demo/m.gguf#sha256={hex}")),
            Ok(Reference::Package(PackageFile {
                package: "demo-model".into(),
                version: "0.1".into(),
                file: "demo/m.gguf".into(),
                sha256: Some([0xab; 32]),
            }))
        );
        assert_eq!(
            read("~/m.gguf"),
            Ok(Reference::Path("/home/a/m.gguf".into()))
        );
        assert_eq!(read("m.gguf"), Ok(Reference::Path("m.gguf".into())));
    }

    #[test]
    fn a_name_that_could_leave_the_store_or_be_an_option_is_refused() {
        for text in [
            "hf:a/b",
            "hf:a/b/../../c",
            "hf:a/..@x/c",
            "hf:a/b//c",
            "hf:a/b@/c",
            "hf:-a/b/c",
            "pip:p/m.gguf",
            "pip:p==1",
            "pip:--index-url==1/m.gguf",
            "pip:p==1/../m.gguf",
            "pip:p==1; import os/m.gguf",
            "hf:a/b/c#sha256=12",
            "hf:a/b/c#md5=12",
            "hf:a/b/demo-00002-of-00003.gguf",
            "no-such-alias",
        ] {
            let problem = read(text).unwrap_err();
            assert!(
                problem.starts_with(&format!("{text:?} names no model: "))
                    && !problem.contains('\n'),
                "{problem}"
            );
        }
    }

    #[test]
    fn the_first_part_stands_for_all() {
        let Ok(Reference::Hub(first)) = read("hf:a/b/demo-00001-of-00003.gguf") else {
            panic!("a hub file");
        };
        let parts = first.parts().unwrap();
        let files: Vec<&str> = parts.iter().map(|part| part.file.as_str()).collect();
        assert_eq!(
            files,
            [
                "demo-00001-of-00003.gguf",
                "demo-00002-of-00003.gguf",
                "demo-00003-of-00003.gguf"
            ]
        );
    }
}
