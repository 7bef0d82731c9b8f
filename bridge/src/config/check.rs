//! What several keys mean together; the last step before a [`Config`] exists.

use std::{net::IpAddr, num::NonZeroUsize, path::PathBuf};

use tracing_subscriber::EnvFilter;

use super::{
    BundledUpstream, Config, Exclusion, HttpUpstream, Limits, Listen, Log, NamespacedTool, Places,
    Policy, Secret, UpstreamConfig, WarmStart,
    error::Fault,
    file::{self, File},
    keys,
    source::Environment,
    values::{KeyText, Text},
};

/// More would overflow the counter behind it.
const MOST_CONNECTIONS: usize = 1_000_000;
/// Of threads and of sequences side by side: far beyond any machine, and still harmless to plan for.
const MOST_THREADS: usize = 1024;

pub(super) fn config(file: File, environment: &Environment) -> Result<Config, Fault> {
    Ok(Config {
        listen: listen(file.listen, environment)?,
        limits: limits(&file.limits, file.max_request_body_bytes.get())?,
        upstream: match file.upstream {
            file::Upstream::Http(http) => UpstreamConfig::Http(upstream(http, environment)?),
            file::Upstream::Bundled(engine) => {
                UpstreamConfig::Bundled(bundled(engine, environment)?)
            }
        },
        mcp_proxy: file
            .mcp_proxy
            .as_ref()
            .map(|proxy| proxy.base_url.0.clone()),
        log: log(file.log)?,
        shutdown_grace: file.shutdown_grace.0,
        policy: Policy {
            web_search_tool: web_search_tool(file.web_search_tool, &file.excluded_mcp_tools)?,
            excluded_mcp_tools: file.excluded_mcp_tools.into_iter().map(exclusion).collect(),
            unknown_tools: file.unknown_tools,
            phase: file.phase,
            keep_alive: file.keep_alive.0,
            system_messages: file.system_messages,
            model_aliases: file
                .model_aliases
                .into_iter()
                .map(|(asked, sent)| (asked, sent.0))
                .collect(),
            default_reasoning_effort: file.default_reasoning_effort.map(|effort| effort.0),
            repair_patch_markers: file.repair_patch_markers,
        },
    })
}

fn listen(listen: file::Listen, environment: &Environment) -> Result<Listen, Fault> {
    let api_key = key("listen", listen.api_key, listen.api_key_env, environment)?;
    let host = listen.host.0;
    if api_key.is_none() && !is_loopback(&host) {
        return Err(Fault::new(
            "listen.host",
            format!(
                "{host:?} is reachable from other machines, and neither `listen.apiKey` nor `listen.apiKeyEnv` is set"
            ),
            "a loopback address, or any address with a key is allowed",
        ));
    }
    Ok(Listen {
        host,
        port: listen.port,
        api_key,
        allowed_hosts: listen
            .allowed_hosts
            .into_iter()
            .map(|host| host.0)
            .collect(),
        allowed_origins: listen
            .allowed_origins
            .into_iter()
            .map(|origin| origin.0)
            .collect(),
    })
}

/// A name other than `localhost` may lead anywhere.
fn is_loopback(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => host == "localhost",
    }
}

fn key(
    table: &str,
    literal: Option<KeyText>,
    variable: Option<Text>,
    environment: &Environment,
) -> Result<Option<Secret>, Fault> {
    let path = format!("{table}.api_key_env");
    match (literal, variable) {
        (None, None) => Ok(None),
        (Some(key), None) => Ok(Some(key.0)),
        (Some(_), Some(_)) => Err(Fault::new(
            path,
            "given beside `apiKey`",
            "one of the two is allowed",
        )),
        (None, Some(Text(name))) => {
            let fault = |came: String| Fault::new(&path, came, described(&path));
            let text = environment
                .get(&name)
                .map_err(|problem| fault(format!("{name:?} is {problem}")))?
                .ok_or_else(|| fault(format!("{name:?} is not set")))?;
            match KeyText::try_from(text.to_owned()) {
                Ok(key) => Ok(Some(key.0)),
                Err(_) if text.is_empty() => Err(fault(format!("{name:?} is empty"))),
                Err(_) => Err(fault(format!(
                    "{name:?} holds more than printable ASCII without spaces"
                ))),
            }
        }
    }
}

fn upstream(http: file::Http, environment: &Environment) -> Result<HttpUpstream, Fault> {
    Ok(HttpUpstream {
        base_url: http.base_url.0,
        kind: http.kind,
        api_key: key("upstream", http.api_key, http.api_key_env, environment)?,
        connect_timeout: http.connect_timeout.0,
        idle_timeout: http.idle_timeout.0,
        wait_for_ready: http.wait_for_ready.0,
    })
}

fn bundled(engine: file::Bundled, environment: &Environment) -> Result<BundledUpstream, Fault> {
    let places = Places::new(environment);
    let at_most = |key: &str, most: usize, value: NonZeroUsize| {
        let path = format!("upstream.bundled.{key}");
        match value.get() {
            value if value <= most => Ok(value),
            value => Err(Fault::new(&path, value.to_string(), described(&path))),
        }
    };
    let folder = match engine.warm_start_dir {
        Some(folder) => Some(PathBuf::from(folder.0)),
        None => places.warm_start.clone(),
    };
    Ok(BundledUpstream {
        model: engine.model.0,
        device: engine.device,
        context_length: engine.context_length.map(NonZeroUsize::get),
        max_batch: at_most("max_batch", MOST_THREADS, engine.max_batch)?,
        max_queue: at_most("max_queue", MOST_CONNECTIONS, engine.max_queue)?,
        threads: engine
            .threads
            .map(|threads| at_most("threads", MOST_THREADS, threads))
            .transpose()?,
        kv_cache: engine.kv_cache,
        tools: engine.tools,
        end_loops: engine.end_loops,
        // Without a home there is no place for it, and nothing that would need it.
        warm_start: folder
            .filter(|_| engine.warm_start)
            .map(|folder| WarmStart {
                folder,
                max_bytes: engine.warm_start_bytes.get(),
            }),
        wait_for_ready: engine.wait_for_ready.0,
        places,
    })
}

fn limits(limits: &file::Limits, max_request_body_bytes: u64) -> Result<Limits, Fault> {
    let max_connections = limits.max_connections.get();
    if max_connections > MOST_CONNECTIONS {
        let path = "limits.max_connections";
        return Err(Fault::new(
            path,
            max_connections.to_string(),
            described(path),
        ));
    }
    let bytes = NonZeroUsize::get;
    Ok(Limits {
        max_request_body_bytes,
        max_event_bytes: bytes(limits.max_event_bytes),
        max_held_bytes: bytes(limits.max_held_bytes),
        max_response_bytes: bytes(limits.max_response_bytes),
        max_connections,
        header_timeout: limits.header_timeout.0,
    })
}

fn log(log: file::Log) -> Result<Log, Fault> {
    let filter = log.filter.0;
    if EnvFilter::try_new(&filter).is_err() {
        return Err(Fault::new(
            "log.filter",
            format!("{filter:?}"),
            described("log.filter"),
        ));
    }
    Ok(Log {
        format: log.format,
        filter,
    })
}

/// A search tool that is also excluded would leave the model with a search that nobody answers.
fn web_search_tool(
    tool: Option<file::WebSearchTool>,
    excluded: &[file::Excluded],
) -> Result<Option<NamespacedTool>, Fault> {
    let Some(file::WebSearchTool { namespace, tool }) = tool else {
        return Ok(None);
    };
    if excluded
        .iter()
        .any(|group| group.namespace == namespace && group.tools.contains(&tool))
    {
        return Err(Fault::new(
            "web_search_tool",
            format!(
                "{:?} of {:?} also stands in `excludedMcpTools`",
                tool.0, namespace.0
            ),
            "a tool that is not excluded is allowed",
        ));
    }
    Ok(Some(NamespacedTool {
        namespace: namespace.0,
        tool: tool.0,
    }))
}

fn exclusion(excluded: file::Excluded) -> Exclusion {
    Exclusion {
        namespace: excluded.namespace.0,
        tools: excluded.tools.into_iter().map(|tool| tool.0).collect(),
    }
}

fn described(path: &str) -> &'static str {
    keys::find(path).map_or("", |key| key.allowed)
}
