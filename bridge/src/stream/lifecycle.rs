//! One output item from its announcement to its end: what is known of it, and what of it waits.

use protocol::{EventKind, ItemKind, Object, Phase, event, object::str_or_empty};
use serde_json::{Value, json};

use crate::translate::Tool;
use crate::translate::restore::Unwrap;

/// How far an item has come on the client's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing of it was sent: an earlier item must end first, or its phase is not known.
    Waiting,
    /// Announced; its events flow.
    Open,
    /// Its end was sent.
    Finished,
    /// Never sent: a further call where the client allowed one.
    Suppressed,
}

/// An event whose item changed (or did not) on the way: the text is kept as long as it may leave as it came.
#[derive(Debug, Clone)]
pub(super) enum Kept {
    Text(String),
    Changed(Object),
}

/// What a content part is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartKind {
    Text,
    Refusal,
    Reasoning,
    /// One of a reasoning item's `summary`, not of its content.
    Summary,
}

/// One part of a message or reasoning item.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) kind: PartKind,
    pub(super) text: String,
    pub(super) text_ended: bool,
    pub(super) ended: bool,
}

impl PartKind {
    /// Of an item's content, as far as the item tells.
    pub(super) fn of(item: ItemKind) -> Self {
        match item {
            ItemKind::Reasoning => Self::Reasoning,
            _ => Self::Text,
        }
    }
}

impl Part {
    pub(super) fn new(kind: PartKind) -> Self {
        Self {
            kind,
            text: String::new(),
            text_ended: false,
            ended: false,
        }
    }

    /// Takes the event that ends the text; one that no delta brought is in it.
    pub(super) fn end_text(&mut self, data: &str) {
        self.text_ended = true;
        if !self.text.is_empty() {
            return;
        }
        let key = match self.kind {
            PartKind::Refusal => "refusal",
            PartKind::Text | PartKind::Reasoning | PartKind::Summary => "text",
        };
        if let Ok(event) = serde_json::from_str::<Object>(data) {
            str_or_empty(&event, key).clone_into(&mut self.text);
        }
    }

    /// As it stands in an item.
    pub(super) fn value(&self) -> Value {
        self.kind.value(&self.text)
    }
}

impl PartKind {
    /// A part of this kind with all its fields.
    pub(super) fn value(self, text: &str) -> Value {
        match self {
            Self::Text => {
                json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
            }
            Self::Refusal => json!({"type": "refusal", "refusal": text}),
            Self::Reasoning => json!({"type": "reasoning_text", "text": text}),
            Self::Summary => json!({"type": "summary_text", "text": text}),
        }
    }
}

#[derive(Debug)]
pub(super) struct Lifecycle {
    pub(super) kind: ItemKind,
    /// The id in every event that leaves.
    pub(super) id: String,
    /// How upstream refers to it; either may be missing.
    pub(super) upstream_index: Option<u64>,
    pub(super) call_id: Option<String>,
    /// `output_index` in every event that leaves.
    pub(super) index: usize,
    pub(super) stage: Stage,
    /// The announcement, until it is sent.
    pub(super) added: Option<Kept>,
    /// The announced item, in upstream's form.
    pub(super) announced: Option<Object>,
    /// Content events that came before the item could open.
    pub(super) queue: Vec<(EventKind, String)>,
    /// The end, until its turn comes; with the item as it will stand in the final output.
    pub(super) end: Option<Kept>,
    /// The finished item: the client's form of it.
    pub(super) item: Option<Object>,
    /// The upstream gave this phase itself (`None`: it gave none, or null).
    pub(super) given_phase: bool,
    pub(super) parts: Vec<Part>,
    /// With the `summary_index` of each.
    pub(super) summary: Vec<(u64, Part)>,
    pub(super) arguments: String,
    pub(super) arguments_sent: bool,
    pub(super) arguments_ended: bool,
    pub(super) tool: Option<Tool>,
    pub(super) unwrap: Option<Unwrap>,
    /// A call whose arguments are no JSON object.
    pub(super) unfinished: bool,
    /// Upstream itself says that the call was cut.
    pub(super) says_cut: bool,
    /// A call that was cut: announced, never ended.
    pub(super) cut: bool,
    /// Begun by us because its content came before its announcement.
    pub(super) begun: bool,
}

impl Lifecycle {
    pub(super) fn new(kind: ItemKind, id: String, index: usize) -> Self {
        Self {
            kind,
            id,
            upstream_index: None,
            call_id: None,
            index,
            stage: Stage::Waiting,
            added: None,
            announced: None,
            queue: Vec::new(),
            end: None,
            item: None,
            given_phase: false,
            parts: Vec::new(),
            summary: Vec::new(),
            arguments: String::new(),
            arguments_sent: false,
            arguments_ended: false,
            tool: None,
            unwrap: None,
            unfinished: false,
            says_cut: false,
            cut: false,
            begun: false,
        }
    }

    /// Where the events of content part `index` belong.
    pub(super) fn place(&self, index: usize) -> event::Place<'_> {
        event::Place {
            item_id: &self.id,
            output_index: self.index,
            content_index: index,
        }
    }

    /// Bytes of streamed text kept until the item's end, and what keeps them apart.
    pub(super) fn kept_bytes(&self) -> usize {
        let summary = self.summary.iter().map(|(_, part)| part);
        let parts = self.parts.iter().chain(summary);
        let text = parts.map(|part| part.text.len()).sum::<usize>();
        self.arguments.len() + text + self.part_bytes()
    }

    pub(super) fn part_bytes(&self) -> usize {
        (self.parts.len() + self.summary.len()) * size_of::<(u64, Part)>()
    }

    pub(super) fn is_call(&self) -> bool {
        self.kind.is_call()
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Finished | Stage::Suppressed)
    }

    /// Whether the client's form of this call carries plain arguments.
    pub(super) fn has_plain_arguments(&self) -> bool {
        self.tool
            .as_ref()
            .is_none_or(|tool| tool.id.kind == protocol::ToolKind::Function)
    }

    /// Whether events of `kind` can belong to this item.
    pub(super) fn takes(&self, kind: EventKind) -> bool {
        match kind {
            EventKind::TextDelta
            | EventKind::TextDone
            | EventKind::AnnotationAdded
            | EventKind::RefusalDelta
            | EventKind::RefusalDone => self.kind == ItemKind::Message,
            EventKind::PartAdded | EventKind::PartDone => {
                matches!(self.kind, ItemKind::Message | ItemKind::Reasoning)
            }
            EventKind::ReasoningDelta
            | EventKind::ReasoningDone
            | EventKind::SummaryPartAdded
            | EventKind::SummaryPartDone
            | EventKind::SummaryDelta
            | EventKind::SummaryDone => self.kind == ItemKind::Reasoning,
            EventKind::ArgumentsDelta | EventKind::ArgumentsDone => {
                self.kind == ItemKind::FunctionCall
            }
            EventKind::CustomInputDelta | EventKind::CustomInputDone => {
                self.kind == ItemKind::CustomToolCall
            }
            _ => true,
        }
    }
}

/// Whether `item` carries a phase; a null one counts as missing, an unknown word as given.
pub(super) fn has_phase(item: &Object) -> bool {
    item.get("phase").is_some_and(|phase| !phase.is_null())
}

/// Writes `phase` on a message that has none.
pub(super) fn set_phase(item: &mut Object, phase: Phase) {
    if !has_phase(item) {
        item.insert("phase".into(), phase.as_str().into());
    }
}

/// The text of content part `index`, if the item has it, and whether it is a refusal.
pub(super) fn part_text(item: &Object, index: usize) -> Option<(&str, bool)> {
    let part = item.get("content")?.as_array()?.get(index)?.as_object()?;
    if is_refusal(part) {
        return Some((str_or_empty(part, "refusal"), true));
    }
    Some((part.get("text")?.as_str()?, false))
}

pub(super) fn is_refusal(part: &Object) -> bool {
    part.get("type").and_then(Value::as_str) == Some("refusal")
}
