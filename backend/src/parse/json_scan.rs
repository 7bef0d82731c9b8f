//! Where a JSON value ends, a character at a time. Looks at brackets and strings only: what the model wrote is passed on, not judged.

/// The scan of one value; white space before it is not part of it.
#[derive(Debug, Default)]
pub(super) struct Scan {
    kind: Kind,
    /// Open brackets, of either sort.
    depth: usize,
    string: bool,
    escape: Escape,
}

#[derive(Debug, Default, PartialEq)]
enum Kind {
    #[default]
    Unknown,
    /// An object, an array or a string: ends with its own last character.
    Closed,
    /// A number or a word: ends before what follows.
    Open,
}

/// Where in an escape of a string. A pair of surrogates counts as one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Escape {
    #[default]
    No,
    Backslash {
        after_high: bool,
    },
    Hex {
        digits: u8,
        value: u16,
        after_high: bool,
    },
    /// A high surrogate was read whole: its partner belongs to it.
    High,
}

/// What a character is to the value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Scanned {
    Inside,
    /// The last one.
    Last,
    /// The value had ended before it.
    Past,
}

impl Scan {
    pub(super) fn push(&mut self, character: char) -> Scanned {
        if self.string {
            return self.in_string(character);
        }
        if self.kind == Kind::Unknown {
            self.kind = match character {
                '{' | '[' | '"' => Kind::Closed,
                ',' | '}' | ']' | ':' => return Scanned::Past,
                _ => Kind::Open,
            };
        }
        match character {
            '"' if self.kind == Kind::Closed => self.string = true,
            '{' | '[' if self.kind == Kind::Closed => self.depth += 1,
            '}' | ']' if self.kind == Kind::Closed => {
                self.depth -= 1;
                if self.depth == 0 {
                    return Scanned::Last;
                }
            }
            ',' | '}' | ']' | '"' | '{' | '[' | ':' if self.kind == Kind::Open => {
                return Scanned::Past;
            }
            space if self.kind == Kind::Open && space.is_whitespace() => return Scanned::Past,
            _ => {}
        }
        Scanned::Inside
    }

    /// Whether the text may be cut here: not inside an escape.
    pub(super) fn may_cut(&self) -> bool {
        self.escape == Escape::No
    }

    fn in_string(&mut self, character: char) -> Scanned {
        self.escape = match (self.escape, character) {
            (Escape::No, '\\') => Escape::Backslash { after_high: false },
            (Escape::High, '\\') => Escape::Backslash { after_high: true },
            (Escape::No | Escape::High, '"') => {
                self.string = false;
                self.escape = Escape::No;
                return match self.depth {
                    0 => Scanned::Last,
                    _ => Scanned::Inside,
                };
            }
            (Escape::No | Escape::High, _) => Escape::No,
            (Escape::Backslash { after_high }, 'u') => Escape::Hex {
                digits: 0,
                value: 0,
                after_high,
            },
            (Escape::Backslash { .. }, _) => Escape::No,
            (
                Escape::Hex {
                    digits,
                    value,
                    after_high,
                },
                character,
            ) => match character.to_digit(16) {
                Some(digit) => {
                    let value = value << 4 | digit as u16;
                    match digits {
                        3 if (0xd800..0xdc00).contains(&value) && !after_high => Escape::High,
                        3 => Escape::No,
                        _ => Escape::Hex {
                            digits: digits + 1,
                            value,
                            after_high,
                        },
                    }
                }
                None if character == '"' => {
                    self.escape = Escape::No;
                    return self.in_string(character);
                }
                None => Escape::No,
            },
        };
        Scanned::Inside
    }
}
