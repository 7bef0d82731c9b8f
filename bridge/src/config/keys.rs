//! Every key a user can write: its place, its kind, its default, and the words that say what is allowed there.
//!
//! This one table drives the two spellings, the defaults, the hints and the fault messages; the README's table and
//! `examples/bridge.schema.json` are tested against it. Paths are camelCase; `[]` stands for any list index.

use serde_json::{Map, Value};

use super::spelling;

/// One key.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) path: &'static str,
    pub(super) kind: Kind,
    /// JSON text, where leaving the key out means a value.
    pub(super) default: Option<&'static str>,
    pub(super) allowed: &'static str,
}

/// What JSON may stand at a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A table with keys of its own.
    Table,
    /// A list of such tables.
    Tables,
    /// A list of strings.
    Texts,
    /// A table whose keys are the user's and whose values are strings.
    TextMap,
    /// The upstream: a table, or a string that stands for one.
    Upstream,
    Text,
    /// A string that no message may show.
    Secret,
    Whole,
    Switch,
    /// A duration: a string with a unit, or whole seconds.
    Time,
}

const URL: &str = "an http:// or https:// URL without credentials, query or fragment is allowed";
/// Of an upstream given as one string.
pub(super) const UPSTREAM_TEXT: &str =
    "an http:// or https:// URL without credentials, query or fragment, or \"bundled\", is allowed";
const SECRET: &str = "printable ASCII without spaces is allowed";
const VARIABLE: &str = "the name of an environment variable that holds the key is allowed";
const TEXT: &str = "a non-empty string is allowed";
const TEXTS: &str = "a list of non-empty strings is allowed";
const TABLE: &str = "a table of keys is allowed";
const BYTES: &str = "a whole number of bytes above 0 is allowed";
const WORD: &str = "one lower-case word is allowed, e.g. \"low\" or \"high\"";
const TIME: &str =
    "\"250ms\", \"15s\", \"30m\", \"1h\" or whole seconds, up to one year, are allowed";
const TIME_OR_OFF: &str = "\"250ms\", \"15s\", \"30m\", \"1h\" or whole seconds, up to one year, or \"off\" or 0 are allowed";

#[rustfmt::skip] // One line a key: it is a table.
pub(super) const KEYS: &[Key] = &[
    key("listen", Kind::Table, None, TABLE),
    key("listen.host", Kind::Text, Some(r#""127.0.0.1""#), "a host name or IP address is allowed"),
    key("listen.port", Kind::Whole, Some("10901"), "a whole number from 0 to 65535 is allowed"),
    key("listen.apiKey", Kind::Secret, None, SECRET),
    key("listen.apiKeyEnv", Kind::Text, None, VARIABLE),
    key("listen.allowedHosts", Kind::Texts, Some("[]"), "a list of host names without port is allowed"),
    key("listen.allowedOrigins", Kind::Texts, Some("[]"), "a list of origins such as \"http://localhost:3000\" is allowed"),
    key("maxRequestBodyBytes", Kind::Whole, Some("16777216"), BYTES),
    key("upstream", Kind::Upstream, None, "a URL, \"bundled\" or a table with `baseUrl` or `bundled` is allowed"),
    key("upstream.baseUrl", Kind::Text, None, URL),
    key("upstream.kind", Kind::Text, Some(r#""auto""#), "\"auto\", \"llama.cpp\" or \"responses\" is allowed"),
    key("upstream.apiKey", Kind::Secret, None, SECRET),
    key("upstream.apiKeyEnv", Kind::Text, None, VARIABLE),
    key("upstream.connectTimeout", Kind::Time, Some(r#""10s""#), TIME),
    key("upstream.idleTimeout", Kind::Time, Some(r#""30m""#), TIME_OR_OFF),
    key("upstream.waitForReady", Kind::Time, Some(r#""1m""#), TIME_OR_OFF),
    key("upstream.bundled", Kind::Table, None, TABLE),
    key("upstream.bundled.model", Kind::Text, Some(r#""smollm2-135m""#), "a path, an alias, hf:owner/repo/file or pip:package==version/file is allowed"),
    key("upstream.bundled.device", Kind::Text, Some(r#""auto""#), "\"auto\" or \"cpu\" is allowed; CUDA is not in this release"),
    key("upstream.bundled.contextLength", Kind::Whole, None, "a whole number of tokens above 0 is allowed"),
    key("upstream.bundled.maxBatch", Kind::Whole, Some("8"), "a whole number from 1 to 1024 is allowed"),
    key("upstream.bundled.maxQueue", Kind::Whole, Some("64"), "a whole number from 1 to 1000000 is allowed"),
    key("upstream.bundled.threads", Kind::Whole, None, "a whole number from 1 to 1024 is allowed"),
    key("upstream.bundled.kvCache", Kind::Text, Some(r#""auto""#), "\"auto\", \"f32\", \"f16\", \"bf16\" or \"q8\" is allowed"),
    key("upstream.bundled.tools", Kind::Text, Some(r#""auto""#), "\"auto\", \"full\", \"compact\" or \"off\" is allowed"),
    key("upstream.bundled.endLoops", Kind::Switch, Some("true"), "true or false is allowed"),
    key("upstream.bundled.warmStart", Kind::Switch, Some("true"), "true or false is allowed"),
    key("upstream.bundled.warmStartDir", Kind::Text, None, TEXT),
    key("upstream.bundled.warmStartBytes", Kind::Whole, Some("4294967296"), BYTES),
    key("upstream.bundled.waitForReady", Kind::Time, Some(r#""10m""#), TIME_OR_OFF),
    key("webSearchTool", Kind::Table, None, "a table with `namespace` and `tool` is allowed"),
    key("webSearchTool.namespace", Kind::Text, None, TEXT),
    key("webSearchTool.tool", Kind::Text, None, TEXT),
    key("mcpProxy", Kind::Table, None, "a table with `baseUrl` is allowed"),
    key("mcpProxy.baseUrl", Kind::Text, None, URL),
    key("excludedMcpTools", Kind::Tables, Some("[]"), "a list of tables with `namespace` and `tools` is allowed"),
    key("excludedMcpTools[].namespace", Kind::Text, None, TEXT),
    key("excludedMcpTools[].tools", Kind::Texts, None, TEXTS),
    key("phase", Kind::Text, Some(r#""stream""#), "\"stream\" or \"hold\" is allowed"),
    key("keepAlive", Kind::Time, Some(r#""15s""#), TIME_OR_OFF),
    key("unknownTools", Kind::Text, Some(r#""refuse""#), "\"refuse\" or \"drop\" is allowed"),
    key("systemMessages", Kind::Text, Some(r#""auto""#), "\"auto\", \"merge\" or \"keep\" is allowed"),
    key("modelAliases", Kind::TextMap, Some("{}"), "a table from a model name or \"*\" to a non-empty model name is allowed"),
    key("defaultReasoningEffort", Kind::Text, None, WORD),
    key("repairPatchMarkers", Kind::Switch, Some("false"), "true or false is allowed"),
    key("limits", Kind::Table, None, TABLE),
    key("limits.maxEventBytes", Kind::Whole, Some("8388608"), BYTES),
    key("limits.maxHeldBytes", Kind::Whole, Some("8388608"), BYTES),
    key("limits.maxResponseBytes", Kind::Whole, Some("67108864"), BYTES),
    key("limits.maxConnections", Kind::Whole, Some("1024"), "a whole number from 1 to 1000000 is allowed"),
    key("limits.headerTimeout", Kind::Time, Some(r#""10s""#), TIME),
    key("shutdownGrace", Kind::Time, Some(r#""10s""#), TIME),
    key("log", Kind::Table, None, TABLE),
    key("log.format", Kind::Text, Some(r#""text""#), "\"text\" or \"json\" is allowed"),
    key("log.filter", Kind::Text, Some(r#""info""#), "a filter such as \"info\" or \"codex_bridge=debug\" is allowed"),
];

const fn key(
    path: &'static str,
    kind: Kind,
    default: Option<&'static str>,
    allowed: &'static str,
) -> Key {
    Key {
        path,
        kind,
        default,
        allowed,
    }
}

impl Key {
    /// The last name of the path.
    pub(super) fn name(&self) -> &'static str {
        self.path.rsplit('.').next().unwrap_or(self.path)
    }

    fn parent(&self) -> &'static str {
        self.path.rsplit_once('.').map_or("", |(parent, _)| parent)
    }
}

/// The key at a path of either spelling, with or without list indices.
pub(super) fn find(path: &str) -> Option<&'static Key> {
    let wanted = without_indices(path);
    KEYS.iter()
        .find(|key| key.path == wanted || spelling::snake(key.path) == wanted)
}

/// The keys directly under a camelCase path; `""` is the top.
pub(super) fn children(path: &str) -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(move |key| key.parent() == path)
}

/// The lowest layer. What stands at `upstream` depends on which upstream the user chose.
pub(super) fn defaults(http_upstream: bool) -> Map<String, Value> {
    let mut layer = Map::new();
    for key in KEYS {
        let Some(text) = key.default else { continue };
        let other_upstream = match key.parent() {
            "upstream" => !http_upstream,
            "upstream.bundled" => http_upstream,
            _ => false,
        };
        if other_upstream {
            continue;
        }
        // A test parses every default; one that does not parse would be missing, and the strict parse would say so.
        let Ok(value) = serde_json::from_str(text) else {
            continue;
        };
        let mut table = &mut layer;
        for name in key.parent().split('.').filter(|name| !name.is_empty()) {
            let inner = table
                .entry(spelling::snake(name))
                .or_insert_with(|| Value::Object(Map::new()));
            // No key lies below one that is not a table.
            let Some(inner) = inner.as_object_mut() else {
                return layer;
            };
            table = inner;
        }
        table.insert(spelling::snake(key.name()), value);
    }
    layer
}

/// A configuration in camelCase without the settings that only repeat a default.
pub(super) fn without_defaults(settings: &Value, path: &str) -> Value {
    let Value::Object(table) = settings else {
        return settings.clone();
    };
    let mut chosen = Map::new();
    for (name, value) in table {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        let key = find(&path);
        let default = key
            .and_then(|key| key.default)
            .and_then(|text| serde_json::from_str::<Value>(text).ok());
        if default.as_ref() == Some(value) {
            continue;
        }
        let inner = without_defaults(value, &path);
        let emptied = inner.as_object().is_some_and(Map::is_empty) && *value != inner;
        if !emptied {
            chosen.insert(name.clone(), inner);
        }
    }
    Value::Object(chosen)
}

/// `a[12].b` → `a[].b`.
fn without_indices(path: &str) -> String {
    let mut plain = String::with_capacity(path.len());
    let mut inside = false;
    for letter in path.chars() {
        match letter {
            '[' => inside = true,
            ']' => inside = false,
            _ if inside => continue,
            _ => {}
        }
        plain.push(letter);
    }
    plain
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;
    use serde_json::json;

    use super::*;

    #[test]
    fn every_default_is_json() {
        for key in KEYS {
            if let Some(text) = key.default {
                serde_json::from_str::<Value>(text)
                    .unwrap_or_else(|error| panic!("{}: {error}", key.path));
            }
        }
    }

    #[test]
    fn a_path_is_found_in_both_spellings_and_with_indices() {
        for path in [
            "excludedMcpTools[3].tools",
            "excluded_mcp_tools[3].tools",
            "excludedMcpTools[].tools",
        ] {
            assert_eq!(
                find(path).map(|key| key.path),
                Some("excludedMcpTools[].tools")
            );
        }
        assert_eq!(find("excludedMcpTools.tools").map(|key| key.path), None);
    }

    #[test]
    fn defaults_name_the_settings_of_the_chosen_upstream_only() {
        assert_eq!(
            defaults(true).get("upstream"),
            Some(
                &json!({"kind": "auto", "connect_timeout": "10s", "idle_timeout": "30m", "wait_for_ready": "1m"})
            )
        );
        assert_eq!(
            defaults(false).get("upstream"),
            Some(&json!({"bundled": {
                "model": "smollm2-135m", "device": "auto", "max_batch": 8, "max_queue": 64, "kv_cache": "auto",
                "tools": "auto", "end_loops": true, "warm_start": true, "warm_start_bytes": 4_294_967_296_u64, "wait_for_ready": "10m",
            }}))
        );
    }
}
