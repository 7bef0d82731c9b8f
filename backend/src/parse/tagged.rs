//! `<tool_call> … </tool_call>`: Hermes writes one object a pair of tags, SmolLM2 one list; both are read.

pub(super) const OPEN: &str = "<tool_call>";
pub(super) const CLOSE: &str = "</tool_call>";

/// Looked for in text.
pub(super) const MARKERS: [&str; 1] = [OPEN];
