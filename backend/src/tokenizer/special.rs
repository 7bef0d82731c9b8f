//! Tokens that are found by their spelling: control tokens and user-defined ones, in one pass over the text.

use super::{Piece, vocabulary::Spelled};

/// A set of spellings as a trie over bytes.
#[derive(Debug)]
pub(crate) struct Spellings {
    nodes: Vec<Node>,
    /// Bytes that start a spelling.
    starts: [bool; 256],
}

#[derive(Debug, Default)]
struct Node {
    /// Sorted by byte.
    children: Vec<(u8, u32)>,
    end: Option<End>,
}

#[derive(Clone, Copy, Debug)]
struct End {
    token: u32,
    strips: (bool, bool),
}

impl Spellings {
    pub(super) fn new<'a>(spelled: impl Iterator<Item = Spelled<'a>>) -> Spellings {
        let mut set = Spellings {
            nodes: vec![Node::default()],
            starts: [false; 256],
        };
        for entry in spelled {
            let mut node = 0;
            for byte in entry.text.bytes() {
                node = match set.nodes[node]
                    .children
                    .binary_search_by_key(&byte, |child| child.0)
                {
                    Ok(at) => set.nodes[node].children[at].1 as usize,
                    Err(at) => {
                        let new = set.nodes.len();
                        set.nodes.push(Node::default());
                        set.nodes[node].children.insert(at, (byte, new as u32));
                        new
                    }
                };
            }
            set.nodes[node].end = Some(End {
                token: entry.token,
                strips: entry.strips,
            });
            if let Some(byte) = entry.text.bytes().next() {
                set.starts[byte as usize] = true;
            }
        }
        set
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.len() == 1
    }

    pub(super) fn exact(&self, text: &str) -> Option<u32> {
        match self.longest(text.as_bytes()) {
            Some((len, end)) if len == text.len() => Some(end.token),
            _ => None,
        }
    }

    /// The longest spelling at the start of `bytes`.
    fn longest(&self, bytes: &[u8]) -> Option<(usize, End)> {
        let mut node = 0;
        let mut best = None;
        for (index, byte) in bytes.iter().enumerate() {
            let children = &self.nodes[node].children;
            let Ok(at) = children.binary_search_by_key(byte, |child| child.0) else {
                break;
            };
            node = children[at].1 as usize;
            if let Some(end) = self.nodes[node].end {
                best = Some((index + 1, end));
            }
        }
        best
    }

    /// Cuts `text` at every spelling; text pieces are not empty.
    pub(super) fn split<'a>(&self, text: &'a str, mut each: impl FnMut(Piece<'a>, usize)) {
        let bytes = text.as_bytes();
        let (mut from, mut at) = (0, 0);
        while at < bytes.len() {
            if !self.starts[bytes[at] as usize] {
                at += 1;
                continue;
            }
            // A spelling is whole characters, so a match can only begin and end on their borders.
            let Some((len, end)) = self.longest(&bytes[at..]) else {
                at += 1;
                continue;
            };
            let mut before = &text[from..at];
            if end.strips.0 {
                before = before.trim_end();
            }
            if !before.is_empty() {
                each(Piece::Text(before), from + before.len());
            }
            at += len;
            if end.strips.1 {
                at = text.len() - text[at..].trim_start().len();
            }
            each(Piece::Token(end.token), at);
            from = at;
        }
        if from < bytes.len() {
            each(Piece::Text(&text[from..]), text.len());
        }
    }
}
