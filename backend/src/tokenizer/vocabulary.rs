//! What a tokenizer file says, whichever format it came from.

use super::pre::Pre;

/// Tokens by id, and the rules that make them of text.
#[derive(Debug, Default)]
pub(super) struct Vocabulary {
    pub(super) entries: Vec<Entry>,
    pub(super) rules: Rules,
    pub(super) bos: Option<u32>,
    pub(super) eos: Option<u32>,
    /// Further ends that the file names: end of turn, end of message.
    pub(super) ends: Vec<u32>,
    pub(super) add_bos: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Entry {
    /// As the vocabulary has it: bytes as GPT-2's stand-in characters, blanks as `▁`. Literal for control and user-defined tokens.
    pub(super) text: String,
    pub(super) kind: Kind,
    /// Blanks of a template's text before and after the token belong to it (`lstrip`, `rstrip` of a `tokenizer.json`).
    pub(super) strips: (bool, bool),
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Kind {
    Normal,
    /// `<0x0A>`: one byte, where no other token has it.
    Byte,
    Control,
    /// Matched by its spelling like a control token, but part of the text.
    UserDefined,
    /// No token; an id without meaning.
    #[default]
    Unused,
}

/// How text becomes tokens.
#[derive(Debug)]
pub(super) enum Rules {
    /// Words by `pre`, each word's bytes merged in the order of `merges`.
    ByteLevel {
        pre: Pre,
        merges: Vec<(String, String)>,
        /// A word that is a token is that token, merges or not.
        ignore_merges: bool,
        /// Unicode normalisation form C before anything else.
        nfc: bool,
    },
    /// Blanks as `▁`, then merges over the whole text.
    SentencePieceMerges {
        merges: Vec<(String, String)>,
        blank: Blank,
        unknown: Option<u32>,
    },
    /// Blanks as `▁`, then whichever neighbours make the token of the highest score.
    SentencePieceScores {
        scores: Vec<f32>,
        blank: Blank,
        unknown: Option<u32>,
    },
}

impl Default for Rules {
    fn default() -> Self {
        Rules::ByteLevel {
            pre: Pre::Gpt2,
            merges: Vec::new(),
            ignore_merges: false,
            nfc: false,
        }
    }
}

/// Where SentencePiece puts a `▁` of its own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Blank {
    Never,
    /// Before the first text of a prompt only, if no token comes before it.
    First,
    /// Before every text between two control tokens.
    Always,
}

/// A token that is matched by its spelling.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spelled<'a> {
    pub(super) token: u32,
    pub(super) text: &'a str,
    pub(super) kind: Kind,
    pub(super) strips: (bool, bool),
}

impl Spelled<'_> {
    /// User-defined tokens that are ordinary text. Those that look like markup are not: a request could forge a turn with them.
    pub(super) fn is_plain(&self) -> bool {
        self.kind == Kind::UserDefined && !self.text.contains(['<', '>', '[', ']', '|'])
    }
}

/// Ends of turn and text by their names, for files that name one end and mean several: Llama 3's GGUF files often say `<|end_of_text|>` only.
const ENDS: [&str; 9] = [
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot|>",
    "<|eom|>",
    "<|end|>",
    "</s>",
];

impl Vocabulary {
    pub(super) fn spelled(&self) -> Vec<Spelled<'_>> {
        self.entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| matches!(entry.kind, Kind::Control | Kind::UserDefined))
            .filter(|(_, entry)| !entry.text.is_empty())
            .map(|(token, entry)| Spelled {
                token: token as u32,
                text: &entry.text,
                kind: entry.kind,
                strips: entry.strips,
            })
            .collect()
    }

    pub(super) fn end_tokens(&self) -> Vec<u32> {
        let mut ends: Vec<u32> = self
            .eos
            .into_iter()
            .chain(self.ends.iter().copied())
            .collect();
        ends.extend(
            self.spelled()
                .iter()
                .filter(|entry| ENDS.contains(&entry.text))
                .map(|entry| entry.token),
        );
        ends.retain(|token| (*token as usize) < self.entries.len());
        ends.sort_unstable();
        ends.dedup();
        ends
    }

    /// Appends what `token` stands for in the output.
    pub(super) fn push_bytes(&self, token: usize, bytes: &mut Vec<u8>) {
        let entry = &self.entries[token];
        match entry.kind {
            Kind::Control | Kind::Unused => {}
            Kind::UserDefined => bytes.extend_from_slice(entry.text.as_bytes()),
            Kind::Byte => bytes.extend(byte_of(&entry.text)),
            Kind::Normal => match &self.rules {
                Rules::ByteLevel { .. } => {
                    for character in entry.text.chars() {
                        match super::pre::byte_of(character) {
                            Some(byte) => bytes.push(byte),
                            None => {
                                bytes.extend_from_slice(
                                    character.encode_utf8(&mut [0; 4]).as_bytes(),
                                );
                            }
                        }
                    }
                }
                Rules::SentencePieceMerges { .. } | Rules::SentencePieceScores { .. } => {
                    bytes.extend_from_slice(entry.text.replace('\u{2581}', " ").as_bytes());
                }
            },
        }
    }
}

/// The byte of a token `<0x0A>`.
pub(super) fn byte_of(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 {
        u8::from_str_radix(digits, 16).ok()
    } else {
        None
    }
}

/// The two parts of a merge as merges files write it: `Ġ t`. A part may itself start with a blank only in SentencePiece files.
pub(super) fn merge(line: &str) -> Option<(String, String)> {
    let after_first = line.chars().next()?.len_utf8();
    let at = after_first + line[after_first..].find(' ')?;
    let (left, right) = (&line[..at], &line[at + 1..]);
    (!right.is_empty()).then(|| (left.to_owned(), right.to_owned()))
}
