//! A number ends. JSON Schema lets one have any number of digits, and a small model that has begun to write digits goes on until its budget is spent;
//! no client could hold such a number. [`Digits`] reads along with the JSON of a call or an answer and says when a number has as many as are of use.

/// An `i64` has no more, and an `f64` tells no more apart.
const MOST_DIGITS: u8 = 19;
/// Together with the digits before it this is still an `f64`.
const MOST_EXPONENT_DIGITS: u8 = 2;

/// Where in JSON a text is, as far as numbers go.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Digits {
    in_string: bool,
    /// The character before was the backslash of an escape.
    escaped: bool,
    in_exponent: bool,
    /// Digits in a row, in a number.
    run: u8,
}

impl Digits {
    pub(crate) fn read(&mut self, text: &[u8]) {
        for byte in text {
            self.step(*byte);
        }
    }

    /// Would a number have too many digits with those that `token` begins with?
    pub(crate) fn are_too_many(self, token: &[u8]) -> bool {
        let most = match self.in_exponent {
            true => MOST_EXPONENT_DIGITS,
            false => MOST_DIGITS,
        };
        let more = token.iter().take_while(|byte| byte.is_ascii_digit());
        let more = more.count();
        !self.in_string && more > 0 && usize::from(self.run) + more > usize::from(most)
    }

    fn step(&mut self, byte: u8) {
        if self.in_string {
            self.in_string = self.escaped || byte != b'"';
            self.escaped = !self.escaped && byte == b'\\';
            return;
        }
        match byte {
            b'0'..=b'9' => self.run = self.run.saturating_add(1),
            b'e' | b'E' if self.run > 0 => (self.in_exponent, self.run) = (true, 0),
            // The sign of an exponent, or of a number, before which nothing is counted.
            b'+' | b'-' => {}
            _ => {
                *self = Digits {
                    in_string: byte == b'"',
                    ..Digits::default()
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_of_numbers_count_and_others_do_not() {
        let most = "7".repeat(usize::from(MOST_DIGITS));
        for (text, too_many) in [
            (format!("{{\"a\": -{most}"), true),
            (format!("{{\"a\": {}", &most[1..]), false),
            (format!("{{\"a\": {most}."), false),
            (format!("{{\"a\": 1.{most}"), true),
            (format!("{{\"a\": [{most}, 7"), false),
            (format!("{{\"{most}"), false),
            (format!("{{\"\\\"{most}"), false),
            (format!("{{\"\\\\\": {most}"), true),
            ("{\"a\": 1e".to_owned(), false),
            ("{\"a\": 1e-9".to_owned(), false),
            ("{\"a\": 1.5E+30".to_owned(), true),
            ("{\"a\": true, \"e\": 30".to_owned(), false),
        ] {
            let mut digits = Digits::default();
            digits.read(text.as_bytes());
            assert_eq!(digits.are_too_many(b"1"), too_many, "{text}");
            assert!(!digits.are_too_many(b", 123"), "{text}");
        }
        let mut digits = Digits::default();
        digits.read(&most.as_bytes()[2..]);
        assert!(!digits.are_too_many(b"12, 345"));
        assert!(digits.are_too_many(b"123"));
    }
}
