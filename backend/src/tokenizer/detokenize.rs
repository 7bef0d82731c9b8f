//! Tokens to text while they come: text leaves on character borders, so no delta ever holds half a character.

use super::Tokenizer;

/// The text of one output, token by token. Control tokens have no text.
#[derive(Clone, Debug)]
pub struct Detokenizer {
    tokenizer: Tokenizer,
    /// The start of a character whose other bytes have not come: at most 3.
    pending: Vec<u8>,
}

impl Detokenizer {
    pub fn new(tokenizer: &Tokenizer) -> Detokenizer {
        Detokenizer {
            tokenizer: tokenizer.clone(),
            pending: Vec::new(),
        }
    }

    /// The text that is certain after `token`; empty while a character is incomplete. Bytes that can never become a character are U+FFFD.
    pub fn push(&mut self, token: u32) -> String {
        self.pending
            .extend_from_slice(self.tokenizer.token_bytes(token));
        let mut text = String::new();
        let mut done = 0;
        loop {
            match std::str::from_utf8(&self.pending[done..]) {
                Ok(rest) => {
                    text.push_str(rest);
                    done = self.pending.len();
                    break;
                }
                Err(error) => {
                    let valid = done + error.valid_up_to();
                    // Valid up to here, by the error.
                    text.push_str(&String::from_utf8_lossy(&self.pending[done..valid]));
                    done = valid;
                    let Some(bad) = error.error_len() else { break };
                    text.push('\u{FFFD}');
                    done += bad;
                }
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
