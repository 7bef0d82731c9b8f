//! The configuration as a user writes it, after the layers were merged and every key is in snake_case.
//!
//! Parsing is strict: an unknown key, a wrong type or a value that cannot be meant fails with its path. What several
//! keys mean together is checked in `config::check`. Serialised, it is what `--check` prints.

use std::{
    collections::BTreeMap,
    num::{NonZeroU64, NonZeroUsize},
};

use serde::{Deserialize, Serialize, Serializer, ser::SerializeMap};

use super::{
    LogFormat, PhasePolicy, SystemMessages, UnknownTools, UpstreamKind,
    bundled::{Device, KvCache, ToolsMode},
    values::{BaseUrl, Host, KeyText, Origin, Span, SpanOrOff, Text, Word},
};

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all(serialize = "camelCase"), deny_unknown_fields)]
pub(super) struct File {
    pub(super) listen: Listen,
    pub(super) max_request_body_bytes: NonZeroU64,
    pub(super) upstream: Upstream,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) web_search_tool: Option<WebSearchTool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) mcp_proxy: Option<McpProxy>,
    pub(super) excluded_mcp_tools: Vec<Excluded>,
    pub(super) phase: PhasePolicy,
    pub(super) keep_alive: SpanOrOff,
    pub(super) unknown_tools: UnknownTools,
    pub(super) system_messages: SystemMessages,
    pub(super) model_aliases: BTreeMap<String, Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) default_reasoning_effort: Option<Word>,
    pub(super) repair_patch_markers: bool,
    pub(super) limits: Limits,
    pub(super) shutdown_grace: Span,
    pub(super) log: Log,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all(serialize = "camelCase"), deny_unknown_fields)]
pub(super) struct Listen {
    pub(super) host: Host,
    pub(super) port: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) api_key: Option<KeyText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) api_key_env: Option<Text>,
    pub(super) allowed_hosts: Vec<Host>,
    pub(super) allowed_origins: Vec<Origin>,
}

/// "Both" and "neither" have no value here; the layers see to the variant (`config::layer`).
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Upstream {
    Http(Http),
    Bundled(Bundled),
}

impl Serialize for Upstream {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Http(http) => http.serialize(serializer),
            Self::Bundled(bundled) => {
                let mut table = serializer.serialize_map(Some(1))?;
                table.serialize_entry("bundled", bundled)?;
                table.end()
            }
        }
    }
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all(serialize = "camelCase"), deny_unknown_fields)]
pub(super) struct Http {
    pub(super) base_url: BaseUrl,
    pub(super) kind: UpstreamKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) api_key: Option<KeyText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) api_key_env: Option<Text>,
    pub(super) connect_timeout: Span,
    pub(super) idle_timeout: SpanOrOff,
    pub(super) wait_for_ready: SpanOrOff,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all(serialize = "camelCase"), deny_unknown_fields)]
pub(super) struct Bundled {
    pub(super) model: Text,
    pub(super) device: Device,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) context_length: Option<NonZeroUsize>,
    pub(super) max_batch: NonZeroUsize,
    pub(super) max_queue: NonZeroUsize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) threads: Option<NonZeroUsize>,
    pub(super) kv_cache: KvCache,
    pub(super) tools: ToolsMode,
    pub(super) end_loops: bool,
    pub(super) warm_start: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) warm_start_dir: Option<Text>,
    pub(super) warm_start_bytes: NonZeroU64,
    pub(super) wait_for_ready: SpanOrOff,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all(serialize = "camelCase"), deny_unknown_fields)]
pub(super) struct WebSearchTool {
    pub(super) namespace: Text,
    pub(super) tool: Text,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all(serialize = "camelCase"), deny_unknown_fields)]
pub(super) struct McpProxy {
    pub(super) base_url: BaseUrl,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all(serialize = "camelCase"), deny_unknown_fields)]
pub(super) struct Excluded {
    pub(super) namespace: Text,
    pub(super) tools: Vec<Text>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all(serialize = "camelCase"), deny_unknown_fields)]
pub(super) struct Limits {
    pub(super) max_event_bytes: NonZeroUsize,
    pub(super) max_held_bytes: NonZeroUsize,
    pub(super) max_response_bytes: NonZeroUsize,
    pub(super) max_connections: NonZeroUsize,
    pub(super) header_timeout: Span,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all(serialize = "camelCase"), deny_unknown_fields)]
pub(super) struct Log {
    pub(super) format: LogFormat,
    pub(super) filter: Text,
}
