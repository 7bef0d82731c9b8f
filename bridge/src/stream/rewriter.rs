//! The machine that turns an upstream's stream into the one Codex declared its tools for. It owns no socket and no
//! clock: frames go in, bytes come out.
//!
//! What it keeps, whatever comes in:
//! - `sequence_number` runs 0…n-1 over what is sent; each item has one `output_index` and one id in all its events.
//! - An item's end is sent only after the ends of all earlier items. A call opens only when every earlier item has
//!   ended; text and reasoning flow at once unless an earlier call is still open.
//! - Of a message only `output_item.done` waits, for its phase: a later call makes it commentary, the end of the
//!   response the final answer.
//! - The terminal event's `output` is the list of the items that were sent. Nothing follows it but `[DONE]`.
//! - What waits is counted against a cap.
//!
//! ```text
//! upstream:  item.added(message) … item.added(function_call) … item.done(message) … item.done(function_call)
//! to Codex:  item.added(message) … item.done(message, phase=commentary) item.added(custom_tool_call) … item.done
//! ```

use std::collections::HashMap;

use bytes::{Bytes, BytesMut};
use protocol::{ApiError, ErrorKind, EventKind, Ids, ItemKind, Object, error, event};

use super::{
    fault,
    guard::Frame,
    incoming::{self, Incoming},
    items::Family,
    lifecycle::Lifecycle,
    out::{Out, Sent},
    peek::Peek,
};
use crate::{config::PhasePolicy, translate::Translation};

/// What the rewriter must know of the request and the upstream.
#[derive(Debug)]
pub struct Settings {
    pub phase: PhasePolicy,
    /// The upstream is llama-server: it leaves fields out and reports truncation as success.
    pub repair: bool,
    /// The upstream's context window in tokens, to tell truncation by.
    pub context: Option<u64>,
    pub max_held_bytes: usize,
    pub request_id: String,
    /// The request's own time, in seconds since 1970.
    pub now_unix: u64,
    /// Asked at the end of the response.
    pub clock: fn() -> u64,
    pub ids: Ids,
}

/// Items of one response. Far beyond any real one; it bounds the searches for items that carry no id.
const MOST_ITEMS: usize = 4096;

/// How a stream ended.
#[derive(Debug, Clone)]
pub struct End {
    /// `completed`, `incomplete` or `failed`.
    pub kind: EventKind,
    /// The response resource of the terminal event.
    pub response: Object,
    /// Our own verdict, when it was we who failed it.
    pub error: Option<ApiError>,
}

/// One response on its way through. See the module's invariants.
#[derive(Debug)]
pub struct Rewriter {
    pub(super) settings: Settings,
    pub(super) translation: Translation,
    pub(super) out: Out,
    pub(super) items: Vec<Lifecycle>,
    pub(super) by_id: HashMap<String, usize>,
    /// Every item before this one is over.
    pub(super) first_unfinished: usize,
    /// Items that have an `output_index`.
    pub(super) announced: usize,
    pub(super) last_call: Option<usize>,
    /// No item can follow any more: every phase is known.
    pub(super) ended: bool,
    /// Upstream itself ended the response: a call whose arguments are no JSON was not cut.
    pub(super) completed: bool,
    pub(super) held: usize,
    /// Calls left out because the client allowed one.
    pub(super) suppressed: u64,
    pub(super) patch_repairs: u64,
    /// The one `id` of the response, ours or upstream's.
    pub(super) response_id: Option<String>,
    /// `response.created` was sent.
    pub(super) started: bool,
    /// What upstream said of the response, of the fields that ours would otherwise have a default for.
    pub(super) noted: Object,
    /// The text of the last life sign.
    pub(super) alive: Option<String>,
    end: Option<End>,
}

impl Rewriter {
    pub fn new(settings: Settings, translation: Translation) -> Self {
        Self {
            settings,
            translation,
            out: Out::default(),
            items: Vec::new(),
            by_id: HashMap::new(),
            first_unfinished: 0,
            announced: 0,
            last_call: None,
            ended: false,
            completed: false,
            held: 0,
            suppressed: 0,
            patch_repairs: 0,
            response_id: None,
            started: false,
            noted: Object::new(),
            alive: None,
            end: None,
        }
    }

    /// The request was sent, perhaps to another server than was thought when the wait for it began.
    pub fn retarget(&mut self, translation: Translation, repair: bool, context: Option<u64>) {
        self.translation = translation;
        self.settings.repair = repair;
        self.settings.context = context;
    }

    /// Takes one upstream frame. Frames after the end are ignored.
    pub fn handle(&mut self, frame: &Frame) {
        if self.end.is_some() {
            return;
        }
        let Some(incoming) = incoming::read(frame.as_str()) else {
            return;
        };
        if incoming.data.trim() == "[DONE]" {
            return;
        }
        if let Err(error) = self.route(&incoming) {
            self.fail(error);
        }
    }

    /// The upstream has nothing more to say: without a terminal event that is a failure.
    pub fn finish(&mut self) {
        if self.end.is_none() {
            self.fail(upstream_error(
                "the model server closed the stream before the response was complete",
            ));
        }
    }

    /// Ends the response as failed, once. What is finished is sent first.
    pub fn fail(&mut self, mut error: ApiError) {
        if self.end.is_some() {
            return;
        }
        self.ended = true;
        // Ends whose turn had come but for a phase, and text held whole, still go out. An unfinished item stays
        // unfinished, and no call behind it is given out.
        self.advance();
        self.ensure_started();
        error.message = format!("{} (request {})", error.message, self.settings.request_id);
        let mut response = self.skeleton("failed");
        response.insert("output".into(), self.output().into());
        response.insert("error".into(), error.response_error());
        self.out
            .event(event::lifecycle(EventKind::Failed, response.clone()));
        self.close(EventKind::Failed, response, Some(error));
    }

    /// The bytes that are ready for the client.
    pub fn take(&mut self) -> Bytes {
        self.out.bytes().split().freeze()
    }

    pub fn pending(&mut self) -> &BytesMut {
        self.out.bytes()
    }

    /// How the response ended; `None` while it goes on.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    pub fn into_end(self) -> Option<End> {
        self.end
    }

    pub fn sent(&self) -> Sent {
        self.out.sent()
    }

    /// Calls left out because the client allowed one, and patch inputs whose markers were repaired.
    pub fn repairs(&self) -> (u64, u64) {
        (self.suppressed, self.patch_repairs)
    }

    pub fn held_bytes(&self) -> usize {
        self.held
    }

    fn route(&mut self, incoming: &Incoming<'_>) -> Result<(), ApiError> {
        let data = incoming.data.as_ref();
        let peek = Peek::parse(data).map_err(|fault| {
            upstream_error(format!(
                "the model server sent an event that is no JSON object: {fault}"
            ))
        })?;
        let named = incoming.name.as_deref();
        let kind = peek.kind();
        let name = match (named, kind.as_deref()) {
            (Some(named), Some(kind)) if named != kind => {
                return Err(upstream_error(format!(
                    "the model server sent an event called both {named:?} and {kind:?}"
                )));
            }
            (_, Some(kind)) => kind,
            (Some(named), None) => named,
            (None, None) => return Err(nameless(data)),
        };
        if name.contains(['\n', '\r']) {
            return Err(upstream_error(format!(
                "the model server sent an event of the type {name:?}"
            )));
        }
        let kind = EventKind::from_name(name);
        match kind {
            EventKind::Created | EventKind::Queued | EventKind::InProgress => {
                self.progress(kind, data)
            }
            EventKind::Completed | EventKind::Failed | EventKind::Incomplete => {
                self.terminal(kind, data, &peek)
            }
            EventKind::Error => Err(fault::reported(&parse(data)?)),
            EventKind::ItemAdded => {
                self.ensure_started();
                self.item_added(data)
            }
            EventKind::ItemDone => {
                self.ensure_started();
                self.item_done(data)
            }
            _ => {
                self.ensure_started();
                self.content(kind, name, data, &peek, Family::of(kind))
            }
        }?;
        if self.items.len() > MOST_ITEMS {
            return Err(upstream_error(format!(
                "the model server sent more than {MOST_ITEMS} items in one response"
            )));
        }
        if self.held > self.settings.max_held_bytes {
            return Err(upstream_error(format!(
                "the response needs more than {} bytes to be held at once (limits.maxHeldBytes)",
                self.settings.max_held_bytes
            )));
        }
        Ok(())
    }

    /// Ends the machine after its terminal event.
    pub(super) fn close(&mut self, kind: EventKind, response: Object, error: Option<ApiError>) {
        self.out.done();
        self.items.clear();
        self.by_id.clear();
        self.held = 0;
        self.end = Some(End {
            kind,
            response,
            error,
        });
    }
}

/// The event as an object.
pub(super) fn parse(data: &str) -> Result<Object, ApiError> {
    serde_json::from_str(data).map_err(|fault| {
        upstream_error(format!(
            "the model server sent an event that is no JSON object: {fault}"
        ))
    })
}

/// A fault of the upstream that may pass.
pub(super) fn upstream_error(message: impl Into<String>) -> ApiError {
    ApiError::new(ErrorKind::Server, message).with_code(error::SERVER_ERROR)
}

/// A data line without a type: llama-server's way to report a failure in mid-stream, or nonsense.
fn nameless(data: &str) -> ApiError {
    match parse(data) {
        Ok(event) if event.contains_key("error") => fault::reported(&event),
        Ok(_) => upstream_error("the model server sent an event without a type"),
        Err(error) => error,
    }
}

impl Rewriter {
    /// A new lifecycle at the end of the list.
    pub(super) fn new_item(&mut self, kind: ItemKind, id: Option<&str>, prefix: &str) -> usize {
        let at = self.items.len();
        let own = match id {
            Some(id) => id.to_owned(),
            None => self.settings.ids.make(prefix),
        };
        let item = Lifecycle::new(kind, own, self.announced);
        self.announced += 1;
        if let Some(id) = id {
            self.by_id.insert(id.to_owned(), at);
        }
        // Room for the lifecycle itself: a stream of nothing but announcements is bounded too.
        self.held += size_of::<Lifecycle>();
        self.items.push(item);
        at
    }
}

#[cfg(test)]
mod tests;
