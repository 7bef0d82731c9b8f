//! The response resource on its way through: one id from the first event to the last, and the request's own words in it.
//!
//! ```text
//! upstream:  (silence)                              created(id=u)  …  completed(id=u)
//! to Codex:  created(id=b) in_progress(id=b) …                     …  completed(id=b)
//! ```

use protocol::{ApiError, EventKind, Object, event, response};
use serde_json::Value;

use super::{
    peek::Fields,
    rewriter::{Rewriter, parse, upstream_error},
};
use crate::translate::restore;

/// Fields whose values are upstream's where the request names none.
const UPSTREAMS_OWN: [&str; 9] = [
    "created_at",
    "frequency_penalty",
    "max_output_tokens",
    "parallel_tool_calls",
    "presence_penalty",
    "temperature",
    "top_logprobs",
    "top_p",
    "truncation",
];

impl Rewriter {
    /// A sign of life: `response.in_progress`, preceded by our own `response.created` if upstream sent none yet.
    pub fn heartbeat(&mut self) {
        if self.end().is_some() {
            return;
        }
        self.ensure_started();
        let text = match self.alive.take() {
            Some(text) => text,
            None => {
                let response = self.skeleton("in_progress");
                let event = event::lifecycle(EventKind::InProgress, response);
                serde_json::to_string(&event).unwrap_or_default()
            }
        };
        self.out
            .kept(EventKind::InProgress, &text, Fields::default());
        self.alive = Some(text);
    }

    /// `response.created`, `.queued` and `.in_progress`.
    pub(super) fn progress(&mut self, kind: EventKind, data: &str) -> Result<(), ApiError> {
        let event = parse(data)?;
        let Some(came) = event.get("response").and_then(Value::as_object) else {
            return Err(upstream_error(format!(
                "the model server sent {} without a response object",
                kind.as_str()
            )));
        };
        self.adopt_id(came);
        match (self.started, kind) {
            // Ours went out already; upstream's would be a second one.
            (true, EventKind::Created) => return Ok(()),
            (false, EventKind::Created) => self.started = true,
            _ => self.ensure_started(),
        }
        self.note(came);
        self.alive = None;
        let mut wanted = came.clone();
        self.settle(&mut wanted);
        if wanted == *came {
            self.out.kept(kind, data, Fields::default());
        } else {
            let mut event = event;
            event.insert("type".into(), kind.as_str().into());
            event.insert("response".into(), wanted.into());
            self.out.event(event);
        }
        Ok(())
    }

    /// Makes a response object of upstream's ours: the one id, the request's own tools, every field where upstream is
    /// known to leave some out.
    pub(super) fn settle(&mut self, response: &mut Object) {
        let id = self.id();
        response.insert("id".into(), id.into());
        restore::echo(response, &self.translation);
        if self.settings.repair {
            response::complete(response, &self.translation.declared, self.settings.now_unix);
        }
    }

    /// Takes upstream's id, unless the client has already seen another.
    pub(super) fn adopt_id(&mut self, response: &Object) {
        if self.response_id.is_none() {
            self.response_id = response
                .get("id")
                .and_then(Value::as_str)
                .map(str::to_owned);
        }
    }

    pub(super) fn ensure_started(&mut self) {
        if !self.started {
            self.started = true;
            let response = self.skeleton("in_progress");
            self.out
                .event(event::lifecycle(EventKind::Created, response));
        }
    }

    fn id(&mut self) -> String {
        self.response_id
            .get_or_insert_with(|| self.settings.ids.make("resp"))
            .clone()
    }

    /// Keeps what upstream says of its settings and of what was used, for a resource of our own later on.
    pub(super) fn note(&mut self, response: &Object) {
        for key in UPSTREAMS_OWN {
            if let Some(value) = response.get(key).filter(|value| !value.is_null()) {
                self.noted.insert(key.into(), value.clone());
            }
        }
        if let Some(Value::Object(usage)) = response.get("usage") {
            let usage = response::complete_usage(usage);
            self.noted.insert("usage".into(), usage.into());
        }
    }

    /// The resource as it is known without a whole one of upstream's.
    pub(super) fn skeleton(&mut self, status: &str) -> Object {
        let mut response = Object::new();
        response.insert("id".into(), self.id().into());
        response.insert("object".into(), "response".into());
        response.insert("status".into(), status.into());
        response.extend(self.noted.clone());
        response::complete(
            &mut response,
            &self.translation.declared,
            self.settings.now_unix,
        );
        response
    }
}
