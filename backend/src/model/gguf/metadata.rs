//! Metadata by key, with the type that is expected of each.

use std::collections::HashMap;

use super::value::{Array, Kind, Value};
use crate::model::error::Fault;

/// A vocabulary or its merges: far above any that exists (262,144 tokens, 514,906 merges), and a bound on memory.
const MOST_ELEMENTS: u64 = 1 << 22;

#[derive(Debug, Default)]
pub(super) struct Metadata<'a> {
    values: HashMap<&'a str, Value<'a>>,
}

impl<'a> Metadata<'a> {
    /// False if the key was there already.
    pub(super) fn insert(&mut self, key: &'a str, value: Value<'a>) -> bool {
        self.values.insert(key, value).is_none()
    }

    pub(super) fn get(&self, key: &str) -> Option<Value<'a>> {
        self.values.get(key).copied()
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, Fault> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Text(bytes)) => utf8(key, bytes).map(Some),
            Some(other) => Err(wrong(key, other, "a text")),
        }
    }

    pub(super) fn boolean(&self, key: &str) -> Result<Option<bool>, Fault> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(wrong(key, other, "true or false")),
        }
    }

    /// A whole number from 0 to 2³² - 1, of whatever integer type.
    pub(super) fn count(&self, key: &str) -> Result<Option<u32>, Fault> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let count = match value {
            Value::Unsigned(number) => u32::try_from(number).ok(),
            Value::Signed(number) => u32::try_from(number).ok(),
            _ => None,
        };
        count
            .map(Some)
            .ok_or_else(|| wrong(key, value, "a whole number from 0 to 4294967295"))
    }

    pub(super) fn float(&self, key: &str) -> Result<Option<f32>, Fault> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Float(number)) => Ok(Some(number as f32)),
            Some(Value::Unsigned(number)) => Ok(Some(number as f32)),
            Some(Value::Signed(number)) => Ok(Some(number as f32)),
            Some(other) => Err(wrong(key, other, "a number")),
        }
    }

    /// Empty if there is no such key.
    pub(super) fn texts(&self, key: &str) -> Result<Vec<String>, Fault> {
        let Some(array) = self.array(key, &[Kind::Text])? else {
            return Ok(Vec::new());
        };
        array
            .texts()
            .map(|bytes| utf8(key, bytes).map(str::to_owned))
            .collect()
    }

    /// Empty if there is no such key.
    pub(super) fn integers(&self, key: &str) -> Result<Vec<i32>, Fault> {
        let integer = |value| match value {
            Value::Signed(number) => number as i32,
            Value::Unsigned(number) => number as i32,
            _ => 0,
        };
        let array = self.array(key, &[Kind::I32, Kind::U32])?;
        Ok(array.map_or_else(Vec::new, |array| array.numbers().map(integer).collect()))
    }

    /// Empty if there is no such key.
    pub(super) fn floats(&self, key: &str) -> Result<Vec<f32>, Fault> {
        let float = |value| match value {
            Value::Float(number) => number as f32,
            _ => 0.0,
        };
        let array = self.array(key, &[Kind::F32])?;
        Ok(array.map_or_else(Vec::new, |array| array.numbers().map(float).collect()))
    }

    fn array(&self, key: &str, kinds: &[Kind]) -> Result<Option<Array<'a>>, Fault> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(array))
                if kinds.contains(&array.kind) && array.count <= MOST_ELEMENTS =>
            {
                Ok(Some(array))
            }
            Some(other) => Err(wrong(
                key,
                other,
                &format!("an array of at most {MOST_ELEMENTS} {:?}", kinds[0]),
            )),
        }
    }
}

fn utf8<'a>(key: &str, bytes: &'a [u8]) -> Result<&'a str, Fault> {
    std::str::from_utf8(bytes).map_err(|error| Fault::new(key, error, "UTF-8"))
}

fn wrong(key: &str, found: Value<'_>, supported: &str) -> Fault {
    Fault::new(key, found, supported)
}
