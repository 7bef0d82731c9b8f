//! [`EventKind`], the `type` of a stream event, and the makers of the events both sides synthesise: named after the
//! events, they are the one place that fills every required field.
//!
//! Source: OpenAI OpenAPI 2.3.0 `ResponseStreamEvent`; which fields Codex insists on was measured (`content_index` on
//! reasoning text, `summary_index` on summaries).

use serde_json::{Value, json};

use crate::Object;

macro_rules! event_kinds {
    ($($variant:ident = $name:literal,)*) => {
        /// What happened. A type that is not listed is [`EventKind::Other`] and passes as it came.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum EventKind {
            $($variant,)*
            Other,
        }

        impl EventKind {
            /// The kind of a dotted name such as `response.created`.
            pub fn from_name(name: &str) -> Self {
                match name {
                    $($name => Self::$variant,)*
                    _ => Self::Other,
                }
            }

            /// The dotted name; `""` for [`EventKind::Other`].
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                    Self::Other => "",
                }
            }
        }
    };
}

event_kinds! {
    Created = "response.created",
    Queued = "response.queued",
    InProgress = "response.in_progress",
    Completed = "response.completed",
    Failed = "response.failed",
    Incomplete = "response.incomplete",
    ItemAdded = "response.output_item.added",
    ItemDone = "response.output_item.done",
    PartAdded = "response.content_part.added",
    PartDone = "response.content_part.done",
    TextDelta = "response.output_text.delta",
    TextDone = "response.output_text.done",
    AnnotationAdded = "response.output_text.annotation.added",
    RefusalDelta = "response.refusal.delta",
    RefusalDone = "response.refusal.done",
    ReasoningDelta = "response.reasoning_text.delta",
    ReasoningDone = "response.reasoning_text.done",
    SummaryPartAdded = "response.reasoning_summary_part.added",
    SummaryPartDone = "response.reasoning_summary_part.done",
    SummaryDelta = "response.reasoning_summary_text.delta",
    SummaryDone = "response.reasoning_summary_text.done",
    ArgumentsDelta = "response.function_call_arguments.delta",
    ArgumentsDone = "response.function_call_arguments.done",
    CustomInputDelta = "response.custom_tool_call_input.delta",
    CustomInputDone = "response.custom_tool_call_input.done",
    Error = "error",
}

impl EventKind {
    /// `completed`, `failed` or `incomplete`: nothing may follow it.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Incomplete)
    }
}

/// An event without its `sequence_number`, which whoever sends it fills in.
pub type Event = Object;

fn event<const N: usize>(kind: EventKind, fields: [(&str, Value); N]) -> Event {
    let mut event = Event::new();
    event.insert("type".into(), kind.as_str().into());
    event.insert("sequence_number".into(), 0.into());
    event.extend(fields.map(|(key, value)| (key.to_owned(), value)));
    event
}

/// `response.created`, `.in_progress`, or a terminal event, around the response resource.
pub fn lifecycle(kind: EventKind, response: Object) -> Event {
    event(kind, [("response", response.into())])
}

/// `output_item.added`; `item` is whole but for its content.
pub fn item_added(output_index: usize, item: Object) -> Event {
    event(
        EventKind::ItemAdded,
        [("output_index", output_index.into()), ("item", item.into())],
    )
}

/// `output_item.done`; what Codex keeps of an item is this one's `item`.
pub fn item_done(output_index: usize, item: Object) -> Event {
    event(
        EventKind::ItemDone,
        [("output_index", output_index.into()), ("item", item.into())],
    )
}

/// Where inside a response a content event belongs.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// As in the item's own `id`.
    pub item_id: &'a str,
    /// The item's place in `response.output`.
    pub output_index: usize,
    /// The part's place in the item's `content`.
    pub content_index: usize,
}

impl Place<'_> {
    fn event<const N: usize>(self, kind: EventKind, fields: [(&str, Value); N]) -> Event {
        let mut event = event(
            kind,
            [
                ("item_id", self.item_id.into()),
                ("output_index", self.output_index.into()),
                ("content_index", self.content_index.into()),
            ],
        );
        event.extend(fields.map(|(key, value)| (key.to_owned(), value)));
        event
    }
}

/// `content_part.added` or `.done`; `part` is complete, e.g. `{type: output_text, text, annotations, logprobs}`.
pub fn part(kind: EventKind, place: Place<'_>, part: Value) -> Event {
    place.event(kind, [("part", part)])
}

/// `output_text.delta`.
pub fn text_delta(place: Place<'_>, delta: &str) -> Event {
    place.event(
        EventKind::TextDelta,
        [("delta", delta.into()), ("logprobs", json!([]))],
    )
}

/// `output_text.done`.
pub fn text_done(place: Place<'_>, text: &str) -> Event {
    place.event(
        EventKind::TextDone,
        [("text", text.into()), ("logprobs", json!([]))],
    )
}

/// `reasoning_text.delta`.
pub fn reasoning_delta(place: Place<'_>, delta: &str) -> Event {
    place.event(EventKind::ReasoningDelta, [("delta", delta.into())])
}

/// `reasoning_text.done`.
pub fn reasoning_done(place: Place<'_>, text: &str) -> Event {
    place.event(EventKind::ReasoningDone, [("text", text.into())])
}

/// `refusal.delta`.
pub fn refusal_delta(place: Place<'_>, delta: &str) -> Event {
    place.event(EventKind::RefusalDelta, [("delta", delta.into())])
}

/// `refusal.done`.
pub fn refusal_done(place: Place<'_>, refusal: &str) -> Event {
    place.event(EventKind::RefusalDone, [("refusal", refusal.into())])
}

/// `reasoning_summary_text.done`.
pub fn summary_done(item_id: &str, output_index: usize, summary_index: u64, text: &str) -> Event {
    let fields = [
        ("summary_index", summary_index.into()),
        ("text", text.into()),
    ];
    of_item(EventKind::SummaryDone, item_id, output_index, fields)
}

/// `reasoning_summary_part.done`; `part` is `{type: summary_text, text}`.
pub fn summary_part_done(
    item_id: &str,
    output_index: usize,
    summary_index: u64,
    part: Value,
) -> Event {
    let fields = [("summary_index", summary_index.into()), ("part", part)];
    of_item(EventKind::SummaryPartDone, item_id, output_index, fields)
}

fn of_item<const N: usize>(
    kind: EventKind,
    item_id: &str,
    output_index: usize,
    fields: [(&str, Value); N],
) -> Event {
    let mut event = event(
        kind,
        [
            ("item_id", item_id.into()),
            ("output_index", output_index.into()),
        ],
    );
    event.extend(fields.map(|(key, value)| (key.to_owned(), value)));
    event
}

/// `function_call_arguments.delta`: more of the arguments' JSON text.
pub fn arguments_delta(item_id: &str, output_index: usize, delta: &str) -> Event {
    of_item(
        EventKind::ArgumentsDelta,
        item_id,
        output_index,
        [("delta", delta.into())],
    )
}

/// `function_call_arguments.done`: the whole of the arguments' JSON text, and the function's name.
pub fn arguments_done(item_id: &str, output_index: usize, name: &str, arguments: &str) -> Event {
    let fields = [("name", name.into()), ("arguments", arguments.into())];
    of_item(EventKind::ArgumentsDone, item_id, output_index, fields)
}

/// `custom_tool_call_input.delta`: more of a custom tool's plain input.
pub fn custom_input_delta(item_id: &str, output_index: usize, delta: &str) -> Event {
    of_item(
        EventKind::CustomInputDelta,
        item_id,
        output_index,
        [("delta", delta.into())],
    )
}

/// `custom_tool_call_input.done`: the whole of a custom tool's plain input.
pub fn custom_input_done(item_id: &str, output_index: usize, input: &str) -> Event {
    of_item(
        EventKind::CustomInputDone,
        item_id,
        output_index,
        [("input", input.into())],
    )
}
