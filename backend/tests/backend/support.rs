//! Backends of tests, and their answers.

use std::path::Path;

use codex_bridge_backend::{
    backend::{Backend, BackendOptions, RespondError},
    testing::{Scripted, events::keeps_the_laws},
};
use protocol::{Object, event::Event};
use serde_json::{Value, json};

pub(crate) fn options(model: &Path) -> BackendOptions {
    BackendOptions {
        context_length: Some(2048),
        max_batch: 2,
        max_queue: 2,
        threads: Some(1),
        ..BackendOptions::new(model.to_owned())
    }
}

/// A backend whose model says what the script says.
pub(crate) fn scripted(script: &Scripted) -> Backend {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scripted.gguf");
    script.write_gguf(&path).unwrap();
    // The file stays mapped after its folder is gone.
    Backend::load(&options(&path)).unwrap()
}

pub(crate) fn object(value: Value) -> Object {
    match value {
        Value::Object(object) => object,
        other => panic!("{other}"),
    }
}

/// All events of the answer, which keep the laws.
pub(crate) async fn events(backend: &Backend, request: Value) -> Vec<Event> {
    let mut responding = backend.respond(object(request)).await.unwrap();
    let mut events = Vec::new();
    while let Some(event) = responding.next().await {
        events.push(event);
    }
    keeps_the_laws(&events);
    events
}

pub(crate) async fn response(backend: &Backend, request: Value) -> Object {
    backend
        .respond(object(request))
        .await
        .unwrap()
        .collect()
        .await
}

pub(crate) async fn refused(backend: &Backend, request: Value) -> RespondError {
    backend.respond(object(request)).await.unwrap_err()
}

/// A function tool.
pub(crate) fn tool(name: &str, parameters: Value) -> Value {
    let mut tool = json!({"type": "function", "name": name, "description": "A tool."});
    tool["parameters"] = parameters;
    tool
}
