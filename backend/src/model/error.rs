//! Why a model file was refused, in one line.

use std::{
    fmt::{self, Write},
    path::{Path, PathBuf},
};

/// `FILE: FIELD: found FOUND; supported: SUPPORTED`. Always one line: what a file says is cut short and its control characters are escaped.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ModelError {
    pub file: PathBuf,
    /// The metadata key, the tensor or the part of the container.
    pub field: String,
    pub found: String,
    pub supported: String,
}

/// A [`ModelError`] before the file is known: what parsers of bytes return.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Fault {
    field: String,
    found: String,
    supported: String,
}

impl Fault {
    pub(crate) fn new(
        field: impl fmt::Display,
        found: impl fmt::Display,
        supported: impl fmt::Display,
    ) -> Fault {
        Fault {
            field: field.to_string(),
            found: found.to_string(),
            supported: supported.to_string(),
        }
    }

    pub(crate) fn in_file(self, file: &Path) -> ModelError {
        ModelError {
            file: file.to_owned(),
            field: self.field,
            found: self.found,
            supported: self.supported,
        }
    }
}

/// The file itself could not be read.
pub(crate) fn unreadable(file: &Path, error: &std::io::Error) -> ModelError {
    Fault::new("file", error, "a readable file").in_file(file)
}

impl std::error::Error for ModelError {}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display().to_string();
        write!(
            f,
            "{}: {}: found {}; supported: {}",
            OneLine(&file, 1000),
            OneLine(&self.field, 120),
            OneLine(&self.found, 240),
            OneLine(&self.supported, 240),
        )
    }
}

/// At most so many characters of a text, control characters escaped: what files say is shown to people in terminals.
#[derive(Debug)]
pub(crate) struct OneLine<'a>(pub(crate) &'a str, pub(crate) usize);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OneLine(text, limit) = *self;
        for (index, character) in text.chars().enumerate() {
            if index == limit {
                return f.write_char('…');
            }
            if character.is_control() {
                write!(f, "{}", character.escape_default())?;
            } else {
                f.write_char(character)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_short_line_whatever_the_file_says() {
        let found = "a\nb\u{1b}[2J".to_owned() + &"x".repeat(100_000);
        let error = Fault::new("general.name", found, "text").in_file(Path::new("m.gguf"));
        let line = error.to_string();
        assert!(line.starts_with("m.gguf: general.name: found a\\nb\\u{1b}[2Jxxx"));
        assert!(line.ends_with("x…; supported: text"));
        assert!(line.len() < 400);
    }
}
