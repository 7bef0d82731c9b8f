//! What a step needs from the host, in one copy: token ids, positions, slots, page tables, pieces of attention and sampling parameters lie one after another
//! in one buffer, and each launch gets its part of it.

use bytemuck::NoUninit;

use crate::launch::{Memory, ShapeError};

/// Where an array lies in the buffer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Staged {
    start: usize,
    bytes: usize,
}

/// Collects arrays; kept from step to step, so that nothing is allocated once it is large enough.
#[derive(Debug, Default)]
pub struct Staging {
    bytes: Vec<u8>,
}

impl Staging {
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Adds an array. Its part starts at a multiple of 16.
    pub fn push<T: NoUninit>(&mut self, values: &[T]) -> Staged {
        let start = self.bytes.len().next_multiple_of(16);
        self.bytes.resize(start, 0);
        self.bytes.extend_from_slice(bytemuck::cast_slice(values));
        Staged {
            start,
            bytes: self.bytes.len() - start,
        }
    }

    /// All arrays, for the one upload.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Staged {
    /// The part of the device's buffer that holds the array.
    pub fn of(self, buffer: Memory) -> Result<Memory, ShapeError> {
        buffer.part(self.start, self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_lie_apart_at_multiples_of_sixteen() {
        let mut staging = Staging::default();
        let ids = staging.push(&[7u32, 8, 9]);
        let seeds = staging.push(&[1u64]);
        assert_eq!(staging.bytes().len(), 24);
        assert_eq!(staging.bytes()[..4], 7u32.to_le_bytes());
        assert_eq!(staging.bytes()[16..], 1u64.to_le_bytes());
        let buffer = Memory::new(4096, 64);
        assert_eq!(ids.of(buffer).unwrap(), Memory::new(4096, 12));
        assert_eq!(seeds.of(buffer).unwrap(), Memory::new(4112, 8));
        assert_eq!(
            seeds.of(Memory::new(4096, 16)).unwrap_err().to_string(),
            "8 bytes from byte 16 of 16; parts start at a multiple of 16"
        );
        staging.clear();
        assert!(staging.bytes().is_empty());
    }
}
