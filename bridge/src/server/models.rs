//! `GET /v1/models`: the upstream's list, in the shape OpenAI's clients read and in the one Codex reads.
//!
//! ```text
//! {"object":"list", "data":[{"id":"m",…as the upstream says…}], "models":[{"slug":"m","context_window":8192,…}]}
//! ```
//! llama-server fills `models` in Ollama's shape, which Codex cannot decode and then complains about at every start.

use std::{sync::Arc, time::Duration};

use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use warp::reply::Response;

use super::{
    State,
    context::{Line, RequestContext},
    error::{self, Failure},
};
use crate::{
    codex_model::CodexModel,
    config::{HttpUpstream, UpstreamKind},
    upstream::{
        SendError, Upstream,
        bundled::{Bundled, CAPABILITIES, Condition},
        client::authority,
        place,
        probe::{self, Bounds, Detected, ProbeError, Reply, TemplateCaps, context_of, sees},
    },
};

/// Some servers look through their disks before they answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The whole list.
pub(super) async fn list(state: Arc<State>, request: RequestContext, line: Line) -> Response {
    match read_list(&state, line.query.as_deref()).await {
        Ok(list) => error::json(StatusCode::OK, &list),
        Err(refusal) => refusal.respond(&request),
    }
}

/// One entry of `data`.
pub(super) async fn one(state: Arc<State>, request: RequestContext, id: String) -> Response {
    let list = match read_list(&state, None).await {
        Ok(list) => list,
        Err(refusal) => return refusal.respond(&request),
    };
    let entries = list["data"].as_array().map_or(&[][..], Vec::as_slice);
    if let Some(entry) = entries.iter().find(|entry| entry["id"] == id.as_str()) {
        return error::json(StatusCode::OK, entry);
    }
    unknown(&id, entries).respond(&request)
}

fn unknown(id: &str, entries: &[Value]) -> Failure {
    let served: Vec<&str> = entries
        .iter()
        .filter_map(|entry| entry["id"].as_str())
        .collect();
    let message = format!("no model {id:?} is served; there is: {}", served.join(", "));
    Failure::unknown_model(message)
}

/// Why there is no list.
enum Refusal {
    Ours(Failure),
    /// The upstream refused; its own words go on.
    Theirs(Box<Reply>),
}

impl Refusal {
    fn respond(self, request: &RequestContext) -> Response {
        match self {
            Self::Ours(failure) => failure.respond(request),
            Self::Theirs(answer) => relay_refusal(*answer, request),
        }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::Ours(failure)
    }
}

impl From<ProbeError> for Refusal {
    fn from(error: ProbeError) -> Self {
        Self::Ours(Failure::from(&error))
    }
}

fn relay_refusal(answer: Reply, request: &RequestContext) -> Response {
    request.log.update(|record| {
        record.upstream_status = Some(answer.status.as_u16());
        record.failure = Some(format!("the upstream answered {}", answer.status));
    });
    let mut response = Response::new(answer.body.into());
    *response.status_mut() = answer.status;
    let headers = response.headers_mut();
    for name in [header::CONTENT_TYPE, header::RETRY_AFTER] {
        if let Some(value) = answer.headers.get(&name) {
            headers.insert(name, value.clone());
        }
    }
    // A login page of some proxy must not become a page of this origin.
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}

async fn read_list(state: &State, query: Option<&str>) -> Result<Value, Refusal> {
    let upstream = match &state.upstream {
        Upstream::Bundled(engine) => return read_engine(state, engine),
        Upstream::Http(upstream) => upstream.settings(),
    };
    let mut list = ask(state, upstream, query).await?;
    add_aliases(state, &mut list);
    let detected = match &state.probe {
        Some(probe) => probe.outcome().await.ok(),
        None => None,
    };
    let entries = list["data"].as_array().cloned().unwrap_or_default();
    Ok(both_shapes(list, &entries, detected.as_deref()))
}

/// The one model of the bundled engine, as soon as its window is known.
fn read_engine(state: &State, engine: &Bundled) -> Result<Value, Refusal> {
    let model = match engine.condition() {
        Condition::Ready { model, .. } => model,
        Condition::Fetching(_) | Condition::Loading => {
            let message = "it is being fetched or loaded".to_owned();
            return Err(Failure::from(&SendError::Starting { message }).into());
        }
        Condition::Failed(message) => {
            return Err(Failure::from(&SendError::Stopped { message }).into());
        }
        Condition::Stopped => {
            let message = "it was stopped".to_owned();
            return Err(Failure::from(&SendError::Stopped { message }).into());
        }
    };
    let mut list = json!({"data": [{
        "id": engine.name(),
        "object": "model",
        "created": state.started_unix,
        "owned_by": "codex-bridge",
        "context_window": model.context,
        "format": model.format,
        "device": model.device,
        "meta": {
            "n_ctx": model.context,
            "n_ctx_train": model.trained_context,
            "n_params": model.parameters,
            "n_vocab": model.vocab,
            "size": model.weight_bytes,
        },
    }]});
    add_aliases(state, &mut list);
    let entries = list["data"].as_array().cloned().unwrap_or_default();
    let detected = Detected {
        kind: UpstreamKind::Responses,
        model: Some(engine.name().to_owned()),
        context: u64::try_from(model.context).ok(),
        vision: CAPABILITIES.vision,
        parallel_calls: CAPABILITIES.parallel_calls,
        template: TemplateCaps::default(),
        models: vec![engine.name().to_owned()],
    };
    Ok(both_shapes(list, &entries, Some(&detected)))
}

async fn ask(
    state: &State,
    upstream: &HttpUpstream,
    query: Option<&str>,
) -> Result<Value, Refusal> {
    let mut url = place::below(&upstream.base_url, "models");
    url.set_query(query);
    let path = url.path().to_owned();
    let bounds = Bounds {
        patience: PATIENCE,
        bytes: state.config.limits.max_response_bytes,
    };
    let answer = probe::get(&state.client, upstream, url, bounds).await?;
    if !answer.status.is_success() {
        return Err(Refusal::from_status(answer, upstream));
    }
    answer
        .json()
        .filter(|list| list["data"].is_array())
        .ok_or_else(|| {
            Refusal::from(ProbeError::NotModels {
                server: authority(&upstream.base_url),
                path,
            })
        })
}

impl Refusal {
    /// A redirect is no answer we could hand on: the client would follow it past the bridge.
    fn from_status(answer: Reply, upstream: &HttpUpstream) -> Self {
        if answer.status.is_client_error() || answer.status.is_server_error() {
            Self::Theirs(Box::new(answer))
        } else {
            Self::from(answer.status_error(upstream))
        }
    }
}

/// A name the user gave to a served model is a model of its own to a client.
fn add_aliases(state: &State, list: &mut Value) {
    let Some(entries) = list["data"].as_array_mut() else {
        return;
    };
    for (alias, target) in &state.config.policy.model_aliases {
        let named = |name: &str| entries.iter().find(|entry| entry["id"] == name);
        if alias == "*" || named(alias).is_some() {
            continue;
        }
        let Some(mut entry) = named(target).cloned() else {
            continue;
        };
        entry["id"] = alias.as_str().into();
        entries.push(entry);
    }
}

fn both_shapes(mut list: Value, entries: &[Value], detected: Option<&Detected>) -> Value {
    list["object"] = "list".into();
    list["models"] = entries
        .iter()
        .enumerate()
        .filter_map(|(place, entry)| codex_entry(entry, place, detected))
        .collect();
    list
}

/// `None` for an entry without an id.
fn codex_entry(entry: &Value, place: usize, detected: Option<&Detected>) -> Option<Value> {
    // What the server says about itself holds for its only model, not for one of many.
    let only = detected.filter(|it| it.model.is_some());
    let model = CodexModel {
        slug: entry["id"].as_str()?,
        context: context_of(entry).or_else(|| only?.context),
        vision: sees(entry) || only.is_some_and(|it| it.vision),
        parallel_calls: detected.is_some_and(|it| it.parallel_calls),
    };
    Some(model.entry(place + 1))
}
