//! `bridge.config.json`: the address, the upstream, and whatever else the user had already chosen.

use std::path::{self, PathBuf};

use serde_json::{Map, Value, json};

use crate::{
    config::{BundledUpstream, Loaded, UpstreamConfig},
    pull,
};

/// The variable named for a key that was given literally: keys are not copied into more files.
pub(super) const KEY_VARIABLE: &str = "CODEX_BRIDGE_API_KEY";
const UPSTREAM_KEY_VARIABLE: &str = "CODEX_BRIDGE_UPSTREAM_API_KEY";

/// `context`: the window that was asked for; the bundled engine is to have it too.
pub(super) fn render(loaded: &Loaded, context: Option<u64>) -> String {
    let listen = &loaded.config.listen;
    let mut file = Map::new();
    file.insert(
        "listen".to_owned(),
        json!({ "host": listen.host, "port": listen.port }),
    );
    file.insert("upstream".to_owned(), upstream(loaded, context));
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

fn upstream(loaded: &Loaded, context: Option<u64>) -> Value {
    let mut chosen = loaded
        .chosen
        .get("upstream")
        .cloned()
        .unwrap_or_else(|| json!({}));
    name_variable(Some(&mut chosen), UPSTREAM_KEY_VARIABLE);
    if let (UpstreamConfig::Bundled(engine), Some(settings)) = (
        &loaded.config.upstream,
        chosen.get_mut("bundled").and_then(Value::as_object_mut),
    ) {
        make_absolute(settings, engine);
    }
    if let (UpstreamConfig::Bundled(_), Some(tokens), Some(table)) =
        (&loaded.config.upstream, context, chosen.as_object_mut())
    {
        let engine = table.entry("bundled").or_insert_with(|| json!({}));
        engine["contextLength"] = tokens.into();
    }
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

/// The file is used from other folders than the one in which it was written.
fn make_absolute(settings: &mut Map<String, Value>, engine: &BundledUpstream) {
    let model = pull::path(&engine.model, engine.places.home.as_deref());
    let warm_start = engine.warm_start.as_ref().map(|warm| warm.folder.clone());
    for (key, path) in [("model", model), ("warmStartDir", warm_start)] {
        let absolute: Option<PathBuf> = path.and_then(|path| path::absolute(path).ok());
        // A folder whose name is not UTF-8 has no place in JSON.
        let absolute = absolute.as_deref().and_then(|path| path.to_str());
        if let (Some(setting), Some(absolute)) = (settings.get_mut(key), absolute) {
            *setting = absolute.into();
        }
    }
}

fn name_variable(table: Option<&mut Value>, variable: &str) {
    if let Some(table) = table.and_then(Value::as_object_mut)
        && table.remove("apiKey").is_some()
    {
        table.insert("apiKeyEnv".to_owned(), json!(variable));
    }
}
