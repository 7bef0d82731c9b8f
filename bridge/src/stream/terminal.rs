//! The end of a response: items that upstream names only now, truncation that it calls success, and the one terminal
//! event whose `output` is what was sent.

use std::collections::HashMap;

use protocol::{
    ApiError, EventKind, ItemKind, Object, event, object::str_or_empty, response::complete_usage,
};
use serde_json::{Value, json};

use super::{
    fault,
    items::text,
    lifecycle::{Kept, Lifecycle, Stage, has_phase},
    peek::{Fields, Peek},
    rewriter::{Rewriter, parse, upstream_error},
};
use crate::translate::restore;

impl Rewriter {
    pub(super) fn terminal(
        &mut self,
        kind: EventKind,
        data: &str,
        peek: &Peek<'_>,
    ) -> Result<(), ApiError> {
        let mut event = parse(data)?;
        let Some(Value::Object(came)) = event.get("response").cloned() else {
            return Err(upstream_error(format!(
                "the model server sent {} without a response object",
                kind.as_str()
            )));
        };
        let status = str_or_empty(&came, "status");
        let expected = kind.as_str().trim_start_matches("response.");
        if !status.is_empty() && status != expected {
            return Err(upstream_error(format!(
                "the model server sent {} with the status {status:?}",
                kind.as_str()
            )));
        }
        if kind == EventKind::Failed {
            self.note(&came);
            return Err(match came.get("error") {
                Some(Value::Object(_) | Value::String(_)) => fault::reported(&came),
                _ => upstream_error(
                    "the model server reported that the response failed, without a reason",
                ),
            });
        }
        self.adopt_id(&came);
        self.ensure_started();
        let truncated = kind == EventKind::Completed && self.is_truncated(&came);
        self.reconcile(&came, truncated || kind == EventKind::Incomplete)?;
        self.ended = true;
        self.completed = true;
        self.advance();
        let mut response = came.clone();
        self.settle(&mut response);
        response.insert("output".into(), self.output().into());
        if let Some(Value::Object(usage)) = came.get("usage") {
            response.insert("usage".into(), complete_usage(usage).into());
        }
        let kind = if truncated {
            EventKind::Incomplete
        } else {
            kind
        };
        if truncated {
            response.insert("status".into(), "incomplete".into());
            response.insert(
                "incomplete_details".into(),
                json!({"reason": "max_output_tokens"}),
            );
        }
        response.entry("status").or_insert_with(|| expected.into());
        if self.settings.repair
            && kind == EventKind::Completed
            && response.get("completed_at").is_none_or(Value::is_null)
        {
            response.insert("completed_at".into(), (self.settings.clock)().into());
        }
        if response == came {
            self.out.text(kind.as_str(), data, peek, Fields::default());
        } else {
            event.insert("type".into(), kind.as_str().into());
            event.insert("response".into(), response.clone().into());
            self.out.event(event);
        }
        self.close(kind, response, None);
        Ok(())
    }

    /// The items that were sent, in the client's form.
    pub(super) fn output(&self) -> Vec<Value> {
        self.items
            .iter()
            .filter(|item| item.stage == Stage::Finished || (item.stage == Stage::Open && item.cut))
            .filter_map(|item| item.item.clone().map(Value::Object))
            .collect()
    }

    /// llama-server reports a response that hit its token limit, or filled the context, as completed.
    fn is_truncated(&self, response: &Object) -> bool {
        if !self.settings.repair {
            return false;
        }
        let count = |key: &str| {
            response
                .get("usage")
                .and_then(|usage| usage.get(key)?.as_u64())
        };
        let (output, total) = (count("output_tokens"), count("total_tokens"));
        let hit_limit = match (self.translation.max_output_tokens, output) {
            (Some(limit), Some(output)) => output >= limit,
            _ => false,
        };
        let filled = match (self.settings.context, total) {
            (Some(context), Some(total)) => total >= context,
            _ => false,
        };
        hit_limit || filled
    }

    /// Brings the items and the terminal event's own list together.
    fn reconcile(&mut self, response: &Object, cut: bool) -> Result<(), ApiError> {
        let listed = match response.get("output") {
            None | Some(Value::Null) => &Vec::new(),
            Some(Value::Array(list)) => list,
            Some(_) => {
                return Err(upstream_error(
                    "the model server ended a response whose output is no list",
                ));
            }
        };
        let mut before: HashMap<ItemKind, usize> = HashMap::new();
        for item in listed {
            let Some(item) = item.as_object() else {
                return Err(upstream_error(
                    "the model server ended a response whose output holds more than objects",
                ));
            };
            let of_kind = before.entry(ItemKind::of(item)).or_default();
            self.take_listed(item, *of_kind);
            *of_kind += 1;
        }
        for at in self.first_unfinished..self.items.len() {
            if self.items[at].is_over() {
                continue;
            }
            if self.items[at].end.is_none() {
                self.end_unfinished(at, cut)?;
            } else if self.items[at].says_cut
                || (cut
                    && (self.items[at].unfinished || (self.settings.repair && self.is_last(at))))
            {
                self.mark_incomplete(at);
            }
        }
        Ok(())
    }

    fn take_listed(&mut self, listed: &Object, of_kind: usize) {
        let kind = ItemKind::of(listed);
        match self.find_listed(listed, kind, of_kind) {
            Some(at) => {
                let item = &mut self.items[at];
                if item.is_over() {
                    return;
                }
                if item.end.is_none() {
                    self.end_item(at, None, event::item_done(0, listed.clone()));
                } else if has_phase(listed) && !item.given_phase {
                    item.given_phase = true;
                    let phase = listed.get("phase").cloned().unwrap_or_default();
                    self.set_given_phase(at, phase);
                }
            }
            None => {
                let at = self.adopt(listed, kind);
                if self.items[at].stage != Stage::Suppressed {
                    self.end_item(at, None, event::item_done(0, listed.clone()));
                }
            }
        }
    }

    /// The streamed item that a listed one repeats: by id or call id, else the one that is as far down the list of its
    /// kind (`of_kind` were listed before it).
    fn find_listed(&self, listed: &Object, kind: ItemKind, of_kind: usize) -> Option<usize> {
        if let Some(at) = text(listed, "id").and_then(|id| self.by_id.get(id)) {
            return Some(*at);
        }
        if text(listed, "call_id").is_some() {
            return self.find_item(listed, kind, None);
        }
        let mut same_kind = self
            .items
            .iter()
            .enumerate()
            .filter(|(_, item)| item.kind == kind);
        same_kind.nth(of_kind).map(|(at, _)| at)
    }

    fn set_given_phase(&mut self, at: usize, phase: Value) {
        let item = &mut self.items[at];
        let Some(own) = &mut item.item else { return };
        own.insert("phase".into(), phase);
        item.end = Some(Kept::Changed(event::item_done(item.index, own.clone())));
    }

    /// An item that upstream never ended. Text that was streamed is an item; a call that was not finished must never be
    /// run.
    fn end_unfinished(&mut self, at: usize, cut: bool) -> Result<(), ApiError> {
        let item = &self.items[at];
        if item.is_call() && !cut {
            return Err(upstream_error(format!(
                "the model server completed the response without ending the call {:?}",
                item.call_id.as_deref().unwrap_or(&item.id)
            )));
        }
        let mut bare = item.announced.clone().unwrap_or_else(|| bare_item(item));
        let status = if cut { "incomplete" } else { "completed" };
        bare.insert("status".into(), status.into());
        self.end_item(at, None, event::item_done(0, bare));
        if cut {
            let item = &mut self.items[at];
            item.unfinished |=
                item.is_call() && serde_json::from_str::<Object>(&item.arguments).is_err();
            self.mark_incomplete(at);
        }
        Ok(())
    }

    fn is_last(&self, at: usize) -> bool {
        self.items[at + 1..]
            .iter()
            .all(|item| item.stage == Stage::Suppressed)
    }

    /// The item was cut: its status says so, and if it is a call its end is never sent, so that no client runs it.
    fn mark_incomplete(&mut self, at: usize) {
        let item = &mut self.items[at];
        let cut_call = item.is_call();
        let Some(own) = &mut item.item else { return };
        own.insert("status".into(), "incomplete".into());
        // Of JSON that does not end, the whole became the input: with its wrapper, which was not streamed.
        if item.unfinished {
            restore::cut(own);
        }
        item.end = (!cut_call).then(|| Kept::Changed(event::item_done(item.index, own.clone())));
        item.cut = cut_call;
    }
}

fn bare_item(item: &Lifecycle) -> Object {
    let mut bare = Object::new();
    bare.insert("id".into(), item.id.as_str().into());
    let kind = match item.kind {
        ItemKind::Reasoning => "reasoning",
        ItemKind::Message => "message",
        _ => "function_call",
    };
    bare.insert("type".into(), kind.into());
    match item.kind {
        ItemKind::Reasoning => {
            bare.insert("summary".into(), json!([]));
        }
        ItemKind::Message => {
            bare.insert("role".into(), "assistant".into());
        }
        _ => {}
    }
    bare
}
