//! Which item an event belongs to, and when an item may open and end. See the invariants in `rewriter`.

use protocol::{
    ApiError, EventKind, ItemKind, Object, Phase, ToolKind, event,
    object::{optional_str, str_or_empty},
};
use serde_json::Value;

use super::{
    lifecycle::{Kept, Lifecycle, Stage, has_phase, set_phase},
    parts,
    peek::{Fields, Peek},
    rewriter::{Rewriter, parse, upstream_error},
    unwrap::Unwrap,
};
use crate::{config::PhasePolicy, translate::restore};

/// The kind of item an event implies, for streams that never announce their items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Message,
    Reasoning,
    Call,
    Any,
}

impl Family {
    pub(super) fn of(kind: EventKind) -> Self {
        match kind {
            EventKind::TextDelta
            | EventKind::TextDone
            | EventKind::AnnotationAdded
            | EventKind::RefusalDelta
            | EventKind::RefusalDone => Self::Message,
            EventKind::ReasoningDelta
            | EventKind::ReasoningDone
            | EventKind::SummaryPartAdded
            | EventKind::SummaryPartDone
            | EventKind::SummaryDelta
            | EventKind::SummaryDone => Self::Reasoning,
            EventKind::ArgumentsDelta | EventKind::ArgumentsDone => Self::Call,
            _ => Self::Any,
        }
    }
}

impl Rewriter {
    pub(super) fn item_added(&mut self, data: &str) -> Result<(), ApiError> {
        let event = parse(data)?;
        let came = item_of(&event, EventKind::ItemAdded)?;
        let (id, call_id) = (text(came, "id"), text(came, "call_id"));
        let kind = ItemKind::of(came);
        let at = match id.and_then(|id| self.by_id.get(id)) {
            None => self.new_item(kind, id, prefix(kind)),
            Some(at) if self.items[*at].begun => return self.late_announcement(*at, data, event),
            Some(at) => {
                let id = &self.items[*at].id;
                return Err(upstream_error(format!(
                    "the model server announced the item {id:?} twice"
                )));
            }
        };
        let index = event.get("output_index").and_then(Value::as_u64);
        let call_id = call_id.map(str::to_owned);
        let item = &mut self.items[at];
        item.upstream_index = index;
        item.call_id = call_id;
        if self.is_surplus_call(at) {
            return Ok(());
        }
        self.held += data.len();
        let kept = self.announce(at, data, event);
        self.items[at].added = Some(kept);
        self.advance();
        Ok(())
    }

    /// The announcement of an item whose content came first. A call was waiting for its name; any other has begun.
    fn late_announcement(&mut self, at: usize, data: &str, event: Object) -> Result<(), ApiError> {
        self.items[at].begun = false;
        if self.items[at].stage == Stage::Waiting && self.items[at].added.is_none() {
            self.held += data.len();
            let kept = self.announce(at, data, event);
            self.items[at].added = Some(kept);
            self.advance();
        }
        Ok(())
    }

    pub(super) fn item_done(&mut self, data: &str) -> Result<(), ApiError> {
        let event = parse(data)?;
        let came = item_of(&event, EventKind::ItemDone)?;
        let kind = ItemKind::of(came);
        let index = event.get("output_index").and_then(Value::as_u64);
        let at = match self.find_item(came, kind, index) {
            Some(at) => at,
            None => self.adopt(came, kind),
        };
        let item = &self.items[at];
        if item.stage == Stage::Suppressed {
            return Ok(());
        }
        if item.end.is_some() || item.stage == Stage::Finished {
            return Err(upstream_error(format!(
                "the model server ended the item {:?} twice",
                item.id
            )));
        }
        self.held += data.len();
        if item.stage == Stage::Waiting && item.added.is_none() {
            let announced = bare(came);
            let kept = self.announce(at, "", announced);
            self.items[at].added = Some(kept);
        }
        self.end_item(at, Some(data), event);
        self.advance();
        Ok(())
    }

    /// Any event that belongs to an item, and those that belong to none.
    pub(super) fn content(
        &mut self,
        kind: EventKind,
        name: &str,
        data: &str,
        peek: &Peek<'_>,
        family: Family,
    ) -> Result<(), ApiError> {
        let Some(at) = self.find(kind, peek, family) else {
            self.out.text(name, data, peek, Fields::default());
            return Ok(());
        };
        let fill = self.settings.repair;
        let item = &mut self.items[at];
        match item.stage {
            Stage::Open if item.end.is_none() => {
                let before = item.arguments.len();
                parts::forward(item, kind, name, data, peek, fill, &mut self.out);
                // What accumulates is the delta; arguments given whole are counted as they come.
                self.held += peek.delta().map_or_else(
                    || item.arguments.len().saturating_sub(before),
                    |delta| delta.len(),
                );
            }
            Stage::Waiting => {
                self.held += data.len() + size_of::<(EventKind, String)>();
                item.queue.push((kind, data.to_owned()));
            }
            Stage::Open | Stage::Finished => {
                return Err(upstream_error(format!(
                    "the model server sent {name} for the item {:?} after that item's end",
                    item.id
                )));
            }
            Stage::Suppressed => {}
        }
        Ok(())
    }

    /// Opens and ends whatever may now open and end, in order.
    pub(super) fn advance(&mut self) {
        let mut open_call = false;
        let mut ends_in_order = true;
        for at in self.first_unfinished..self.items.len() {
            if self.items[at].is_over() {
                continue;
            }
            if self.items[at].stage == Stage::Waiting {
                let may_open = if self.items[at].is_call() {
                    ends_in_order
                } else {
                    !open_call && (!self.is_held_whole(at) || self.phase_of(at).is_some())
                };
                // Without a name a call cannot be announced.
                if may_open && self.items[at].added.is_some() {
                    self.open(at);
                }
            }
            if ends_in_order && self.may_end(at) {
                self.send_end(at);
            } else {
                ends_in_order = false;
                open_call |= self.items[at].is_call();
                if open_call {
                    break;
                }
            }
        }
        while self
            .items
            .get(self.first_unfinished)
            .is_some_and(Lifecycle::is_over)
        {
            self.first_unfinished += 1;
        }
    }

    /// The client's form of an item that ended: restored, with its id, and its kept frame.
    pub(super) fn end_item(&mut self, at: usize, data: Option<&str>, mut event: Object) {
        let Some(Value::Object(came)) = event.get("item").cloned() else {
            return;
        };
        let item = &mut self.items[at];
        item.given_phase |= has_phase(&came);
        if item.is_call() {
            let arguments = str_or_empty(&came, "arguments");
            let arguments = if arguments.is_empty() {
                "{}"
            } else {
                arguments
            };
            item.unfinished = serde_json::from_str::<Object>(arguments).is_err();
        }
        let mut wanted = came.clone();
        if str_or_empty(&wanted, "arguments").is_empty() && !item.arguments.is_empty() {
            wanted.insert("arguments".into(), item.arguments.as_str().into());
        }
        self.restore(at, &mut wanted);
        let item = &mut self.items[at];
        if item.kind == ItemKind::Message && wanted.get("phase").is_some_and(Value::is_null) {
            wanted.shift_remove("phase");
        }
        if self.settings.repair {
            complete_item(&mut wanted);
        }
        fill_text(&mut wanted, item);
        event.insert("type".into(), EventKind::ItemDone.as_str().into());
        let kept = match data {
            Some(data) if wanted == came => Kept::Text(data.to_owned()),
            _ => {
                event.insert("item".into(), wanted.clone().into());
                Kept::Changed(event)
            }
        };
        let item = &mut self.items[at];
        item.item = Some(wanted);
        item.end = Some(kept);
    }

    /// A lifecycle for an item that was never announced; its announcement is made from `came`.
    pub(super) fn adopt(&mut self, came: &Object, kind: ItemKind) -> usize {
        let at = self.new_item(kind, text(came, "id"), prefix(kind));
        self.items[at].call_id = text(came, "call_id").map(str::to_owned);
        if self.is_surplus_call(at) {
            return at;
        }
        let kept = self.announce(at, "", bare(came));
        self.items[at].added = Some(kept);
        at
    }

    /// The item that `came` ends or repeats: by id, by call id, by index, else the first of its kind without an end.
    pub(super) fn find_item(
        &self,
        came: &Object,
        kind: ItemKind,
        index: Option<u64>,
    ) -> Option<usize> {
        if let Some(at) = text(came, "id").and_then(|id| self.by_id.get(id)) {
            return Some(*at);
        }
        if let Some(call_id) = text(came, "call_id") {
            let same = |item: &Lifecycle| item.call_id.as_deref() == Some(call_id);
            return self.items.iter().position(same).or_else(|| {
                // A call announced without its call id.
                self.items.iter().position(|item| {
                    item.kind == kind
                        && item.call_id.is_none()
                        && item.end.is_none()
                        && !item.is_over()
                })
            });
        }
        let open = |item: &&Lifecycle| item.kind == kind && item.end.is_none() && !item.is_over();
        let unfinished = || self.items[self.first_unfinished..].iter().filter(open);
        unfinished()
            .find(|item| index.is_some() && item.upstream_index == index)
            .or_else(|| unfinished().next())
            .map(|found| self.position(found))
    }

    fn position(&self, item: &Lifecycle) -> usize {
        self.items[self.first_unfinished..]
            .iter()
            .position(|other| std::ptr::eq(other, item))
            .map_or(0, |at| at + self.first_unfinished)
    }

    fn find(&mut self, kind: EventKind, peek: &Peek<'_>, family: Family) -> Option<usize> {
        let id = peek.item_id();
        if let Some(at) = id.as_deref().and_then(|id| self.by_id.get(id)) {
            return Some(*at);
        }
        let index = peek.output_index();
        let open = |item: &&Lifecycle| item.takes(kind) && item.end.is_none() && !item.is_over();
        if family == Family::Any && kind == EventKind::Other {
            // An event we do not know names its item or has none.
            let named = index.is_some() || id.is_some();
            let found = self
                .items
                .iter()
                .rev()
                .filter(open)
                .find(|item| named && item.upstream_index == index)?;
            return self.items.iter().position(|item| std::ptr::eq(item, found));
        }
        let mut unfinished = self.items[self.first_unfinished..]
            .iter()
            .rev()
            .filter(open);
        let found = match index {
            Some(_) => unfinished
                .clone()
                .find(|item| item.upstream_index == index)
                .or_else(|| unfinished.next()),
            None => unfinished.next(),
        };
        if let Some(found) = found {
            return Some(self.position(found));
        }
        let item_kind = match family {
            Family::Message => ItemKind::Message,
            Family::Reasoning => ItemKind::Reasoning,
            Family::Call => ItemKind::FunctionCall,
            Family::Any => return None,
        };
        Some(self.begin(item_kind, id.as_deref()))
    }

    /// An item that upstream starts to fill without announcing it. A call waits: it has no name yet.
    fn begin(&mut self, kind: ItemKind, id: Option<&str>) -> usize {
        let at = self.new_item(kind, id, prefix(kind));
        self.items[at].begun = true;
        if kind == ItemKind::FunctionCall {
            self.is_surplus_call(at);
            return at;
        }
        let mut item = Object::new();
        item.insert("id".into(), self.items[at].id.as_str().into());
        let list = |item: &mut Object, key: &str| item.insert(key.into(), Value::Array(Vec::new()));
        if kind == ItemKind::Message {
            item.insert("type".into(), "message".into());
            item.insert("role".into(), "assistant".into());
        } else {
            item.insert("type".into(), "reasoning".into());
            list(&mut item, "summary");
        }
        list(&mut item, "content");
        item.insert("status".into(), "in_progress".into());
        let event = event::item_added(0, item);
        let kept = self.announce(at, "", event);
        self.items[at].added = Some(kept);
        self.advance();
        at
    }

    /// Marks a call beyond the one the client allows; it never reaches the client.
    fn is_surplus_call(&mut self, at: usize) -> bool {
        if !self.items[at].is_call() {
            return false;
        }
        if self.translation.single_call && self.last_call.is_some() {
            self.items[at].stage = Stage::Suppressed;
            self.announced -= 1;
            self.suppressed += 1;
            return true;
        }
        self.last_call = Some(at);
        false
    }

    /// The client's form of an announcement.
    fn announce(&mut self, at: usize, data: &str, mut event: Object) -> Kept {
        let Some(Value::Object(came)) = event.get("item").cloned() else {
            return Kept::Changed(event);
        };
        self.items[at].given_phase |= has_phase(&came);
        self.items[at].announced = Some(came.clone());
        let mut wanted = came.clone();
        let tool = self
            .translation
            .catalog
            .resolve(str_or_empty(&came, "name"))
            .cloned();
        let item = &mut self.items[at];
        if item.kind == ItemKind::FunctionCall {
            let streams = tool.as_ref().is_some_and(|tool| {
                tool.id.kind == ToolKind::Custom
                    && !(self.translation.repair_patch_markers && tool.is_apply_patch())
            });
            item.unwrap = streams.then(Unwrap::new);
            item.tool = tool;
        }
        self.restore(at, &mut wanted);
        if wanted.get("phase").is_some_and(Value::is_null) {
            wanted.shift_remove("phase");
        }
        event.insert("type".into(), EventKind::ItemAdded.as_str().into());
        if wanted == came && !data.is_empty() {
            return Kept::Text(data.to_owned());
        }
        event.insert("item".into(), wanted.into());
        Kept::Changed(event)
    }

    fn restore(&mut self, at: usize, wanted: &mut Object) {
        let item = &mut self.items[at];
        wanted.insert("id".into(), item.id.as_str().into());
        if item.is_call() {
            if text(wanted, "call_id").is_none_or(str::is_empty) {
                let call_id = item
                    .call_id
                    .get_or_insert_with(|| self.settings.ids.make("call"))
                    .clone();
                wanted.insert("call_id".into(), call_id.into());
            } else {
                item.call_id = text(wanted, "call_id").map(str::to_owned);
            }
        }
        let repaired = restore::item(wanted, &self.translation);
        self.patch_repairs += u64::from(repaired);
    }

    fn open(&mut self, at: usize) {
        let fill = self.settings.repair;
        let phase = self.is_held_whole(at).then(|| self.phase_of(at)).flatten();
        let item = &mut self.items[at];
        item.stage = Stage::Open;
        match item.added.take() {
            Some(Kept::Text(data)) if phase.is_none() || item.given_phase => {
                self.held = self.held.saturating_sub(data.len());
                let fields = Fields {
                    output_index: Some(item.index),
                    ..Fields::default()
                };
                self.out.kept(EventKind::ItemAdded, &data, fields);
            }
            Some(Kept::Text(data)) => {
                self.held = self.held.saturating_sub(data.len());
                if let Ok(event) = parse(&data) {
                    self.out.event(with_phase(event, item.index, phase));
                }
            }
            Some(Kept::Changed(event)) => self.out.event(with_phase(event, item.index, phase)),
            None => {}
        }
        for (kind, data) in std::mem::take(&mut item.queue) {
            self.held = self
                .held
                .saturating_sub(data.len() + size_of::<(EventKind, String)>());
            let Ok(peek) = Peek::parse(&data) else {
                continue;
            };
            let name = peek.kind();
            let name = name.as_deref().unwrap_or(kind.as_str());
            self.held += peek.delta().map_or(0, |delta| delta.len());
            parts::forward(item, kind, name, &data, &peek, fill, &mut self.out);
        }
    }

    fn may_end(&self, at: usize) -> bool {
        let item = &self.items[at];
        item.stage == Stage::Open
            && item.end.is_some()
            && (self.completed || !self.may_be_cut(item))
            && (item.kind != ItemKind::Message
                || item.given_phase
                || self.settings.phase.is_none()
                || self.phase_of(at).is_some())
    }

    /// llama-server calls a cut call completed, and may even close its JSON. Whether it was cut shows at the end, which
    /// follows at once.
    fn may_be_cut(&self, item: &Lifecycle) -> bool {
        self.settings.repair && item.kind == ItemKind::FunctionCall
    }

    fn send_end(&mut self, at: usize) {
        let phase = self.phase_of(at);
        let item = &mut self.items[at];
        parts::finish(item, &mut self.out);
        self.held = self.held.saturating_sub(
            item.arguments.len() + item.parts.iter().map(|part| part.text.len()).sum::<usize>(),
        );
        item.arguments = String::new();
        item.parts = Vec::new();
        item.stage = Stage::Finished;
        if let (Some(phase), Some(finished)) = (phase, &mut item.item) {
            set_phase(finished, phase);
        }
        match item.end.take() {
            Some(Kept::Text(data)) if phase.is_none() || item.given_phase => {
                let fields = Fields {
                    output_index: Some(item.index),
                    ..Fields::default()
                };
                self.out.kept(EventKind::ItemDone, &data, fields);
            }
            Some(Kept::Text(data)) => {
                if let Ok(event) = parse(&data) {
                    self.out.event(with_phase(event, item.index, phase));
                }
            }
            Some(Kept::Changed(event)) => self.out.event(with_phase(event, item.index, phase)),
            None => {}
        }
    }

    /// The phase to write on a message, once it is known. `None` for any other item, and while it is open.
    fn phase_of(&self, at: usize) -> Option<Phase> {
        let item = &self.items[at];
        if item.kind != ItemKind::Message || self.settings.phase.is_none() {
            return None;
        }
        // The SDK's parsers skip commentary, and an answer in a demanded format is an answer.
        if self.translation.structured_output {
            return Some(Phase::FinalAnswer);
        }
        if self.last_call.is_some_and(|call| call > at) {
            return Some(Phase::Commentary);
        }
        self.ended.then_some(Phase::FinalAnswer)
    }

    fn is_held_whole(&self, at: usize) -> bool {
        let item = &self.items[at];
        self.settings.phase == Some(PhasePolicy::Hold)
            && item.kind == ItemKind::Message
            && !item.given_phase
    }
}

fn with_phase(mut event: Object, index: usize, phase: Option<Phase>) -> Object {
    event.insert("output_index".into(), index.into());
    if let (Some(phase), Some(Value::Object(item))) = (phase, event.get_mut("item")) {
        set_phase(item, phase);
    }
    event
}

/// The announcement of an item that is known only by its end: the same without its content.
fn bare(finished: &Object) -> Object {
    let mut bare = finished.clone();
    bare.insert("status".into(), "in_progress".into());
    for (field, empty) in [
        ("content", Value::Array(Vec::new())),
        ("arguments", "".into()),
    ] {
        if bare.contains_key(field) {
            bare.insert(field.into(), empty);
        }
    }
    event::item_added(0, bare)
}

fn item_of(event: &Object, kind: EventKind) -> Result<&Object, ApiError> {
    event.get("item").and_then(Value::as_object).ok_or_else(|| {
        upstream_error(format!(
            "the model server sent {} without an item",
            kind.as_str()
        ))
    })
}

pub(super) fn text<'a>(object: &'a Object, key: &str) -> Option<&'a str> {
    optional_str(object, key, "")
        .ok()
        .flatten()
        .filter(|text| !text.is_empty())
}

fn prefix(kind: ItemKind) -> &'static str {
    match kind {
        ItemKind::Message => "msg",
        ItemKind::Reasoning => "rs",
        ItemKind::FunctionCall => "fc",
        ItemKind::CustomToolCall => "ctc",
        ItemKind::ToolSearchCall => "tsc",
        _ => "item",
    }
}

/// The fields llama-server leaves out of a finished item.
fn complete_item(item: &mut Object) {
    item.entry("status").or_insert_with(|| "completed".into());
    let Some(Value::Array(content)) = item.get_mut("content") else {
        return;
    };
    for part in content.iter_mut().filter_map(Value::as_object_mut) {
        if str_or_empty(part, "type") == "output_text" {
            for list in ["annotations", "logprobs"] {
                part.entry(list).or_insert_with(|| Value::Array(Vec::new()));
            }
        }
    }
}

/// Gives an end that came without its text the text that was streamed: Codex reads nothing but the end.
fn fill_text(wanted: &mut Object, item: &Lifecycle) {
    if !matches!(item.kind, ItemKind::Message | ItemKind::Reasoning) || item.parts.is_empty() {
        return;
    }
    let empty = wanted
        .get("content")
        .is_none_or(|content| content.as_array().is_some_and(Vec::is_empty));
    if empty {
        let content = item
            .parts
            .iter()
            .map(|part| parts::part(item.kind, &part.text))
            .collect();
        wanted.insert("content".into(), Value::Array(content));
    }
}
