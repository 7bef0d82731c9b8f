//! From layers to a [`Config`]: merge, parse strictly, check. A fault names the highest layer that set the key.

use std::{collections::BTreeMap, path::PathBuf};

use serde_json::{Map, Value};

use super::{
    Config, check,
    error::{Error, Fault, shown},
    file::File,
    keys::{self, Kind},
    layer::{Layer, ancestors},
    source::{self, Environment, Flags},
    spelling::snake,
};

/// Everything a configuration is made of.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The file named on the command line; it wins over one named in the environment.
    pub path: Option<PathBuf>,
    pub environment: Environment,
    pub flags: Flags,
}

/// A configuration that the program can start with, in the two forms it is needed in.
#[derive(Debug)]
pub struct Loaded {
    pub config: Config,
    /// Every setting, defaults included, in the form of a configuration file. Keys are masked.
    pub effective: Value,
    /// `effective` without what only repeats a default.
    pub chosen: Value,
    places: BTreeMap<&'static str, String>,
}

impl Loaded {
    /// The file, variable or flag that set the key at a camelCase path, for a fault that is found later.
    pub fn place(&self, path: &str) -> &str {
        self.places
            .get(path)
            .map_or("configuration", String::as_str)
    }
}

/// The highest layer that says something of a path. What no layer wrote is missing, and missing from the file, if there is one.
fn setting<'a>(layers: &'a [Layer], path: &str) -> &'a Layer {
    ancestors(path)
        .find_map(|path| layers.iter().rev().find(|layer| layer.has(path)))
        .unwrap_or(&layers[0])
}

impl Sources {
    /// Reads, merges and checks all layers.
    pub fn load(&self) -> Result<Loaded, Error> {
        let mut layers = Vec::new();
        let path = match &self.path {
            Some(path) => Some(path.clone()),
            None => self.environment.config_path()?,
        };
        if let Some(path) = path {
            layers.push(source::file(&path)?);
        }
        layers.push(self.environment.layer()?);
        layers.push(self.flags.layer()?);
        self.choose_model(&mut layers)?;
        for high in 1..layers.len() {
            let (lower, higher) = layers.split_at_mut(high);
            lower
                .iter_mut()
                .for_each(|layer| layer.yield_to(&higher[0]));
        }

        let upstream = layers.iter().rev().find_map(Layer::http_upstream);
        let located = |fault: Fault| setting(&layers, &fault.path).error(fault);
        let merged = merge(&keys::defaults(upstream == Some(true)), &layers)?;
        let file = parse(merged).map_err(&located)?;
        let effective =
            serde_json::to_value(&file).map_err(|error| Error::Merge(error.to_string()))?;
        let config = check::config(file, &self.environment).map_err(&located)?;
        let chosen = keys::without_defaults(&effective, "");
        let place = |path: &str| setting(&layers, path).place(path);
        let places = keys::KEYS
            .iter()
            .map(|key| (key.path, place(&snake(key.path))))
            .collect();
        Ok(Loaded {
            config,
            effective,
            chosen,
            places,
        })
    }
}

impl Sources {
    fn choose_model(&self, layers: &mut [Layer]) -> Result<(), Error> {
        const FLAG: &str = "--model";
        let Some(model) = &self.flags.model else {
            return Ok(());
        };
        let chosen = layers.iter().rev().find_map(Layer::http_upstream);
        match (chosen, layers.last_mut()) {
            (Some(true), _) if self.flags.init => Ok(()),
            (Some(true), _) => Err(Error::Setting {
                place: FLAG.to_owned(),
                key: "upstream.bundled.model".to_owned(),
                came: format!("{model:?} beside an HTTP upstream, which serves its own model"),
                allowed:
                    "a model of the bundled engine is allowed; `--upstream bundled` chooses it"
                        .to_owned(),
            }),
            (_, Some(flags)) => {
                flags.set_model(model, FLAG);
                Ok(())
            }
            (_, None) => Ok(()),
        }
    }
}

/// The crate `config` does the merging and nothing else: its own deserialiser turns 5.9 into 6 and `true` into 1.
fn merge(defaults: &Map<String, Value>, layers: &[Layer]) -> Result<Value, Error> {
    let mut merging = ::config::Config::builder();
    for settings in std::iter::once(defaults).chain(layers.iter().map(|layer| &layer.settings)) {
        let text = Value::Object(settings.clone()).to_string();
        merging = merging.add_source(::config::File::from_str(&text, ::config::FileFormat::Json));
    }
    let merged = merging
        .build()
        .and_then(::config::Config::try_deserialize::<Value>);
    let mut merged = merged.map_err(|error| Error::Merge(error.to_string()))?;
    // It keeps tables in hash order; which of two faults is named must not be chance.
    merged.sort_all_objects();
    Ok(merged)
}

fn parse(mut merged: Value) -> Result<File, Fault> {
    let before = merged.clone();
    // The enum `file::Upstream` wants its variant by name.
    if let Some(upstream) = merged.get_mut("upstream")
        && upstream.get("bundled").is_none()
    {
        *upstream = Value::Object(Map::from_iter([("http".to_owned(), upstream.take())]));
    }
    serde_path_to_error::deserialize(merged).map_err(|error| {
        let path = error.path().to_string();
        fault(
            &before,
            &path.replacen("upstream.http", "upstream", 1),
            &error.into_inner().to_string(),
        )
    })
}

/// Of the parser's message only the missing field's name is used; the key table has better words.
fn fault(merged: &Value, path: &str, message: &str) -> Fault {
    if let Some(field) = message
        .strip_prefix("missing field `")
        .and_then(|rest| rest.split('`').next())
    {
        let path = if path == "." {
            field.to_owned()
        } else {
            format!("{path}.{field}")
        };
        return Fault::new(path.clone(), "missing", allowed(&path));
    }
    let value = at(merged, path).unwrap_or(&Value::Null);
    // Texts inside lists and maps are described by the key that holds them.
    let kind = keys::find(path).map_or(Kind::Text, |key| key.kind);
    Fault::new(path, shown(value, kind), allowed(path))
}

fn allowed(path: &str) -> String {
    ancestors(path).find_map(keys::find).map_or_else(
        || format!("not allowed here ({path})"),
        |key| key.allowed.to_owned(),
    )
}

/// The value at a path such as `a[0].b`, where names may hold dots themselves.
fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    let below = |name: &str, inner: &'a Value| {
        let rest = path.strip_prefix('.').unwrap_or(path).strip_prefix(name)?;
        if rest.is_empty() {
            Some(inner)
        } else {
            at(inner, rest)
        }
    };
    match value {
        Value::Object(table) => table.iter().find_map(|(name, inner)| below(name, inner)),
        Value::Array(list) => list
            .iter()
            .enumerate()
            .find_map(|(index, inner)| below(&format!("[{index}]"), inner)),
        _ => None,
    }
}
