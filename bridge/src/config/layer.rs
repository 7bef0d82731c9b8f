//! One layer of settings: a file, the environment, or the flags.
//!
//! A layer's keys are known, spelled in snake_case, and hold the right kind of JSON; it remembers how the user wrote
//! each key, and where, so that a fault found later still names the place.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{
    error::{Error, Fault, shown},
    keys::{self, Kind},
    spelling::{Spelling, camel, nearest, snake},
};

#[derive(Debug)]
pub(super) struct Layer {
    pub(super) settings: Map<String, Value>,
    /// Path in snake_case to the path as it was written.
    written: BTreeMap<String, String>,
    /// Path in snake_case to the file, variable or flag that set it; `""` stands for all.
    places: BTreeMap<String, String>,
    spelling: Spelling,
    /// The upstream was given as one string: whatever lower layers say of it belongs to another server.
    whole_upstream: bool,
}

impl Layer {
    pub(super) fn new(
        settings: Map<String, Value>,
        places: BTreeMap<String, String>,
        spelling: Spelling,
    ) -> Result<Self, Error> {
        let mut layer = Self {
            settings: Map::new(),
            written: BTreeMap::new(),
            places,
            spelling,
            whole_upstream: false,
        };
        match layer.table(settings, "", "") {
            Ok(settings) => {
                layer.settings = settings;
                Ok(layer)
            }
            Err(fault) => Err(layer.error(fault)),
        }
    }

    /// Chooses the bundled engine with this model, set at `place`.
    pub(super) fn set_model(&mut self, model: &str, place: &str) {
        let path = ["upstream", "upstream.bundled", "upstream.bundled.model"];
        for path in path {
            self.written
                .entry(path.to_owned())
                .or_insert_with(|| path.to_owned());
        }
        self.places.insert(path[2].to_owned(), place.to_owned());
        let engine = Map::from_iter([("model".to_owned(), Value::from(model))]);
        let upstream = Map::from_iter([("bundled".to_owned(), Value::Object(engine))]);
        self.settings
            .insert("upstream".to_owned(), Value::Object(upstream));
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.written.contains_key(path)
    }

    /// Whether the layer chooses an HTTP upstream (`true`), the bundled one, or says nothing of it.
    pub(super) fn http_upstream(&self) -> Option<bool> {
        self.settings
            .get("upstream")
            .map(|upstream| upstream.get("bundled").is_none())
    }

    /// Takes away what a higher layer's choice rules out.
    pub(super) fn yield_to(&mut self, higher: &Self) {
        let other_upstream = higher
            .http_upstream()
            .is_some_and(|choice| self.http_upstream() == Some(!choice));
        if higher.whole_upstream || other_upstream {
            self.remove("upstream");
        }
        for (one, other) in [("api_key", "api_key_env"), ("api_key_env", "api_key")] {
            for table in ["listen", "upstream"] {
                if higher.has(&format!("{table}.{one}")) {
                    self.remove(&format!("{table}.{other}"));
                }
            }
        }
    }

    fn remove(&mut self, path: &str) {
        match path.split_once('.') {
            None => self.settings.remove(path),
            Some((table, key)) => self
                .settings
                .get_mut(table)
                .and_then(Value::as_object_mut)
                .and_then(|table| table.remove(key)),
        };
        let below = format!("{path}.");
        self.written
            .retain(|written, _| written != path && !written.starts_with(&below));
    }

    /// The fault as a message of this layer, which has to hold the path or something above it.
    pub(super) fn error(&self, fault: Fault) -> Error {
        let allowed = match self.whole_upstream && fault.path == "upstream.base_url" {
            // The word may have been meant for something else than a URL.
            true => keys::UPSTREAM_TEXT.to_owned(),
            false => fault.allowed,
        };
        Error::Setting {
            place: self.place(&fault.path),
            key: self.as_written(&fault.path),
            came: fault.came,
            allowed,
        }
    }

    /// The file, variable or flag that sets the key at a path.
    pub(super) fn place(&self, path: &str) -> String {
        let inside = format!("{path}.");
        ancestors(path)
            .find_map(|path| self.places.get(path))
            // A variable for something inside brings the table around it.
            .or_else(|| {
                self.places
                    .iter()
                    .find(|(path, _)| path.starts_with(&inside))
                    .map(|(_, place)| place)
            })
            .map_or_else(|| "configuration".to_owned(), String::clone)
    }

    /// The path in the user's words, as far down as the user wrote it, and from there in the layer's spelling.
    fn as_written(&self, path: &str) -> String {
        let (written, above) = ancestors(path)
            .find_map(|above| {
                self.written
                    .get(above)
                    .map(|written| (written.as_str(), above))
            })
            .unwrap_or_default();
        let rest = &path[above.len()..];
        match self.spelling {
            // A name that is no key of ours, such as a model's, stays as it is.
            Spelling::Camel if keys::find(path).is_some() => format!("{written}{}", camel(rest)),
            _ => format!("{written}{rest}"),
        }
    }

    /// `path` is snake_case, `written` what the user wrote up to here; both are empty at the top.
    fn table(
        &mut self,
        table: Map<String, Value>,
        path: &str,
        written: &str,
    ) -> Result<Map<String, Value>, Fault> {
        // The keys of a list's tables stand under `name[]`.
        let parent = match path.rsplit_once('[') {
            Some((list, _)) => format!("{}[]", keys::find(list).map_or("", |key| key.path)),
            None => keys::find(path).map_or("", |key| key.path).to_owned(),
        };
        let mut settings = Map::new();
        for (name, value) in table {
            let written = join(written, &name);
            let known =
                keys::children(&parent).find(|key| key.name() == name || snake(key.name()) == name);
            let Some(key) = known else {
                return Err(self.unknown(&parent, path, &name, &written));
            };
            let path = join(path, &snake(key.name()));
            let value = self.value(value, key.kind, key.allowed, &path, &written);
            self.written
                .entry(path.clone())
                .or_insert_with(|| written.clone());
            if settings.contains_key(&snake(key.name())) {
                let both = format!("given as both `{}` and `{}`", key.name(), snake(key.name()));
                return Err(Fault::new(path, both, "one spelling is allowed"));
            }
            if let Some(value) = value? {
                settings.insert(snake(key.name()), value);
            }
        }
        Ok(settings)
    }

    /// `None` where null stands for the default.
    fn value(
        &mut self,
        value: Value,
        kind: Kind,
        allowed: &str,
        path: &str,
        written: &str,
    ) -> Result<Option<Value>, Fault> {
        let value = match (kind, value) {
            (Kind::Upstream, Value::String(text)) => {
                return Ok(Some(self.upstream_text(text, written)));
            }
            (Kind::Upstream, Value::Object(table)) => {
                let upstream = self.table(table, path, written)?;
                if upstream.len() > 1 && upstream.contains_key("bundled") {
                    let others = "`bundled` beside settings of an HTTP upstream";
                    return Err(Fault::new(
                        path,
                        others,
                        "one of `baseUrl` and `bundled` is allowed",
                    ));
                }
                Value::Object(upstream)
            }
            (Kind::Table, Value::Object(table)) => Value::Object(self.table(table, path, written)?),
            (Kind::Tables, Value::Array(list)) => {
                Value::Array(self.tables(list, allowed, path, written)?)
            }
            // Tables of which a null has always been a mistake, never "the default".
            (_, Value::Null)
                if path == "mcp_proxy" || !matches!(kind, Kind::Table | Kind::Upstream) =>
            {
                return Ok(None);
            }
            (kind, value) if stands(&value, kind) => value,
            (kind, value) => return Err(misplaced(&value, kind, allowed, path)),
        };
        Ok(Some(value))
    }

    fn tables(
        &mut self,
        list: Vec<Value>,
        allowed: &str,
        path: &str,
        written: &str,
    ) -> Result<Vec<Value>, Fault> {
        let element = |(index, value)| {
            let (path, written) = (format!("{path}[{index}]"), format!("{written}[{index}]"));
            self.written.insert(path.clone(), written.clone());
            match value {
                Value::Object(table) => Ok(Value::Object(self.table(table, &path, &written)?)),
                other => Err(Fault::new(path, shown(&other, Kind::Table), allowed)),
            }
        };
        list.into_iter().enumerate().map(element).collect()
    }

    fn upstream_text(&mut self, text: String, written: &str) -> Value {
        self.whole_upstream = true;
        let (key, value) = match text.as_str() {
            "bundled" => ("bundled", Value::Object(Map::new())),
            _ => ("base_url", Value::String(text)),
        };
        self.written
            .insert(format!("upstream.{key}"), written.to_owned());
        Value::Object(Map::from_iter([(key.to_owned(), value)]))
    }

    fn unknown(&mut self, parent: &str, path: &str, name: &str, written: &str) -> Fault {
        let spelling = match name {
            _ if name.contains('_') => Spelling::Snake,
            _ if name.contains(|letter: char| letter.is_ascii_uppercase()) => Spelling::Camel,
            _ => self.spelling,
        };
        let here = || keys::children(parent).map(|key| spelling.of(key.name()));
        let elsewhere = || {
            keys::KEYS
                .iter()
                .find(|key| key.name() == name || snake(key.name()) == name)
        };
        let above = written.strip_suffix(name).unwrap_or("");
        let allowed = match (nearest(name, here()), elsewhere()) {
            (Some(near), _) => format!("did you mean `{}`?", one_line(&format!("{above}{near}"))),
            (None, Some(key)) => format!("did you mean `{}`?", spelling.of(key.path)),
            (None, None) => format!(
                "the keys here are {}",
                here().collect::<Vec<_>>().join(", ")
            ),
        };
        let path = join(path, name);
        self.written.insert(path.clone(), one_line(written));
        Fault::new(path, "unknown key", allowed)
    }
}

/// Whether this JSON is of the kind at all; whether its content is allowed is for the strict parse to say.
fn stands(value: &Value, kind: Kind) -> bool {
    match kind {
        Kind::Text | Kind::Secret => value.is_string(),
        // `config` takes only numbers that a machine word or a double can hold.
        Kind::Whole => value.is_i64() || value.is_u64(),
        Kind::Time => value.is_string() || value.is_i64() || value.is_u64(),
        Kind::Switch => value.is_boolean(),
        Kind::Texts => value
            .as_array()
            .is_some_and(|list| list.iter().all(Value::is_string)),
        Kind::TextMap => value
            .as_object()
            .is_some_and(|table| table.values().all(Value::is_string)),
        Kind::Table | Kind::Tables | Kind::Upstream => false,
    }
}

/// Of a list or table of texts the entry that is none is named.
fn misplaced(value: &Value, kind: Kind, allowed: &str, path: &str) -> Fault {
    let entry = match (kind, value) {
        (Kind::Texts, Value::Array(list)) => list
            .iter()
            .enumerate()
            .find(|(_, entry)| !entry.is_string())
            .map(|(index, entry)| (format!("{path}[{index}]"), entry)),
        (Kind::TextMap, Value::Object(table)) => table
            .iter()
            .find(|(_, entry)| !entry.is_string())
            .map(|(name, entry)| (join(path, &one_line(name)), entry)),
        _ => None,
    };
    match entry {
        Some((path, entry)) => Fault::new(path, shown(entry, Kind::Text), allowed),
        None => Fault::new(path, shown(value, kind), allowed),
    }
}

/// A path, then everything above it up to `""`.
pub(super) fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| match path.rfind(['.', '[']) {
        Some(end) => Some(&path[..end]),
        None if path.is_empty() => None,
        None => Some(""),
    })
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// Keys of a file may hold line ends; messages may not.
fn one_line(text: &str) -> String {
    text.chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect()
}
