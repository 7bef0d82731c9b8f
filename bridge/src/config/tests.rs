//! The key table against what people read of it: the README, the schema, the examples.

use std::{collections::BTreeSet, fs, path::Path};

use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::*;

fn repository(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn schema() -> Value {
    serde_json::from_str(&repository("examples/bridge.schema.json")).unwrap()
}

fn loaded(path: &str) -> Loaded {
    let path = Some(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path));
    Sources {
        path,
        ..Sources::default()
    }
    .load()
    .unwrap()
}

/// Every key path a schema names, with its default.
fn schema_keys(schema: &Value, path: &str, found: &mut BTreeSet<(String, Option<String>)>) {
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        found.insert((path.clone(), inner.get("default").map(Value::to_string)));
        schema_keys(inner, &path, found);
    }
    for inner in schema["anyOf"].as_array().into_iter().flatten() {
        schema_keys(inner, path, found);
    }
    if schema["items"].is_object() {
        schema_keys(&schema["items"], &format!("{path}[]"), found);
    }
}

fn known_keys() -> BTreeSet<(String, Option<String>)> {
    keys::KEYS
        .iter()
        .map(|key| (key.path.to_owned(), key.default.map(str::to_owned)))
        .collect()
}

#[test]
fn the_schema_names_the_keys_that_the_parser_knows_with_their_defaults() {
    let mut found = BTreeSet::new();
    schema_keys(&schema(), "", &mut found);
    // For editors alone.
    assert!(found.remove(&("$schema".to_owned(), None)));
    assert_eq!(found, known_keys());
}

#[test]
fn the_readme_has_a_row_for_each_key_with_its_default() {
    let readme = repository("README.md");
    let section = readme
        .split("\n## ")
        .find(|section| section.starts_with("Configuration"));
    let rows: BTreeSet<(String, Option<String>)> = section
        .expect("a section on configuration")
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .map(|row| {
            let cells: Vec<&str> = row.split(" | ").collect();
            let default = cells[2].trim_matches('`');
            (
                cells[0].trim_end_matches('`').to_owned(),
                (default != "–").then(|| default.to_owned()),
            )
        })
        .collect();
    // Tables whose keys have rows of their own need none; for `upstream` the row says more than the layer holds.
    let mut expected = known_keys();
    for table in [
        "listen",
        "webSearchTool",
        "mcpProxy",
        "limits",
        "log",
        "upstream",
    ] {
        expected.remove(&(table.to_owned(), None));
    }
    expected.insert(("upstream".to_owned(), Some("\"bundled\"".to_owned())));
    assert_eq!(rows, expected);
}

#[test]
fn the_schema_accepts_what_loads() {
    let schema = schema();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let written = serde_json::from_str(&repository("examples/bridge.config.json")).unwrap();
    let [json, toml] = ["examples/bridge.config.json", "examples/bridge.config.toml"].map(loaded);
    let defaults = Sources::default().load().unwrap();
    for settings in [
        &written,
        &json.effective,
        &json.chosen,
        &toml.effective,
        &toml.chosen,
        &defaults.effective,
        &json!({"$schema": "bridge.schema.json"}),
        &json!({"upstream": {"bundled": {"model": "m.gguf", "waitForReady": "off", "threads": null}}}),
    ] {
        let faults: Vec<String> = validator
            .iter_errors(settings)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert_eq!(faults, Vec::<String>::new(), "{settings:#}");
    }
}

#[test]
fn the_schema_refuses_what_does_not_load() {
    let schema = schema();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for settings in [
        json!({"webSearchTol": {}}),
        json!({"listen": {"port": 70000}}),
        json!({"listen": null}),
        json!({"upstream": "ftp://h"}),
        json!({"upstream": "http://u:p@h"}),
        json!({"upstream": {"baseUrl": "http://h", "bundled": {}}}),
        json!({"upstream": {"kind": "auto"}}),
        json!({"upstream": {"bundled": {"device": "cuda:0"}}}),
        json!({"upstream": {"bundled": {"maxBatch": 1025}}}),
        json!({"upstream": {"bundled": {"gpu": true}}}),
        json!({"keepAlive": "abc"}),
        json!({"limits": {"headerTimeout": "off"}}),
        json!({"excludedMcpTools": [{"namespace": "a"}]}),
    ] {
        assert!(!validator.is_valid(&settings), "{settings}");
    }
}

#[test]
fn the_effective_configuration_loads_to_itself() {
    let directory = tempfile::tempdir().unwrap();
    let effective = loaded("examples/bridge.config.toml").effective;
    let path = directory.path().join("again.json");
    fs::write(&path, effective.to_string()).unwrap();
    let again = Sources {
        path: Some(path),
        ..Sources::default()
    }
    .load()
    .unwrap();
    assert_eq!(again.effective, effective);
}

#[test]
fn nothing_is_chosen_by_default() {
    let chosen = Sources::default().load().unwrap().chosen;
    assert_eq!(chosen, json!({}));
}
