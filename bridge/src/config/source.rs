//! Where layers come from: the text of a file, the process environment, the command line.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};

use super::{
    error::Error,
    keys::{self, Kind},
    layer::Layer,
    spelling::Spelling,
};

/// The environment variables the program may see. Tests bring their own.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    texts: BTreeMap<String, String>,
    /// Variables that are set, but not to UTF-8.
    garbled: BTreeSet<String>,
}

/// What is said of a variable that is not UTF-8.
const GARBLED: &str = "not UTF-8";

/// Settings given as flags.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// `--listen HOST:PORT`.
    pub listen: Option<(String, u16)>,
    /// `--upstream URL|bundled`.
    pub upstream: Option<String>,
    /// `--model MODEL`, of the bundled engine.
    pub model: Option<String>,
    /// With an HTTP upstream `--model` only names the model for the files that are written.
    pub init: bool,
}

const PREFIX: &str = "CODEX_BRIDGE__";
/// The second is the older npm bridge's.
const PATH_VARIABLES: [&str; 2] = ["CODEX_BRIDGE_CONFIG", "CODEX_LLAMA_CPP_BRIDGE_CONFIG"];

impl Environment {
    /// The process environment.
    pub fn of_process() -> Self {
        std::env::vars_os().collect()
    }

    /// `None` when it is not set.
    ///
    /// # Errors
    /// In words: it is not UTF-8. Whoever set it meant something by it.
    pub fn get(&self, name: &str) -> Result<Option<&str>, &'static str> {
        if self.garbled.contains(name) {
            return Err(GARBLED);
        }
        Ok(self.texts.get(name).map(String::as_str))
    }

    /// The configuration file that the environment names.
    pub(super) fn config_path(&self) -> Result<Option<PathBuf>, Error> {
        for name in PATH_VARIABLES {
            let path = self.get(name).map_err(|problem| Error::Variable {
                name: name.to_owned(),
                problem,
            })?;
            if let Some(path) = path.filter(|path| !path.is_empty()) {
                return Ok(Some(PathBuf::from(path)));
            }
        }
        Ok(None)
    }

    /// `CODEX_BRIDGE__LISTEN__PORT=10902` sets `listen.port`.
    pub(super) fn layer(&self) -> Result<Layer, Error> {
        let mut settings = Map::new();
        let mut places = BTreeMap::new();
        let garbled = self.garbled.iter().find(|name| name.starts_with(PREFIX));
        if let Some(name) = garbled {
            return Err(Error::Variable {
                name: name.clone(),
                problem: GARBLED,
            });
        }
        for (variable, text) in &self.texts {
            let Some(name) = variable.strip_prefix(PREFIX) else {
                continue;
            };
            let path = name.replace("__", ".").to_ascii_lowercase();
            let kind = keys::find(&path).map_or(Kind::Text, |key| key.kind);
            if !insert(&mut settings, &path, from_text(text, kind)) {
                return Err(Error::Setting {
                    place: variable.clone(),
                    key: path,
                    came: "another variable sets the same key, or one above it".to_owned(),
                    allowed: "one variable for each key is allowed".to_owned(),
                });
            }
            places.insert(path, variable.clone());
        }
        Layer::new(settings, places, Spelling::Snake)
    }
}

impl<N: Into<OsString>, V: Into<OsString>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        let mut environment = Self::default();
        for (name, value) in variables {
            match (name.into().into_string(), value.into().into_string()) {
                (Ok(name), Ok(text)) => drop(environment.texts.insert(name, text)),
                (name, _) => {
                    let name = name.unwrap_or_else(|name| name.to_string_lossy().into_owned());
                    environment.garbled.insert(name);
                }
            }
        }
        environment
    }
}

impl Flags {
    pub(super) fn layer(&self) -> Result<Layer, Error> {
        let mut settings = Map::new();
        let mut places = BTreeMap::new();
        if let Some((host, port)) = &self.listen {
            insert(&mut settings, "listen.host", Value::from(host.as_str()));
            insert(&mut settings, "listen.port", Value::from(*port));
            places.insert("listen".to_owned(), "--listen".to_owned());
        }
        if let Some(upstream) = &self.upstream {
            insert(&mut settings, "upstream", Value::from(upstream.as_str()));
            places.insert("upstream".to_owned(), "--upstream".to_owned());
        }
        Layer::new(settings, places, Spelling::Camel)
    }
}

/// A JSON or TOML file: by its extension, otherwise by its first character.
pub(super) fn file(path: &Path) -> Result<Layer, Error> {
    let file = path.display().to_string();
    let unreadable = |source| Error::Unreadable {
        file: file.clone(),
        source,
    };
    // To open a pipe is to wait for its other end.
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(Error::Syntax {
            file,
            problem: "not a file; a JSON or TOML file is allowed".to_owned(),
        });
    }
    let text = fs::read_to_string(path).map_err(unreadable)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let json = match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => true,
        Some("toml") => false,
        _ => text.trim_start().starts_with('{'),
    };
    let (parsed, spelling) = match json {
        true => (
            serde_json::from_str(text).map_err(|error| format!("not JSON: {error}")),
            Spelling::Camel,
        ),
        false => (
            toml::from_str(text).map_err(|error| toml_problem(text, &error)),
            Spelling::Snake,
        ),
    };
    let parsed = parsed.map(|mut parsed: Value| {
        // Editors read it; to us it means nothing.
        if let Some(settings) = parsed.as_object_mut() {
            settings.remove("$schema");
        }
        parsed
    });
    match parsed {
        Ok(Value::Object(settings)) if spelling == Spelling::Snake => {
            if let Some(key) = settings
                .iter()
                .find_map(|(key, value)| infinite(key, value))
            {
                return Err(Error::Setting {
                    place: file,
                    key,
                    came: "`inf` or `nan`".to_owned(),
                    allowed: "a number with a value is allowed".to_owned(),
                });
            }
            Layer::new(settings, BTreeMap::from([(String::new(), file)]), spelling)
        }
        Ok(Value::Object(settings)) => {
            Layer::new(settings, BTreeMap::from([(String::new(), file)]), spelling)
        }
        Ok(_) => Err(Error::Syntax {
            file,
            problem: "not an object; { \"listen\": …, \"upstream\": … } is allowed".to_owned(),
        }),
        Err(problem) => Err(Error::Syntax { file, problem }),
    }
}

/// The key of a number that is none. JSON cannot write it and so holds a null instead, and TOML has no other.
fn infinite(key: &str, value: &Value) -> Option<String> {
    match value {
        Value::Null => Some(key.to_owned()),
        Value::Object(table) => table
            .iter()
            .find_map(|(name, value)| infinite(&format!("{key}.{name}"), value)),
        Value::Array(list) => list
            .iter()
            .enumerate()
            .find_map(|(index, value)| infinite(&format!("{key}[{index}]"), value)),
        _ => None,
    }
}

/// The crate's own form draws the line below the message; ours is one line.
fn toml_problem(text: &str, error: &toml::de::Error) -> String {
    let start = error.span().map_or(0, |span| span.start);
    let before = text.get(..start).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before
        .chars()
        .rev()
        .take_while(|letter| *letter != '\n')
        .count()
        + 1;
    format!(
        "not TOML: {} at line {line} column {column}",
        error.message().replace('\n', ", ")
    )
}

/// A variable's text as JSON, where the key wants more than text. What does not parse stays text, and is refused
/// as such with the variable's name.
fn from_text(text: &str, kind: Kind) -> Value {
    let wants_json = match kind {
        Kind::Text | Kind::Secret => false,
        Kind::Time => text.bytes().all(|byte| byte.is_ascii_digit()),
        Kind::Upstream => text.starts_with('{'),
        Kind::Table | Kind::Tables | Kind::Texts | Kind::TextMap | Kind::Whole | Kind::Switch => {
            true
        }
    };
    let parsed = if wants_json {
        serde_json::from_str(text).ok()
    } else {
        None
    };
    parsed.unwrap_or_else(|| Value::from(text))
}

/// False if the place is taken, or lies inside something that is not a table.
fn insert(settings: &mut Map<String, Value>, path: &str, value: Value) -> bool {
    match path.split_once('.') {
        None if settings.contains_key(path) => false,
        None => settings.insert(path.to_owned(), value).is_none(),
        Some((table, rest)) => settings
            .entry(table)
            .or_insert_with(|| Value::Object(Map::new()))
            .as_object_mut()
            .is_some_and(|table| insert(table, rest, value)),
    }
}
