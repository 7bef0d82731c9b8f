//! `bridge.config.json`: the address, the upstream, and whatever else the user had already chosen.

use serde_json::{Map, Value, json};

use crate::config::{Loaded, UpstreamConfig};

/// The variable named for a key that was given literally: keys are not copied into more files.
pub(super) const KEY_VARIABLE: &str = "CODEX_BRIDGE_API_KEY";
const UPSTREAM_KEY_VARIABLE: &str = "CODEX_BRIDGE_UPSTREAM_API_KEY";

pub(super) fn render(loaded: &Loaded) -> String {
    let listen = &loaded.config.listen;
    let mut file = Map::new();
    file.insert(
        "listen".to_owned(),
        json!({ "host": listen.host, "port": listen.port }),
    );
    file.insert("upstream".to_owned(), upstream(loaded));
    for (name, value) in loaded.chosen.as_object().into_iter().flatten() {
        match (
            name.as_str(),
            file.get_mut("listen").and_then(Value::as_object_mut),
        ) {
            ("upstream", _) => {}
            ("listen", Some(listen)) => {
                listen.extend(value.as_object().cloned().unwrap_or_default());
            }
            _ => drop(file.insert(name.clone(), value.clone())),
        }
    }
    name_variable(file.get_mut("listen"), KEY_VARIABLE);
    format!("{:#}\n", Value::Object(file))
}

/// The keys given literally, each with the variable that the new file names instead.
pub(super) fn uncopied_keys(loaded: &Loaded) -> impl Iterator<Item = (&'static str, &'static str)> {
    let literal = |table: &str| loaded.effective[table].get("apiKey").is_some();
    [
        (literal("listen"), ("listen.apiKey", KEY_VARIABLE)),
        (
            literal("upstream"),
            ("upstream.apiKey", UPSTREAM_KEY_VARIABLE),
        ),
    ]
    .into_iter()
    .filter_map(|(given, names)| given.then_some(names))
}

fn upstream(loaded: &Loaded) -> Value {
    let mut chosen = loaded
        .chosen
        .get("upstream")
        .cloned()
        .unwrap_or_else(|| json!({}));
    name_variable(Some(&mut chosen), UPSTREAM_KEY_VARIABLE);
    let settings = chosen.as_object().map_or(0, Map::len);
    match (&loaded.config.upstream, chosen.get("baseUrl")) {
        (UpstreamConfig::Http(_), Some(url)) if settings == 1 => url.clone(),
        (UpstreamConfig::Bundled(_), _)
            if chosen
                .get("bundled")
                .is_none_or(|engine| *engine == json!({})) =>
        {
            json!("bundled")
        }
        _ => chosen,
    }
}

fn name_variable(table: Option<&mut Value>, variable: &str) {
    if let Some(table) = table.and_then(Value::as_object_mut)
        && table.remove("apiKey").is_some()
    {
        table.insert("apiKeyEnv".to_owned(), json!(variable));
    }
}
