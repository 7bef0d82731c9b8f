//! Metadata values. Arrays stay where they lie in the file until someone asks for their elements.

use std::fmt;

use super::cursor::Cursor;
use crate::model::error::Fault;

/// `enum gguf_metadata_value_type`
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    Text,
    Array,
    U64,
    I64,
    F64,
}

impl Kind {
    const ALL: [Kind; 13] = [
        Kind::U8,
        Kind::I8,
        Kind::U16,
        Kind::I16,
        Kind::U32,
        Kind::I32,
        Kind::F32,
        Kind::Bool,
        Kind::Text,
        Kind::Array,
        Kind::U64,
        Kind::I64,
        Kind::F64,
    ];

    fn read(cursor: &mut Cursor<'_>, key: &str) -> Result<Kind, Fault> {
        let number = cursor.u32(key)?;
        Kind::ALL
            .get(number as usize)
            .copied()
            .ok_or_else(|| Fault::new(key, format_args!("value type {number}"), "types 0 to 12"))
    }

    /// Bytes of a value; 0 for those of no fixed size.
    fn size(self) -> u64 {
        match self {
            Kind::U8 | Kind::I8 | Kind::Bool => 1,
            Kind::U16 | Kind::I16 => 2,
            Kind::U32 | Kind::I32 | Kind::F32 => 4,
            Kind::U64 | Kind::I64 | Kind::F64 => 8,
            Kind::Text | Kind::Array => 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    /// Not known to be UTF-8.
    Text(&'a [u8]),
    Array(Array<'a>),
}

/// `bytes` holds exactly `count` elements of `kind`, which is not an array.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Array<'a> {
    pub(super) kind: Kind,
    pub(super) count: u64,
    bytes: &'a [u8],
}

impl<'a> Value<'a> {
    pub(super) fn read(cursor: &mut Cursor<'a>, key: &str) -> Result<Value<'a>, Fault> {
        match Kind::read(cursor, key)? {
            Kind::Text => cursor.string(key).map(Value::Text),
            Kind::Array => Array::read(cursor, key).map(Value::Array),
            kind => {
                let bytes = cursor.take(kind.size(), key)?;
                Ok(scalar(kind, bytes))
            }
        }
    }
}

/// `bytes.len() == kind.size()`
fn scalar(kind: Kind, bytes: &[u8]) -> Value<'static> {
    // Little endian, widened with zeros; signed types are shifted up and back to widen their sign.
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(wide);
    let unused = 64 - 8 * bytes.len();
    match kind {
        Kind::I8 | Kind::I16 | Kind::I32 | Kind::I64 => {
            Value::Signed(((bits << unused) as i64) >> unused)
        }
        Kind::F32 => Value::Float(f64::from(f32::from_bits(bits as u32))),
        Kind::F64 => Value::Float(f64::from_bits(bits)),
        Kind::Bool => Value::Bool(bits != 0),
        _ => Value::Unsigned(bits),
    }
}

impl<'a> Array<'a> {
    fn read(cursor: &mut Cursor<'a>, key: &str) -> Result<Array<'a>, Fault> {
        let kind = Kind::read(cursor, key)?;
        let count = cursor.u64(key)?;
        let length = match kind {
            Kind::Array => {
                return Err(Fault::new(
                    key,
                    "an array of arrays",
                    "arrays of numbers or texts",
                ));
            }
            Kind::Text => {
                let mut probe = Cursor::new(cursor.rest());
                for _ in 0..count {
                    probe.string(key)?;
                }
                probe.at() as u64
            }
            // Past what a cursor can hold anyway.
            kind => count.saturating_mul(kind.size()),
        };
        let bytes = cursor.take(length, key)?;
        Ok(Array { kind, count, bytes })
    }

    /// The elements of an array that is not of texts.
    pub(super) fn numbers(self) -> impl Iterator<Item = Value<'static>> + 'a {
        self.bytes
            .chunks_exact(self.kind.size().max(1) as usize)
            .map(move |bytes| scalar(self.kind, bytes))
    }

    /// The elements of an array of texts.
    pub(super) fn texts(self) -> impl Iterator<Item = &'a [u8]> {
        let mut cursor = Cursor::new(self.bytes);
        // The strings were all there when the array was read.
        std::iter::from_fn(move || cursor.string("").ok())
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Unsigned(number) => write!(f, "{number}"),
            Value::Signed(number) => write!(f, "{number}"),
            Value::Float(number) => write!(f, "{number}"),
            Value::Bool(flag) => write!(f, "{flag}"),
            Value::Text(text) => {
                let shown = &text[..text.len().min(200)];
                write!(f, "\"{}\"", String::from_utf8_lossy(shown))
            }
            Value::Array(array) => write!(f, "an array of {} {:?}", array.count, array.kind),
        }
    }
}
