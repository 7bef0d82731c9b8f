//! The few fields of an event that decide where it goes, read without building the event, and the few that may have to
//! change on the way out, written over the text they stand in. The rest of the text is never parsed and so never
//! altered.

use std::{borrow::Cow, ops::Range};

use bytes::BytesMut;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Borrowed view of an event's routing fields. Absent fields are `None`; a field of an unexpected type is kept raw.
#[derive(Debug, Deserialize)]
pub(super) struct Peek<'a> {
    #[serde(borrow, default, rename = "type", deserialize_with = "present")]
    kind: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    item_id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    sequence_number: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    output_index: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    content_index: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    summary_index: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    delta: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    logprobs: Option<&'a RawValue>,
}

impl<'a> Peek<'a> {
    /// # Errors
    /// `data` is no JSON object.
    pub(super) fn parse(data: &'a str) -> Result<Self, serde_json::Error> {
        // A struct would be read from an array too.
        if !data.trim_start().starts_with('{') {
            return Err(serde::de::Error::custom("it does not begin with {"));
        }
        serde_json::from_str(data)
    }

    pub(super) fn kind(&self) -> Option<Cow<'a, str>> {
        self.kind.and_then(text)
    }

    /// An empty one names nothing.
    pub(super) fn item_id(&self) -> Option<Cow<'a, str>> {
        self.item_id.and_then(text).filter(|id| !id.is_empty())
    }

    pub(super) fn delta(&self) -> Option<Cow<'a, str>> {
        self.delta.and_then(text)
    }

    pub(super) fn output_index(&self) -> Option<u64> {
        self.output_index.and_then(number)
    }

    pub(super) fn summary_index(&self) -> Option<u64> {
        self.summary_index.and_then(number)
    }

    pub(super) fn content_index(&self) -> Option<usize> {
        self.content_index
            .and_then(number)
            .and_then(|index| index.try_into().ok())
    }
}

/// A field that is null stands in the text all the same: it must be replaced, not added a second time.
fn present<'de, D: serde::Deserializer<'de>>(field: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(field).map(Some)
}

/// A JSON string, borrowed where it has no escapes.
fn text(raw: &RawValue) -> Option<Cow<'_, str>> {
    let inner = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        return serde_json::from_str(raw.get()).ok().map(Cow::Owned);
    }
    Some(Cow::Borrowed(inner))
}

fn number(raw: &RawValue) -> Option<u64> {
    raw.get().parse().ok()
}

/// What an outgoing event must say of itself. `None` leaves a field as it came.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Fields<'a> {
    pub(super) sequence_number: u64,
    pub(super) item_id: Option<&'a str>,
    pub(super) output_index: Option<usize>,
    pub(super) content_index: Option<usize>,
    pub(super) summary_index: Option<u64>,
    /// Adds `"logprobs":[]` where there are none.
    pub(super) logprobs: bool,
}

/// Appends `data` with `fields` put right; says whether anything had to change.
pub(super) fn write(data: &str, peek: &Peek<'_>, fields: &Fields<'_>, out: &mut BytesMut) -> bool {
    let mut edits = Edits::new(data);
    edits.number(
        "sequence_number",
        peek.sequence_number,
        Some(fields.sequence_number),
    );
    let index = |index: Option<usize>| index.map(|index| index as u64);
    edits.number(
        "output_index",
        peek.output_index,
        index(fields.output_index),
    );
    edits.number(
        "content_index",
        peek.content_index,
        index(fields.content_index),
    );
    edits.number("summary_index", peek.summary_index, fields.summary_index);
    if let Some(id) = fields.item_id
        && peek.item_id().as_deref() != Some(id)
    {
        edits.set(
            "item_id",
            peek.item_id,
            &serde_json::Value::from(id).to_string(),
        );
    }
    if fields.logprobs && peek.logprobs.is_none_or(|came| came.get() == "null") {
        edits.set("logprobs", peek.logprobs, "[]");
    }
    edits.apply(out)
}

/// Replacements within an object's text, and fields to add at its end.
struct Edits<'a> {
    data: &'a str,
    replaced: Vec<(Range<usize>, String)>,
    added: String,
}

impl<'a> Edits<'a> {
    fn new(data: &'a str) -> Self {
        Self {
            data,
            replaced: Vec::new(),
            added: String::new(),
        }
    }

    fn number(&mut self, key: &str, came: Option<&RawValue>, wanted: Option<u64>) {
        let Some(wanted) = wanted else { return };
        if came.and_then(number) != Some(wanted) {
            self.set(key, came, itoa(wanted, &mut [0; 20]));
        }
    }

    fn set(&mut self, key: &str, came: Option<&RawValue>, value: &str) {
        let Some(came) = came else {
            self.added.push_str(",\"");
            self.added.push_str(key);
            self.added.push_str("\":");
            self.added.push_str(value);
            return;
        };
        // A raw value borrows from `data`, so its place in it is the distance of the two.
        let start = came.get().as_ptr() as usize - self.data.as_ptr() as usize;
        self.replaced
            .push((start..start + came.get().len(), value.to_owned()));
    }

    fn apply(mut self, out: &mut BytesMut) -> bool {
        if self.replaced.is_empty() && self.added.is_empty() {
            out.extend_from_slice(self.data.as_bytes());
            return false;
        }
        self.replaced.sort_unstable_by_key(|(range, _)| range.start);
        let data = self.data.as_bytes();
        let mut at = 0;
        for (range, text) in &self.replaced {
            out.extend_from_slice(&data[at..range.start]);
            out.extend_from_slice(text.as_bytes());
            at = range.end;
        }
        // `Peek` parsed, so the text is an object: its last brace closes it, and `type` made it non-empty or nothing did.
        let close = self.data.rfind('}').unwrap_or(data.len());
        out.extend_from_slice(&data[at..close]);
        let is_empty = self.data[..close].trim_end().ends_with('{');
        let added = if is_empty {
            self.added.get(1..).unwrap_or_default()
        } else {
            &self.added
        };
        out.extend_from_slice(added.as_bytes());
        out.extend_from_slice(&data[close..]);
        true
    }
}

fn itoa(mut number: u64, digits: &mut [u8; 20]) -> &str {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    std::str::from_utf8(&digits[at..]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(data: &str, fields: &Fields<'_>) -> (String, bool) {
        let mut out = BytesMut::new();
        let changed = write(data, &Peek::parse(data).unwrap(), fields, &mut out);
        (String::from_utf8(out.to_vec()).unwrap(), changed)
    }

    #[test]
    fn null_fields_are_replaced_and_an_array_is_no_event() {
        let data = r#"{"item_id":null,"sequence_number":null,"output_index":null,"logprobs":null}"#;
        let fields = Fields {
            sequence_number: 3,
            item_id: Some("m"),
            output_index: Some(0),
            logprobs: true,
            ..Fields::default()
        };
        assert_eq!(
            written(data, &fields).0,
            r#"{"item_id":"m","sequence_number":3,"output_index":0,"logprobs":[]}"#
        );
        assert!(Peek::parse(r#"["x}",null,9,0,0,0,null,null]"#).is_err());
    }

    #[test]
    fn right_fields_leave_the_text_alone() {
        let data = r#"{ "type":"x", "n":1E2, "sequence_number":7 , "item_id":"m" }"#;
        let fields = Fields {
            sequence_number: 7,
            item_id: Some("m"),
            ..Fields::default()
        };
        assert_eq!(written(data, &fields), (data.to_owned(), false));
    }

    #[test]
    fn wrong_fields_are_replaced_where_they_stand_and_missing_ones_added_at_the_end() {
        let fields = Fields {
            sequence_number: 12,
            item_id: Some("a\"b"),
            output_index: Some(3),
            content_index: Some(0),
            logprobs: true,
            ..Fields::default()
        };
        let data = r#"{"item_id":"old","sequence_number":7,"delta":"}","n":1E2}"#;
        let (text, changed) = written(data, &fields);
        assert!(changed);
        assert_eq!(
            text,
            r#"{"item_id":"a\"b","sequence_number":12,"delta":"}","n":1E2,"output_index":3,"content_index":0,"logprobs":[]}"#
        );
        assert_eq!(
            written("{ }", &Fields::default()).0,
            r#"{ "sequence_number":0}"#
        );
    }
}
