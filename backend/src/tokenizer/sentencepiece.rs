//! SentencePiece's BPE by scores, as Llama 2's GGUF files carry it: of all neighbours whose text together is a token, those of the highest score are
//! joined first, the leftmost of equals. What is no token at last becomes its bytes.

use std::{
    cmp::Ordering,
    collections::{BinaryHeap, HashMap},
};

use super::{
    TokenizerError,
    vocabulary::{self, Entry, Kind},
};

#[derive(Debug)]
pub(super) struct Scored {
    /// Tokens that text can become, with their scores.
    pieces: HashMap<String, (u32, f32)>,
    bytes: Box<[Option<u32>; 256]>,
    unknown: Option<u32>,
}

/// A run of text that is a token or one character. `len == 0`: joined to the one before.
#[derive(Clone, Copy, Debug)]
struct Symbol {
    start: usize,
    len: usize,
    previous: usize,
    next: usize,
}

/// Two neighbours that may be joined.
#[derive(Debug)]
struct Pair {
    left: usize,
    right: usize,
    score: f32,
    /// Bytes of both when the pair was found; another number now: one of them has changed.
    len: usize,
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Pair {}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Pair {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score
            .total_cmp(&other.score)
            .then_with(|| other.left.cmp(&self.left))
    }
}

const NONE: usize = usize::MAX;

impl Scored {
    pub(super) fn new(
        entries: &[Entry],
        scores: &[f32],
        unknown: Option<u32>,
    ) -> Result<Scored, TokenizerError> {
        if scores.len() != entries.len() {
            return Err(TokenizerError::invalid(
                "tokenizer.ggml.scores",
                format!(
                    "has {} entries, but there are {} tokens",
                    scores.len(),
                    entries.len()
                ),
            ));
        }
        let mut pieces = HashMap::new();
        let mut bytes = Box::new([None; 256]);
        for (token, (entry, score)) in entries.iter().zip(scores).enumerate() {
            match entry.kind {
                Kind::Normal => {
                    pieces.insert(entry.text.clone(), (token as u32, *score));
                }
                Kind::Byte => {
                    if let Some(byte) = vocabulary::byte_of(&entry.text) {
                        bytes[byte as usize] = Some(token as u32);
                    }
                }
                Kind::Control | Kind::UserDefined | Kind::Unused => {}
            }
        }
        Ok(Scored {
            pieces,
            bytes,
            unknown,
        })
    }

    pub(super) fn token_id(&self, text: &str) -> Option<u32> {
        match vocabulary::byte_of(text) {
            Some(byte) => self.bytes[byte as usize],
            None => self.pieces.get(text).map(|piece| piece.0),
        }
    }

    /// `text` has its blanks already as `▁`.
    pub(super) fn encode(&self, text: &str, tokens: &mut Vec<u32>) {
        let mut symbols: Vec<Symbol> = text
            .char_indices()
            .enumerate()
            .map(|(index, (start, character))| Symbol {
                start,
                len: character.len_utf8(),
                previous: index.checked_sub(1).unwrap_or(NONE),
                next: index + 1,
            })
            .collect();
        if let Some(last) = symbols.last_mut() {
            last.next = NONE;
        }
        let mut queue = BinaryHeap::new();
        for left in 0..symbols.len().saturating_sub(1) {
            self.offer(text, &symbols, left, left + 1, &mut queue);
        }
        while let Some(pair) = queue.pop() {
            let (left, right) = (symbols[pair.left], symbols[pair.right]);
            if left.len == 0 || right.len == 0 || left.len + right.len != pair.len {
                continue;
            }
            symbols[pair.left].len = pair.len;
            symbols[pair.left].next = right.next;
            symbols[pair.right].len = 0;
            if right.next != NONE {
                symbols[right.next].previous = pair.left;
                self.offer(text, &symbols, pair.left, right.next, &mut queue);
            }
            if left.previous != NONE {
                self.offer(text, &symbols, left.previous, pair.left, &mut queue);
            }
        }
        for symbol in symbols.iter().filter(|symbol| symbol.len > 0) {
            let piece = &text[symbol.start..symbol.start + symbol.len];
            match self.pieces.get(piece) {
                Some((token, _)) => tokens.push(*token),
                None => tokens.extend(
                    piece
                        .bytes()
                        .filter_map(|byte| self.bytes[byte as usize].or(self.unknown)),
                ),
            }
        }
    }

    fn offer(
        &self,
        text: &str,
        symbols: &[Symbol],
        left: usize,
        right: usize,
        queue: &mut BinaryHeap<Pair>,
    ) {
        let len = symbols[left].len + symbols[right].len;
        let start = symbols[left].start;
        if let Some((_, score)) = self.pieces.get(&text[start..start + len]) {
            queue.push(Pair {
                left,
                right,
                score: *score,
                len,
            });
        }
    }
}

#[cfg(test)]
mod tests;
