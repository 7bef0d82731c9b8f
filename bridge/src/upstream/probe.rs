//! What stands behind the upstream address, asked rather than assumed.
//!
//! `/props` answers only on llama-server and tells the running model, its window and what its chat template can do.
//! Any other server is asked for its model list. [`Probe`] keeps an answer for a second and asks once however many
//! wait for it, so a health check every few milliseconds costs the upstream nothing.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde_json::Value;
use tokio::sync::Mutex;
use url::Url;

use super::client::authority;
use crate::config::{HttpUpstream, UpstreamKind};

const FRESH: Duration = Duration::from_secs(1);

/// A health check must not hang. `/props` repeats the chat template, which is some ten kilobytes.
const PROBE: Bounds = Bounds {
    patience: Duration::from_secs(2),
    bytes: 4 * 1024 * 1024,
};

/// How long to wait for an answer, and how much of it to take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) patience: Duration,
    pub(crate) bytes: usize,
}

/// An upstream that answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detected {
    /// Never `Auto`.
    pub kind: UpstreamKind,
    /// The model served, where there is just one.
    pub model: Option<String>,
    /// Tokens of one sequence as the server runs it, not as the model was trained.
    pub context: Option<u64>,
    pub vision: bool,
    /// The chat template takes more than one call in a turn of the history.
    pub parallel_calls: bool,
    pub template: TemplateCaps,
    /// Every id of the model list; empty where the list was not asked for.
    pub models: Vec<String>,
}

/// llama-server's `chat_template_caps`; `None` where a build does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TemplateCaps {
    pub tools: Option<bool>,
    pub tool_calls: Option<bool>,
    pub parallel_tool_calls: Option<bool>,
    pub system_role: Option<bool>,
    pub preserve_reasoning: Option<bool>,
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum ProbeError {
    #[error("the model server at {server} cannot be reached: {cause}")]
    Unreachable { server: String, cause: String },
    #[error("the model server at {server} did not answer in {} s", .after.as_secs())]
    Silent { server: String, after: Duration },
    #[error("the model server at {server} is still loading its model")]
    Loading { server: String },
    #[error("the model server at {server} answered {status} to GET {path}")]
    Status {
        server: String,
        status: StatusCode,
        path: String,
    },
    #[error("the model server at {server} answered GET {path} with more than {limit} bytes")]
    TooLarge {
        server: String,
        path: String,
        limit: usize,
    },
    #[error(
        "the model server at {server} answered GET {path} with something that is no model list"
    )]
    NotModels { server: String, path: String },
}

/// Asks the upstream what it is.
///
/// # Errors
/// It cannot be reached, is still loading, or does not speak as its configured kind would.
pub async fn detect(client: &Client, upstream: &HttpUpstream) -> Result<Detected, ProbeError> {
    if upstream.kind != UpstreamKind::Responses {
        let answer = get(client, upstream, props_url(&upstream.base_url), PROBE).await?;
        if answer.is_loading() {
            return Err(ProbeError::Loading {
                server: authority(&upstream.base_url),
            });
        }
        if let Some(detected) = answer.json().as_ref().and_then(from_props) {
            return Ok(detected);
        }
    }
    let answer = get(
        client,
        upstream,
        models_url(&upstream.base_url, None),
        PROBE,
    )
    .await?;
    if !answer.status.is_success() {
        return Err(answer.status_error(upstream));
    }
    let list = answer.json().unwrap_or_default();
    Ok(from_models(&list, upstream.kind))
}

/// The last answer of an upstream, and the means to ask again.
#[derive(Debug)]
pub struct Probe {
    client: Client,
    upstream: HttpUpstream,
    last: Mutex<Option<(Instant, Outcome)>>,
}

pub type Outcome = Result<Arc<Detected>, ProbeError>;

impl Probe {
    pub fn new(client: Client, upstream: HttpUpstream) -> Self {
        Self {
            client,
            upstream,
            last: Mutex::new(None),
        }
    }

    /// At most a second old.
    pub async fn outcome(&self) -> Outcome {
        // Held while asking: whoever comes meanwhile waits and takes the same answer.
        let mut last = self.last.lock().await;
        if let Some((when, outcome)) = &*last
            && when.elapsed() < FRESH
        {
            return outcome.clone();
        }
        let outcome = detect(&self.client, &self.upstream).await.map(Arc::new);
        *last = Some((Instant::now(), outcome.clone()));
        outcome
    }
}

/// `<base>/models`, with a query.
pub fn models_url(base: &Url, query: Option<&str>) -> Url {
    let mut url = base.clone();
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().push("models");
    }
    url.set_query(query);
    url
}

/// `/props` lies beside `/v1`, not below it.
fn props_url(base: &Url) -> Url {
    let mut url = base.clone();
    let below_v1 = base.path().trim_end_matches('/').ends_with("/v1");
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty();
        if below_v1 {
            path.pop();
        }
        path.push("props");
    }
    url
}

/// A whole answer, whatever its status.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Bytes,
    path: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// llama-server answers 503 to everything until its model is there.
    pub(crate) fn is_loading(&self) -> bool {
        self.status == StatusCode::SERVICE_UNAVAILABLE
            && self
                .json()
                .is_some_and(|body| body["error"]["type"] == "unavailable_error")
    }

    pub(crate) fn status_error(&self, upstream: &HttpUpstream) -> ProbeError {
        ProbeError::Status {
            server: authority(&upstream.base_url),
            status: self.status,
            path: self.path.clone(),
        }
    }
}

/// One small GET with the upstream's own key.
pub(crate) async fn get(
    client: &Client,
    upstream: &HttpUpstream,
    url: Url,
    bounds: Bounds,
) -> Result<Answer, ProbeError> {
    let path = url.path().to_owned();
    let request = authorized(client.get(url), upstream).timeout(bounds.patience);
    let failed = |error: &reqwest::Error| failure(upstream, error, bounds.patience);
    let mut response = request.send().await.map_err(|error| failed(&error))?;
    let body = read(&mut response, bounds.bytes)
        .await
        .map_err(|error| failed(&error))?
        .ok_or_else(|| ProbeError::TooLarge {
            server: authority(&upstream.base_url),
            path: path.clone(),
            limit: bounds.bytes,
        })?;
    Ok(Answer {
        status: response.status(),
        headers: std::mem::take(response.headers_mut()),
        body,
        path,
    })
}

/// `None` when it is too large.
async fn read(response: &mut Response, limit: usize) -> Result<Option<Bytes>, reqwest::Error> {
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > limit {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body.freeze()))
}

fn authorized(request: RequestBuilder, upstream: &HttpUpstream) -> RequestBuilder {
    match &upstream.api_key {
        Some(key) => request.bearer_auth(key.expose()),
        None => request,
    }
}

fn failure(upstream: &HttpUpstream, error: &reqwest::Error, patience: Duration) -> ProbeError {
    let server = authority(&upstream.base_url);
    if error.is_timeout() {
        let after = if error.is_connect() {
            upstream.connect_timeout.min(patience)
        } else {
            patience
        };
        ProbeError::Silent { server, after }
    } else {
        ProbeError::Unreachable {
            server,
            cause: root_cause(error),
        }
    }
}

/// The innermost error says it best: "connection refused" rather than "error sending request".
pub(crate) fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// `None` when this is no answer of llama-server.
fn from_props(props: &Value) -> Option<Detected> {
    let settings = props.get("default_generation_settings")?;
    let caps = &props["chat_template_caps"];
    let cap = |name: &str| caps[name].as_bool();
    let template = TemplateCaps {
        tools: cap("supports_tools"),
        tool_calls: cap("supports_tool_calls"),
        parallel_tool_calls: cap("supports_parallel_tool_calls"),
        system_role: cap("supports_system_role"),
        preserve_reasoning: cap("supports_preserve_reasoning"),
    };
    let model = model_name(props);
    Some(Detected {
        kind: UpstreamKind::LlamaCpp,
        models: model.iter().cloned().collect(),
        model,
        // A router that has no model loaded says 0.
        context: settings["n_ctx"].as_u64().filter(|tokens| *tokens > 0),
        vision: props["modalities"]["vision"].as_bool().unwrap_or(false),
        parallel_calls: template
            .parallel_tool_calls
            .unwrap_or_else(|| !refuses_parallel_calls(&props["chat_template"])),
        template,
    })
}

/// Llama 3's templates raise "This model only supports single tool-calls at once!".
fn refuses_parallel_calls(template: &Value) -> bool {
    template
        .as_str()
        .is_some_and(|text| text.contains("single tool-calls"))
}

/// The alias, else the file without folder, as llama-server names it in its list.
fn model_name(props: &Value) -> Option<String> {
    let text = |key: &str| props[key].as_str().filter(|name| !name.is_empty());
    text("model_alias")
        .or_else(|| text("model_path")?.rsplit(['/', '\\']).next())
        .map(str::to_owned)
}

fn from_models(list: &Value, configured: UpstreamKind) -> Detected {
    let entries = list["data"].as_array().map_or(&[][..], Vec::as_slice);
    let models: Vec<String> = entries
        .iter()
        .filter_map(|entry| entry["id"].as_str())
        .map(str::to_owned)
        .collect();
    let only = match entries {
        [only] => Some(only),
        _ => None,
    };
    Detected {
        kind: match configured {
            UpstreamKind::Auto => UpstreamKind::Responses,
            kind => kind,
        },
        model: only.and(models.first().cloned()),
        context: only.and_then(context_of),
        vision: only.is_some_and(sees),
        // A server that is trusted in everything is trusted in this.
        parallel_calls: true,
        template: TemplateCaps::default(),
        models,
    }
}

/// The running window of a model list's entry: llama-server's spelling, then vLLM's and others'.
pub fn context_of(entry: &Value) -> Option<u64> {
    [
        &entry["meta"]["n_ctx"],
        &entry["max_model_len"],
        &entry["context_length"],
        &entry["context_window"],
    ]
    .into_iter()
    .find_map(Value::as_u64)
    .filter(|tokens| *tokens > 0)
}

/// The entry says that it takes images.
pub fn sees(entry: &Value) -> bool {
    let modalities = [
        &entry["architecture"]["input_modalities"],
        &entry["input_modalities"],
    ];
    modalities
        .into_iter()
        .filter_map(Value::as_array)
        .flatten()
        .any(|modality| modality == "image")
}

#[cfg(test)]
mod tests;
