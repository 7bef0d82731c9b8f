//! When an item may open, and when its end may be sent. See the invariants in `rewriter`.

use protocol::{EventKind, ItemKind, Object, Phase};
use serde_json::Value;

use super::{
    lifecycle::{Kept, Lifecycle, Stage, set_phase},
    parts,
    peek::{Fields, Peek},
    rewriter::{Rewriter, parse},
};
use crate::config::PhasePolicy;

impl Rewriter {
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

    fn open(&mut self, at: usize) {
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
            self.forward(at, kind, name, &data, &peek);
        }
    }

    fn may_end(&self, at: usize) -> bool {
        let item = &self.items[at];
        item.stage == Stage::Open
            && item.end.is_some()
            && (self.completed || !self.may_be_cut(item))
            && (item.kind != ItemKind::Message || item.given_phase || self.phase_of(at).is_some())
    }

    /// A call that upstream says was cut, or whose arguments are no JSON, waits for the end of the response to tell. So
    /// does every call of llama-server, which calls a cut one completed and may even close its JSON; there the end follows
    /// at once.
    fn may_be_cut(&self, item: &Lifecycle) -> bool {
        item.kind == ItemKind::FunctionCall
            && (self.settings.repair || item.unfinished || item.says_cut)
    }

    fn send_end(&mut self, at: usize) {
        let phase = self.phase_of(at);
        let item = &mut self.items[at];
        parts::finish(item, &mut self.out);
        self.held = self.held.saturating_sub(item.kept_bytes());
        item.arguments = String::new();
        item.parts = Vec::new();
        item.summary = Vec::new();
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
        if item.kind != ItemKind::Message {
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
        self.settings.phase == PhasePolicy::Hold
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
