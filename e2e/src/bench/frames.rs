//! Counting and reading SSE frames in the bytes of a body, whatever its chunks.

use memchr::memmem;

use super::wire::{STAMP, STAMP_DIGITS};

/// Counts frames without looking into them.
#[derive(Debug, Default)]
pub struct Counter {
    pub frames: u64,
    ends_in_newline: bool,
}

impl Counter {
    pub fn feed(&mut self, mut bytes: &[u8]) {
        let Some(last) = bytes.last() else { return };
        let ends_in_newline = *last == b'\n';
        let mut closed = false;
        if self.ends_in_newline && bytes[0] == b'\n' {
            self.frames += 1;
            bytes = &bytes[1..];
            closed = bytes.is_empty();
        }
        let found = memmem::find_iter(bytes, b"\n\n").count();
        self.frames += found as u64;
        // The second newline of a frame's end begins no other end.
        self.ends_in_newline = ends_in_newline && !closed && !bytes.ends_with(b"\n\n");
    }
}

/// Cuts a body into frames, for streams slow enough to look at each.
#[derive(Debug, Default)]
pub struct Frames {
    rest: Vec<u8>,
}

impl Frames {
    /// Calls `each` with every frame that is complete now, without its blank line.
    pub fn feed(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        self.rest.extend_from_slice(bytes);
        let mut from = 0;
        while let Some(length) = memmem::find(&self.rest[from..], b"\n\n") {
            each(&self.rest[from..from + length]);
            from += length + 2;
        }
        self.rest.drain(..from);
    }
}

/// When the delta in this frame left, if it is one with a stamp.
pub fn stamp_of(frame: &[u8]) -> Option<u64> {
    let head = &frame[..frame.len().min(80)];
    memmem::find(head, b".delta")?;
    let at = memmem::find(frame, STAMP.as_bytes())? + STAMP.len();
    let digits = frame.get(at..at + STAMP_DIGITS)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_the_same_however_they_are_cut() {
        let body =
            b"event: x.delta\ndata: {\"delta\":\"@@0000000000000042\"}\n\ndata: 2\n\ndata: 3\n\n";
        for first in 0..body.len() {
            for second in first..body.len() {
                let mut counter = Counter::default();
                let mut frames = Frames::default();
                let mut stamps = Vec::new();
                for part in [&body[..first], &body[first..second], &body[second..]] {
                    counter.feed(part);
                    frames.feed(part, |frame| stamps.push(stamp_of(frame)));
                }
                assert_eq!(counter.frames, 3, "{first} {second}");
                assert_eq!(stamps, [Some(42), None, None]);
            }
        }
    }
}
