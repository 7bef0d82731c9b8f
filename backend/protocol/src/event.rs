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

fn event(kind: EventKind, fields: Value) -> Event {
    let mut event = Event::new();
    event.insert("type".into(), kind.as_str().into());
    event.insert("sequence_number".into(), 0.into());
    if let Value::Object(fields) = fields {
        event.extend(fields);
    }
    event
}

/// `response.created`, `.in_progress`, or a terminal event, around the response resource.
pub fn lifecycle(kind: EventKind, response: Object) -> Event {
    event(kind, json!({ "response": response }))
}

pub fn item_added(output_index: usize, item: Object) -> Event {
    event(
        EventKind::ItemAdded,
        json!({"output_index": output_index, "item": item}),
    )
}

pub fn item_done(output_index: usize, item: Object) -> Event {
    event(
        EventKind::ItemDone,
        json!({"output_index": output_index, "item": item}),
    )
}

/// `content_part.added` or `.done`; `part` is complete, e.g. `{type: output_text, text, annotations, logprobs}`.
pub fn part(
    kind: EventKind,
    item_id: &str,
    output_index: usize,
    content_index: usize,
    part: Value,
) -> Event {
    event(
        kind,
        json!({"item_id": item_id, "output_index": output_index, "content_index": content_index, "part": part}),
    )
}

/// `output_text.delta`.
pub fn text_delta(item_id: &str, output_index: usize, content_index: usize, delta: &str) -> Event {
    event(
        EventKind::TextDelta,
        json!({"item_id": item_id, "output_index": output_index, "content_index": content_index,
            "delta": delta, "logprobs": []}),
    )
}

/// `output_text.done`.
pub fn text_done(item_id: &str, output_index: usize, content_index: usize, text: &str) -> Event {
    event(
        EventKind::TextDone,
        json!({"item_id": item_id, "output_index": output_index, "content_index": content_index,
            "text": text, "logprobs": []}),
    )
}

/// `reasoning_text.done`.
pub fn reasoning_done(
    item_id: &str,
    output_index: usize,
    content_index: usize,
    text: &str,
) -> Event {
    event(
        EventKind::ReasoningDone,
        json!({"item_id": item_id, "output_index": output_index, "content_index": content_index, "text": text}),
    )
}

pub fn arguments_delta(item_id: &str, output_index: usize, delta: &str) -> Event {
    event(
        EventKind::ArgumentsDelta,
        json!({"item_id": item_id, "output_index": output_index, "delta": delta}),
    )
}

pub fn arguments_done(item_id: &str, output_index: usize, name: &str, arguments: &str) -> Event {
    event(
        EventKind::ArgumentsDone,
        json!({"item_id": item_id, "output_index": output_index, "name": name, "arguments": arguments}),
    )
}

pub fn custom_input_delta(item_id: &str, output_index: usize, delta: &str) -> Event {
    event(
        EventKind::CustomInputDelta,
        json!({"item_id": item_id, "output_index": output_index, "delta": delta}),
    )
}

pub fn custom_input_done(item_id: &str, output_index: usize, input: &str) -> Event {
    event(
        EventKind::CustomInputDone,
        json!({"item_id": item_id, "output_index": output_index, "input": input}),
    )
}
