//! SHA-256 of a file, while it comes or once it is there.

use std::{
    fs::File,
    io::{self, Read},
};

use ring::digest::{Context, SHA256};

pub type Digest = [u8; 32];

/// A checksum being made.
pub(super) struct Hasher(Context);

impl Hasher {
    pub(super) fn new() -> Self {
        Self(Context::new(&SHA256))
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Takes all that `file` still has; its length.
    pub(super) fn read(&mut self, file: &mut File) -> io::Result<u64> {
        let mut buffer = vec![0; 1 << 20];
        let mut length = 0;
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(length),
                read => {
                    self.update(&buffer[..read]);
                    length += read as u64;
                }
            }
        }
    }

    pub(super) fn finish(self) -> Digest {
        let mut digest = [0; 32];
        digest.copy_from_slice(self.0.finish().as_ref());
        digest
    }
}

/// 64 digits, of either case.
pub(super) fn from_hex(text: &str) -> Option<Digest> {
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    let mut digest = [0; 32];
    for (byte, digits) in digest.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let digits = std::str::from_utf8(digits).ok()?;
        if digits.starts_with('+') {
            return None;
        }
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    Some(digest)
}

pub(super) fn to_hex(digest: &Digest) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn the_digest_is_that_of_the_standard() {
        let mut hasher = Hasher::new();
        hasher.update(b"a");
        hasher.update(b"bc");
        // FIPS 180-4, example B.1.
        assert_eq!(
            to_hex(&hasher.finish()),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn hexadecimal_goes_both_ways() {
        let digest: Digest = std::array::from_fn(|index| index as u8 * 8);
        assert_eq!(from_hex(&to_hex(&digest).to_uppercase()), Some(digest));
        assert_eq!(from_hex(&"g".repeat(64)), None);
        assert_eq!(from_hex(&"+1".repeat(32)), None);
        assert_eq!(from_hex("ab"), None);
    }
}
