//! The client's form of an item: restored to what was declared, under its one id, complete where upstream leaves out.

use protocol::{EventKind, ItemKind, Object, ToolKind, event, object::str_or_empty};
use serde_json::Value;

use super::{
    items::{prefix, text},
    lifecycle::{Kept, Lifecycle, Part, has_phase},
    rewriter::Rewriter,
};
use crate::translate::restore::{self, Unwrap};

impl Rewriter {
    /// The client's form of an announcement.
    pub(super) fn announce(&mut self, at: usize, data: &str, mut event: Object) -> Kept {
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
            item.says_cut = str_or_empty(&came, "status") == "incomplete";
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
}

/// The announcement of an item that is known only by its end: the same without its content.
pub(super) fn bare(finished: &Object) -> Object {
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
    let content: Vec<Value> = item.parts.iter().map(Part::value).collect();
    let summary: Vec<Value> = item.summary.iter().map(|(_, part)| part.value()).collect();
    for (key, streamed) in [("content", content), ("summary", summary)] {
        let is_empty = |list: &Value| list.as_array().is_some_and(Vec::is_empty);
        if !streamed.is_empty() && wanted.get(key).is_none_or(is_empty) {
            wanted.insert(key.into(), Value::Array(streamed));
        }
    }
}
