//! [`Segment`], and where the states of the parser put theirs.

/// A piece of an answer. Neighbours of the same kind belong together.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Segment {
    /// Text for the user; it stands at byte `at` of the decoded text.
    Text {
        text: String,
        at: usize,
    },
    Reasoning(String),
    CallStart {
        name: String,
    },
    /// Bytes of the arguments, raw JSON.
    CallArguments(String),
    /// The call is whole.
    CallEnd,
}

/// Segments of the token that is being read; neighbours are merged.
#[derive(Debug, Default)]
pub(super) struct Sink {
    segments: Vec<Segment>,
}

impl Sink {
    pub(super) fn text(&mut self, new: &str, new_at: usize) {
        if new.is_empty() {
            return;
        }
        match self.segments.last_mut() {
            Some(Segment::Text { text, at }) if *at + text.len() == new_at => text.push_str(new),
            _ => self.segments.push(Segment::Text {
                text: new.to_owned(),
                at: new_at,
            }),
        }
    }

    pub(super) fn reasoning(&mut self, new: &str) {
        match self.segments.last_mut() {
            _ if new.is_empty() => {}
            Some(Segment::Reasoning(text)) => text.push_str(new),
            _ => self.segments.push(Segment::Reasoning(new.to_owned())),
        }
    }

    pub(super) fn call_start(&mut self, name: &str) {
        let name = name.to_owned();
        self.segments.push(Segment::CallStart { name });
    }

    pub(super) fn arguments(&mut self, new: &str) {
        match self.segments.last_mut() {
            _ if new.is_empty() => {}
            Some(Segment::CallArguments(text)) => text.push_str(new),
            _ => self.segments.push(Segment::CallArguments(new.to_owned())),
        }
    }

    pub(super) fn call_end(&mut self) {
        self.segments.push(Segment::CallEnd);
    }

    pub(super) fn drain(&mut self, out: &mut Vec<Segment>) {
        out.append(&mut self.segments);
    }
}
