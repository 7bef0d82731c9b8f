//! What the program will do: the validated [`Config`], which every other module reads and none can change.
//!
//! What the user *wrote* is a different type (`config::file`): layers are merged by the crate `config`, parsed
//! strictly, and only then become a `Config`. An impossible value never gets this far.

mod bundled;
mod check;
mod error;
mod file;
mod keys;
mod layer;
mod load;
mod source;
mod spelling;
mod values;

use std::{collections::BTreeMap, fmt, time::Duration};

use serde::{Deserialize, Serialize};
use url::Url;

pub use self::{
    bundled::{BundledUpstream, Device, KvCache, Places, ToolsMode, WarmStart},
    error::Error,
    load::{Loaded, Sources},
    source::{Environment, Flags},
};

/// Everything the running bridge needs to know.
#[derive(Debug, Clone)]
pub struct Config {
    pub listen: Listen,
    pub limits: Limits,
    pub upstream: UpstreamConfig,
    pub policy: Policy,
    pub mcp_proxy: Option<Url>,
    pub log: Log,
    /// How long open streams may go on after the first stop signal.
    pub shutdown_grace: Duration,
}

/// Where clients come in, and which clients may.
#[derive(Debug, Clone)]
pub struct Listen {
    pub host: String,
    pub port: u16,
    /// Bearer key that clients must present; required when `host` is not loopback.
    pub api_key: Option<Secret>,
    /// `Host` names accepted beside loopback names and `host` itself, lower case, without port.
    pub allowed_hosts: Vec<String>,
    /// `Origin` values a browser page may call from, e.g. `http://localhost:3000`.
    pub allowed_origins: Vec<String>,
}

/// Every bound on what a client or an upstream can make us hold.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of one request body, after decompression; inclusive.
    pub max_request_body_bytes: u64,
    /// Bytes of one upstream SSE event.
    pub max_event_bytes: usize,
    /// Bytes of events and item state one stream may hold back.
    pub max_held_bytes: usize,
    /// Bytes of one upstream JSON answer, error bodies included.
    pub max_response_bytes: usize,
    pub max_connections: usize,
    /// From the first byte of a request head to its end.
    pub header_timeout: Duration,
}

/// The two upstreams.
#[derive(Debug, Clone)]
pub enum UpstreamConfig {
    Http(HttpUpstream),
    /// The engine inside this program.
    Bundled(BundledUpstream),
}

/// A server that speaks the Responses API.
#[derive(Debug, Clone)]
pub struct HttpUpstream {
    /// Without a trailing slash, e.g. `http://127.0.0.1:8080/v1`.
    pub base_url: Url,
    pub kind: UpstreamKind,
    pub api_key: Option<Secret>,
    pub connect_timeout: Duration,
    /// Longest silence of the upstream within one answer; `None` waits for ever.
    pub idle_timeout: Option<Duration>,
    /// How long a request waits for a server that refuses connections or is still loading; `None` fails at once.
    pub wait_for_ready: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum UpstreamKind {
    /// Ask once (`/props` answers only on llama-server).
    Auto,
    #[serde(rename = "llama.cpp")]
    LlamaCpp,
    /// Any other native Responses server.
    Responses,
}

/// How requests and answers are translated.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// The MCP tool that stands in for hosted `web_search`.
    pub web_search_tool: Option<NamespacedTool>,
    pub excluded_mcp_tools: Vec<Exclusion>,
    pub unknown_tools: UnknownTools,
    pub phase: PhasePolicy,
    /// Data-bearing life sign after this much silence; `None` sends none.
    pub keep_alive: Option<Duration>,
    pub system_messages: SystemMessages,
    /// Asked name, or `"*"`, to the name sent upstream.
    pub model_aliases: BTreeMap<String, String>,
    /// Sent as `reasoning.effort` when the client gives none.
    pub default_reasoning_effort: Option<String>,
    /// Repairs decorated first and last lines of `apply_patch` inputs (counted and logged).
    pub repair_patch_markers: bool,
}

/// One tool inside a namespace, in the spelling Codex declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespacedTool {
    pub namespace: String,
    pub tool: String,
}

/// Tools of one namespace that the model never gets to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exclusion {
    pub namespace: String,
    pub tools: Vec<String>,
}

/// What happens to a tool type this release does not know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum UnknownTools {
    #[default]
    Refuse,
    /// Left out, counted and logged.
    Drop,
}

/// When a message's phase reaches the client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PhasePolicy {
    /// Text flows at once; the phase stands on `output_item.done`.
    #[default]
    Stream,
    /// The whole message waits until its phase is known, so that `output_item.added` bears it too.
    Hold,
}

/// Where developer and system messages go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SystemMessages {
    /// `Merge` for llama.cpp, `Keep` for any other server.
    #[default]
    Auto,
    /// The leading ones become one system message; later ones become user messages.
    Merge,
    Keep,
}

#[derive(Debug, Clone)]
pub struct Log {
    pub format: LogFormat,
    /// A `tracing_subscriber` filter, e.g. `info` or `codex_bridge=debug`.
    pub filter: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    Json,
}

/// A key. Its `Debug` form shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests;
