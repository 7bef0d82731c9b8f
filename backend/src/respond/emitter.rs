//! From segments to events, in the order of the Responses API.
//!
//! ```text
//! created, in_progress, in_progress(prompt_progress)*
//! message:   item.added, part.added, text.delta*, text.done, part.done, item.done(phase)
//! reasoning: item.added, part.added, reasoning.delta*, reasoning.done, part.done, item.done
//! call:      item.added(name), arguments.delta*, arguments.done, item.done
//! completed | incomplete | failed
//! ```
//!
//! A message's phase is known when a call comes (commentary) or the end does (final answer), so only its `item.done` waits for that, and the
//! `item.done` of whatever finishes meanwhile waits behind it: items end in the order in which they began. Where no call can come, the phase is known
//! and `item.added` has it.

use std::collections::VecDeque;

use protocol::{
    ApiError, EventKind, Ids, Object, Phase,
    event::{self, Event, Place},
};
use serde_json::{Value, json};

use super::usage::Counts;

/// Which way a response ended.
#[derive(Clone, Debug)]
pub(super) enum Ending {
    Completed,
    /// A limit of tokens was reached.
    Incomplete,
    Failed(ApiError),
}

#[derive(Debug)]
pub(super) struct Emitter {
    ids: Ids,
    /// The resource as `response.created` has it.
    base: Object,
    sequence: u64,
    events: VecDeque<Event>,
    /// Items whose `item.done` was sent.
    output: Vec<Value>,
    /// Finished items whose `item.done` waits for a phase.
    waiting: VecDeque<(usize, Object)>,
    open: Option<Open>,
    /// `output_index` of the next item.
    next_index: usize,
    /// The phase of every message, where no call can come.
    known_phase: Option<Phase>,
}

/// The item that is being streamed.
#[derive(Debug)]
struct Open {
    index: usize,
    id: String,
    kind: Kind,
    /// Text, reasoning or arguments so far.
    text: String,
}

#[derive(Debug)]
enum Kind {
    Message { logprobs: Vec<Value> },
    Reasoning,
    Call { call_id: String, name: String },
}

impl Emitter {
    /// `base` is the response resource at its start, `in_progress` and without output.
    pub(super) fn new(ids: Ids, base: Object, known_phase: Option<Phase>) -> Emitter {
        let mut emitter = Emitter {
            ids,
            base,
            sequence: 0,
            events: VecDeque::new(),
            output: Vec::new(),
            waiting: VecDeque::new(),
            open: None,
            next_index: 0,
            known_phase,
        };
        for kind in [EventKind::Created, EventKind::InProgress] {
            emitter.emit(event::lifecycle(kind, emitter.base.clone()));
        }
        emitter
    }

    pub(super) fn take(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Prefill goes on: `response.in_progress` once more, which keeps the client's idle timer from running out. llama-server's field, with its names.
    pub(super) fn progress(&mut self, cached: usize, done: usize, total: usize) {
        let mut event = event::lifecycle(EventKind::InProgress, self.base.clone());
        let progress = json!({"total": total, "cache": cached, "processed": done});
        event.insert("prompt_progress".into(), progress);
        self.emit(event);
    }

    pub(super) fn text(&mut self, delta: &str, logprobs: Vec<Value>) {
        if !matches!(
            self.open,
            Some(Open {
                kind: Kind::Message { .. },
                ..
            })
        ) {
            self.close("completed");
            self.open_message();
        }
        let Some(open) = &mut self.open else { return };
        open.text.push_str(delta);
        let mut event = event::text_delta(open.place(), delta);
        event.insert("logprobs".into(), logprobs.clone().into());
        if let Kind::Message { logprobs: all } = &mut open.kind {
            all.extend(logprobs);
        }
        self.emit(event);
    }

    pub(super) fn reasoning(&mut self, delta: &str) {
        if !matches!(
            self.open,
            Some(Open {
                kind: Kind::Reasoning,
                ..
            })
        ) {
            self.close("completed");
            self.open_reasoning();
        }
        let Some(open) = &mut self.open else { return };
        open.text.push_str(delta);
        let event = event::reasoning_delta(open.place(), delta);
        self.emit(event);
    }

    pub(super) fn call_start(&mut self, name: &str) {
        self.close("completed");
        self.decide(Phase::Commentary);
        let (id, call_id) = (self.ids.make("fc"), self.ids.make("call"));
        let item = call_item(&id, "in_progress", &call_id, name, "");
        self.begin(
            item,
            id,
            Kind::Call {
                call_id,
                name: name.to_owned(),
            },
        );
    }

    pub(super) fn arguments(&mut self, delta: &str) {
        let Some(open) = &mut self.open else { return };
        open.text.push_str(delta);
        let event = event::arguments_delta(&open.id, open.index, delta);
        self.emit(event);
    }

    /// Is a call being streamed?
    pub(super) fn is_in_call(&self) -> bool {
        let kind = self.open.as_ref().map(|open| &open.kind);
        matches!(kind, Some(Kind::Call { .. }))
    }

    /// The call is whole; its name and arguments.
    pub(super) fn call_end(&mut self) -> Option<(String, String)> {
        let Some(Open {
            kind: Kind::Call { name, .. },
            text,
            ..
        }) = &self.open
        else {
            return None;
        };
        let call = (name.clone(), text.clone());
        self.close("completed");
        Some(call)
    }

    /// The last event. An open item is incomplete when a limit was reached, and is left alone when the response failed: a client repeats the request then,
    /// and must not find half an item in its history.
    pub(super) fn end(&mut self, ending: &Ending, usage: Counts, now: u64) {
        match ending {
            Ending::Completed => self.close("completed"),
            Ending::Incomplete => self.close("incomplete"),
            Ending::Failed(_) => self.open = None,
        }
        self.decide(Phase::FinalAnswer);
        let mut response = self.base.clone();
        let (kind, status) = match ending {
            Ending::Completed => (EventKind::Completed, "completed"),
            Ending::Incomplete => (EventKind::Incomplete, "incomplete"),
            Ending::Failed(_) => (EventKind::Failed, "failed"),
        };
        response.insert("status".into(), status.into());
        response.insert("output".into(), std::mem::take(&mut self.output).into());
        response.insert("usage".into(), usage.usage().into());
        match ending {
            Ending::Completed => {
                response.insert("completed_at".into(), now.into());
            }
            Ending::Incomplete => {
                let details = json!({"reason": "max_output_tokens"});
                response.insert("incomplete_details".into(), details);
            }
            Ending::Failed(error) => {
                response.insert("error".into(), error.response_error());
            }
        }
        self.emit(event::lifecycle(kind, response));
    }

    fn emit(&mut self, mut event: Event) {
        event.insert("sequence_number".into(), self.sequence.into());
        self.sequence += 1;
        self.events.push_back(event);
    }

    fn begin(&mut self, item: Object, id: String, kind: Kind) {
        let index = self.next_index;
        self.next_index += 1;
        self.emit(event::item_added(index, item));
        self.open = Some(Open {
            index,
            id,
            kind,
            text: String::new(),
        });
    }

    fn open_message(&mut self) {
        let id = self.ids.make("msg");
        let item = message_item(&id, "in_progress", &json!([]), self.known_phase);
        self.begin(
            item,
            id,
            Kind::Message {
                logprobs: Vec::new(),
            },
        );
        self.part(EventKind::PartAdded, text_part("", &[]));
    }

    fn open_reasoning(&mut self) {
        let id = self.ids.make("rs");
        let item = reasoning_item(&id, "in_progress", &json!([]));
        self.begin(item, id, Kind::Reasoning);
        self.part(EventKind::PartAdded, reasoning_part(""));
    }

    fn part(&mut self, kind: EventKind, part: Value) {
        if let Some(open) = &self.open {
            let event = event::part(kind, open.place(), part);
            self.emit(event);
        }
    }

    /// Ends the open item, if there is one.
    fn close(&mut self, status: &str) {
        let Some(open) = &self.open else { return };
        let (id, text) = (open.id.clone(), open.text.clone());
        let item = match &open.kind {
            Kind::Message { logprobs } => {
                let part = text_part(&text, logprobs);
                let mut done = event::text_done(open.place(), &text);
                done.insert("logprobs".into(), logprobs.clone().into());
                self.emit(done);
                self.part(EventKind::PartDone, part.clone());
                message_item(&id, status, &json!([part]), self.known_phase)
            }
            Kind::Reasoning => {
                let done = event::reasoning_done(open.place(), &text);
                self.emit(done);
                self.part(EventKind::PartDone, reasoning_part(&text));
                reasoning_item(&id, status, &json!([reasoning_part(&text)]))
            }
            Kind::Call { call_id, name } => {
                let item = call_item(&id, status, call_id, name, &text);
                // The arguments of a call that was cut are not done.
                if status == "completed" {
                    let done = event::arguments_done(&id, open.index, name, &text);
                    self.emit(done);
                }
                item
            }
        };
        if let Some(open) = self.open.take() {
            self.waiting.push_back((open.index, item));
        }
        self.advance();
    }

    /// Sends what does not wait for a phase.
    fn advance(&mut self) {
        while let Some((_, item)) = self.waiting.front() {
            if item.get("type").and_then(Value::as_str) == Some("message")
                && !item.contains_key("phase")
            {
                return;
            }
            if let Some((index, item)) = self.waiting.pop_front() {
                self.output.push(item.clone().into());
                self.emit(event::item_done(index, item));
            }
        }
    }

    /// Messages that wait get this phase.
    fn decide(&mut self, phase: Phase) {
        for (_, item) in &mut self.waiting {
            if item.get("type").and_then(Value::as_str) == Some("message") {
                item.entry("phase").or_insert_with(|| phase.as_str().into());
            }
        }
        self.advance();
    }
}

impl Open {
    fn place(&self) -> Place<'_> {
        Place {
            item_id: &self.id,
            output_index: self.index,
            content_index: 0,
        }
    }
}

fn object(value: Value) -> Object {
    match value {
        Value::Object(object) => object,
        _ => Object::new(),
    }
}

fn message_item(id: &str, status: &str, content: &Value, phase: Option<Phase>) -> Object {
    let mut item = object(json!({
        "id": id, "type": "message", "status": status, "role": "assistant", "content": content,
    }));
    if let Some(phase) = phase {
        item.insert("phase".into(), phase.as_str().into());
    }
    item
}

fn reasoning_item(id: &str, status: &str, content: &Value) -> Object {
    object(
        json!({"id": id, "type": "reasoning", "status": status, "summary": [], "content": content}),
    )
}

fn call_item(id: &str, status: &str, call_id: &str, name: &str, arguments: &str) -> Object {
    object(json!({
        "id": id, "type": "function_call", "status": status, "call_id": call_id, "name": name, "arguments": arguments,
    }))
}

fn text_part(text: &str, logprobs: &[Value]) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs})
}

fn reasoning_part(text: &str) -> Value {
    json!({"type": "reasoning_text", "text": text})
}
