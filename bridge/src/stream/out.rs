//! The bytes on their way to the client: counts `sequence_number` over what is really sent, and keeps the text of an
//! event that needs no change.

use bytes::BytesMut;
use protocol::{EventKind, Object, sse};

use super::peek::{self, Fields, Peek};

/// What one stream has sent so far, for the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sent {
    pub verbatim: u64,
    pub rewritten: u64,
}

/// Frames not yet handed to the connection.
#[derive(Debug, Default)]
pub(super) struct Out {
    bytes: BytesMut,
    sequence: u64,
    sent: Sent,
    scratch: BytesMut,
}

impl Out {
    pub(super) fn bytes(&mut self) -> &mut BytesMut {
        &mut self.bytes
    }

    pub(super) fn sent(&self) -> Sent {
        self.sent
    }

    /// Sends an event of our own making, or one that was changed as a value.
    pub(super) fn event(&mut self, mut event: Object) {
        event.insert("sequence_number".into(), self.sequence.into());
        let kind = protocol::object::str_or_empty(&event, "type").to_owned();
        // A map of JSON values always prints.
        let data = serde_json::to_string(&event).unwrap_or_default();
        sse::encode(&kind, &data, &mut self.bytes);
        self.sequence += 1;
        self.sent.rewritten += 1;
    }

    /// Sends `data` as it came but for `fields`. `name` goes on the `event:` line.
    pub(super) fn text(&mut self, name: &str, data: &str, peek: &Peek<'_>, mut fields: Fields<'_>) {
        fields.sequence_number = self.sequence;
        self.sequence += 1;
        let changed = if data.contains('\n') {
            self.scratch.clear();
            let changed = peek::write(data, peek, &fields, &mut self.scratch);
            let text = std::str::from_utf8(&self.scratch).unwrap_or_default();
            sse::encode(name, text, &mut self.bytes);
            changed
        } else {
            self.bytes.reserve(name.len() + data.len() + 128);
            self.bytes.extend_from_slice(b"event: ");
            self.bytes.extend_from_slice(name.as_bytes());
            self.bytes.extend_from_slice(b"\ndata: ");
            let changed = peek::write(data, peek, &fields, &mut self.bytes);
            self.bytes.extend_from_slice(b"\n\n");
            changed
        };
        if changed {
            self.sent.rewritten += 1;
        } else {
            self.sent.verbatim += 1;
        }
    }

    /// Sends a kept text again: it is read once more for the places of its fields.
    pub(super) fn kept(&mut self, kind: EventKind, data: &str, fields: Fields<'_>) {
        if let Ok(peek) = Peek::parse(data) {
            self.text(kind.as_str(), data, &peek, fields);
        }
    }

    pub(super) fn done(&mut self) {
        self.bytes.extend_from_slice(sse::DONE);
    }
}
