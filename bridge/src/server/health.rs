//! `GET /health`: whether a request sent now would find a model, and what this bridge is set up to do.
//!
//! Without the key, where one is set, only the status is told.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};
use warp::reply::Response;

use super::{State, context::RequestContext, error};
use crate::{
    config::{Config, UpstreamKind},
    upstream::{
        Upstream,
        bundled::Condition,
        probe::{Outcome, ProbeError},
    },
};

mod engine;

/// What the bridge can do for a client right now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Ready,
    Loading,
    Unreachable,
    /// The bundled engine is gone for good, and the program with it.
    Failed,
    Draining,
}

pub(super) async fn get(state: Arc<State>, request: RequestContext) -> Response {
    let (status, upstream) = match (&state.upstream, &state.probe) {
        (Upstream::Bundled(engine), _) => {
            let condition = engine.condition();
            let status = engine_status(&condition);
            (status, engine::describe(engine, condition))
        }
        (Upstream::Http(_), Some(probe)) => {
            let outcome = probe.outcome().await;
            let status = match &outcome {
                Ok(_) => Status::Ready,
                Err(ProbeError::Loading { .. }) => Status::Loading,
                Err(_) => Status::Unreachable,
            };
            (status, describe_upstream(&outcome))
        }
        // Every server has a probe.
        (Upstream::Http(_), None) => (Status::Unreachable, Value::Null),
    };
    let status = if state.draining.is_draining() && status != Status::Failed {
        Status::Draining
    } else {
        status
    };
    let body = if request.trusted {
        describe(&state, status, &upstream)
    } else {
        json!({"status": status.word()})
    };
    error::json(status.code(), &body)
}

fn engine_status(condition: &Condition) -> Status {
    match condition {
        Condition::Ready { .. } => Status::Ready,
        Condition::Fetching(_) | Condition::Loading => Status::Loading,
        Condition::Failed(_) => Status::Failed,
        Condition::Stopped => Status::Draining,
    }
}

impl Status {
    fn word(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Loading => "loading",
            Self::Unreachable => error::UPSTREAM_UNREACHABLE,
            Self::Failed => "failed",
            Self::Draining => "draining",
        }
    }

    fn code(self) -> StatusCode {
        match self {
            Self::Ready => StatusCode::OK,
            Self::Loading | Self::Unreachable | Self::Failed | Self::Draining => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }
}

fn describe(state: &State, status: Status, upstream: &Value) -> Value {
    json!({
        "status": status.word(),
        "protocol": "native-responses",
        "capabilities": {"mcpProxy": state.config.mcp_proxy.is_some()},
        "config": describe_config(&state.config),
        "upstream": upstream,
        "version": env!("CARGO_PKG_VERSION"),
        "uptimeSeconds": state.started.elapsed().as_secs(),
    })
}

fn describe_config(config: &Config) -> Value {
    let excluded: Vec<Value> = config
        .policy
        .excluded_mcp_tools
        .iter()
        .map(|it| json!({"namespace": it.namespace, "tools": it.tools}))
        .collect();
    let web_search = config
        .policy
        .web_search_tool
        .as_ref()
        .map(|it| json!({"namespace": it.namespace, "tool": it.tool}));
    json!({
        "upstream": super::upstream_name(&config.upstream),
        "mcpProxy": config.mcp_proxy.as_ref().map(super::without_slash),
        "maxRequestBodyBytes": config.limits.max_request_body_bytes,
        "excludedMcpTools": excluded,
        "webSearchTool": web_search,
    })
}

fn describe_upstream(outcome: &Outcome) -> Value {
    let (detected, detail) = match outcome {
        Ok(detected) => (
            Some(detected),
            detected.hides_its_window().map(str::to_owned),
        ),
        Err(error) => (None, Some(error.to_string())),
    };
    // A server that says it is loading was reached.
    let reachable = matches!(outcome, Ok(_) | Err(ProbeError::Loading { .. }));
    json!({
        "reachable": reachable,
        "kind": detected.map(|it| kind(it.kind)),
        "model": detected.and_then(|it| it.model.as_deref()),
        "context": detected.and_then(|it| it.context),
        "vision": detected.map(|it| it.vision),
        "detail": detail,
    })
}

fn kind(kind: UpstreamKind) -> &'static str {
    match kind {
        UpstreamKind::LlamaCpp => "llama.cpp",
        UpstreamKind::Auto | UpstreamKind::Responses => "responses",
    }
}
