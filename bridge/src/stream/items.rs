//! Which item an event belongs to.

use protocol::{ApiError, EventKind, ItemKind, Object, event, object::optional_str};
use serde_json::Value;

use super::{
    form::bare,
    lifecycle::{Lifecycle, Stage},
    parts,
    peek::{Fields, Peek},
    rewriter::{Rewriter, parse, upstream_error},
};

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
        let item = &mut self.items[at];
        match item.stage {
            Stage::Open if item.end.is_none() => self.forward(at, kind, name, data, peek),
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

    /// Sends a content event of an open item, and counts what is kept of it.
    pub(super) fn forward(
        &mut self,
        at: usize,
        kind: EventKind,
        name: &str,
        data: &str,
        peek: &Peek<'_>,
    ) {
        let item = &mut self.items[at];
        let delta = peek.delta().map(|delta| delta.len());
        // What accumulates is the delta; only an event without one is worth a look at all of it.
        let kept = |item: &Lifecycle| match delta {
            Some(_) => item.part_bytes(),
            None => item.kept_bytes(),
        };
        let before = kept(item);
        let fill = self.settings.repair;
        parts::forward(item, kind, name, data, peek, fill, &mut self.out);
        self.held += delta.unwrap_or(0) + kept(item).saturating_sub(before);
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
    pub(super) fn is_surplus_call(&mut self, at: usize) -> bool {
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

pub(super) fn prefix(kind: ItemKind) -> &'static str {
    match kind {
        ItemKind::Message => "msg",
        ItemKind::Reasoning => "rs",
        ItemKind::FunctionCall => "fc",
        ItemKind::CustomToolCall => "ctc",
        ItemKind::ToolSearchCall => "tsc",
        _ => "item",
    }
}
