//! Tokens to text while they come: text leaves on character borders, so no delta ever holds half a character.

use super::Tokenizer;

/// The text of one output, token by token. Control tokens have no text.
#[derive(Clone, Debug)]
pub struct Detokenizer {
    tokenizer: Tokenizer,
    /// The start of a character whose other bytes have not come: at most 3.
    pending: Vec<u8>,
    /// The next byte is the first one and a blank there is not text (SentencePiece).
    drop_blank: bool,
}

impl Detokenizer {
    pub fn new(tokenizer: &Tokenizer) -> Detokenizer {
        Detokenizer {
            tokenizer: tokenizer.clone(),
            pending: Vec::new(),
            drop_blank: tokenizer.drops_first_blank(),
        }
    }

    /// The text that is certain after `token`; empty while a character is incomplete. Bytes that can never become a character are U+FFFD.
    pub fn push(&mut self, token: u32) -> String {
        let mut bytes = self.tokenizer.token_bytes(token);
        if self.drop_blank && !bytes.is_empty() {
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
            self.drop_blank = false;
        }
        if self.pending.is_empty() {
            // Almost every token is whole characters.
            if let Ok(text) = std::str::from_utf8(bytes) {
                return text.to_owned();
            }
        }
        self.pending.extend_from_slice(bytes);
        let mut text = String::new();
        let mut done = 0;
        for chunk in self.pending.utf8_chunks() {
            text.push_str(chunk.valid());
            done += chunk.valid().len();
            if incomplete(chunk.invalid()) && done + chunk.invalid().len() == self.pending.len() {
                break;
            }
            if !chunk.invalid().is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
                done += chunk.invalid().len();
            }
        }
        self.pending.drain(..done);
        text
    }

    /// The end of the output: U+FFFD for a character that stayed incomplete, else nothing.
    pub fn finish(&mut self) -> String {
        let rest = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        rest
    }
}

/// Could more bytes make a character of these?
fn incomplete(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests;
