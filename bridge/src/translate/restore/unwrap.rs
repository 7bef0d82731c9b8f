//! The text of a custom tool, taken out of `{"input": "…"}` while that JSON is still being written.
//!
//! Invariant: what was given out is a prefix of what [`super::custom_input`] says of the finished arguments, provided
//! they turn out to be an object whose first member is a string called `input`. As soon as they cannot, nothing more
//! is given out and the caller sends the raw text whole at the end.

/// Where in `{"input": "…"` the reader stands.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// Before the string; holds what must still come, in order.
    Before(&'static [u8]),
    Inside,
    /// After a backslash.
    Escape,
    /// Inside `\uXXXX`; digits so far and their value.
    Unicode {
        digits: u8,
        value: u32,
    },
    /// The string has ended, or the text is something else.
    Over,
}

const OPENING: &[u8] = b"{\"input\":\"";

/// The incremental reader of one call's arguments.
#[derive(Debug)]
pub(crate) struct Unwrap {
    place: Place,
    /// A high surrogate that waits for its low half.
    high: Option<u32>,
    given: usize,
    /// The string has begun.
    opened: bool,
}

/// The text in arguments that were cut, as far as it came; `None` if they are no such object.
pub(super) fn of_cut(arguments: &str) -> Option<String> {
    let mut unwrap = Unwrap::new();
    let text = unwrap.push(arguments);
    (unwrap.opened || unwrap.place != Place::Over).then_some(text)
}

impl Unwrap {
    pub(crate) fn new() -> Self {
        Self {
            place: Place::Before(OPENING),
            high: None,
            given: 0,
            opened: false,
        }
    }

    /// Bytes of text given out so far.
    pub(crate) fn given(&self) -> usize {
        self.given
    }

    /// Reads on; returns the text that is now certain.
    pub(crate) fn push(&mut self, arguments: &str) -> String {
        let mut text = String::new();
        for character in arguments.chars() {
            self.step(character, &mut text);
            if self.place == Place::Over {
                break;
            }
        }
        self.given += text.len();
        text
    }

    fn step(&mut self, character: char, text: &mut String) {
        match &mut self.place {
            Place::Before(rest) => {
                let between_tokens = matches!(rest.first(), Some(b'{' | b':' | b'"'));
                if between_tokens
                    && rest.len() != INSIDE_KEY
                    && matches!(character, ' ' | '\t' | '\n' | '\r')
                {
                    return;
                }
                match rest.split_first() {
                    Some((next, after)) if char::from(*next) == character => {
                        self.opened = after.is_empty();
                        self.place = if self.opened {
                            Place::Inside
                        } else {
                            Place::Before(after)
                        };
                    }
                    _ => self.place = Place::Over,
                }
            }
            Place::Inside => match character {
                '\\' => self.place = Place::Escape,
                '"' => self.place = Place::Over,
                // JSON forbids raw control characters: not what it seemed to be.
                '\0'..='\x1f' => self.place = Place::Over,
                _ if self.high.is_some() => self.place = Place::Over,
                other => text.push(other),
            },
            Place::Escape => {
                let plain = match character {
                    '"' | '\\' | '/' => character,
                    'b' => '\x08',
                    'f' => '\x0c',
                    'n' => '\n',
                    'r' => '\r',
                    't' => '\t',
                    'u' => {
                        self.place = Place::Unicode {
                            digits: 0,
                            value: 0,
                        };
                        return;
                    }
                    _ => {
                        self.place = Place::Over;
                        return;
                    }
                };
                if self.high.is_some() {
                    self.place = Place::Over;
                    return;
                }
                text.push(plain);
                self.place = Place::Inside;
            }
            Place::Unicode { digits, value } => {
                let Some(digit) = character.to_digit(16) else {
                    self.place = Place::Over;
                    return;
                };
                *value = *value << 4 | digit;
                *digits += 1;
                if *digits == 4 {
                    let unit = *value;
                    self.place = Place::Inside;
                    self.utf16(unit, text);
                }
            }
            Place::Over => {}
        }
    }

    fn utf16(&mut self, unit: u32, text: &mut String) {
        let code = match (self.high.take(), unit) {
            (None, 0xd800..=0xdbff) => {
                self.high = Some(unit);
                return;
            }
            (Some(high), 0xdc00..=0xdfff) => 0x10000 + ((high - 0xd800) << 10 | (unit - 0xdc00)),
            (None, other) => other,
            (Some(_), _) => {
                self.place = Place::Over;
                return;
            }
        };
        match char::from_u32(code) {
            Some(character) => text.push(character),
            None => self.place = Place::Over,
        }
    }
}

/// `rest.len()` while the closing quote of the key is next: no white space may stand before it.
const INSIDE_KEY: usize = 3;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(arguments: &str) -> String {
        Unwrap::new().push(arguments)
    }

    #[test]
    fn white_space_between_tokens_is_allowed_and_nowhere_else() {
        assert_eq!(all(" { \"input\" :\n\"a\" } "), "a");
        assert_eq!(all("{\"input \":\"a\"}"), "");
        assert_eq!(all("{\"in put\":\"a\"}"), "");
    }

    #[test]
    fn other_shapes_give_nothing() {
        for text in [
            "\"text\"",
            "{\"cmd\":1}",
            "{\"input\":1}",
            "[]",
            "{}",
            "*** Begin",
        ] {
            assert_eq!(all(text), "", "{text}");
        }
    }

    #[test]
    fn what_was_cut_gives_the_text_that_came() {
        for (arguments, text) in [
            ("", Some("")),
            ("{\"inp", Some("")),
            ("{\"input\": \"Hello", Some("Hello")),
            ("{\"input\":\"a\\", Some("a")),
            ("{\"input\":\"", Some("")),
            ("{\"input\":\"\"", Some("")),
            ("{\"input\":\"Hello\"", Some("Hello")),
            ("{\"cmd\": \"ls", None),
            ("*** Begin", None),
        ] {
            assert_eq!(of_cut(arguments).as_deref(), text, "{arguments}");
        }
    }

    #[test]
    fn a_lone_surrogate_ends_it() {
        assert_eq!(all(r#"{"input":"a\ud83dx"#), "a");
        assert_eq!(all(r#"{"input":"a\udc00x"#), "a");
        assert_eq!(all(r#"{"input":"\ud83d\ude00"}"#), "\u{1f600}");
    }

    proptest! {
        #[test]
        fn any_text_in_any_pieces_comes_out_whole(
            input in any::<String>(),
            ascii in any::<bool>(),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut arguments = serde_json::json!({"input": input}).to_string();
            if ascii {
                arguments = arguments.encode_utf16().map(|unit| match u8::try_from(unit) {
                    Ok(byte) if byte.is_ascii() => char::from(byte).to_string(),
                    _ => format!("\\u{unit:04x}"),
                }).collect();
            }
            let mut at = cut.index(arguments.len());
            while !arguments.is_char_boundary(at) { at -= 1; }
            let mut unwrap = Unwrap::new();
            let text = unwrap.push(&arguments[..at]) + &unwrap.push(&arguments[at..]);
            prop_assert_eq!(&text, &input);
            prop_assert_eq!(unwrap.given(), input.len());
        }
    }
}
