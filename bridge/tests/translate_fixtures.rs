//! Recorded requests of the real Codex CLI (`../shared/fixtures/codex`, beside the repository), 0.120 to 0.171: each is
//! normalised for both kinds of upstream. Where the recordings are absent the tests say so and pass.

#![expect(clippy::unwrap_used, reason = "a broken recording is a failed test")]

use std::{collections::BTreeMap, fs, path::PathBuf};

use codex_bridge::{
    config::{Policy, UnknownTools},
    translate::{Capabilities, Dialect, Normalized, normalize},
};
use protocol::Object;
use serde_json::Value;

const LLAMA: Capabilities = Capabilities {
    dialect: Dialect::LlamaCpp,
    vision: true,
    parallel_calls: true,
    custom_grammar: false,
};
const NATIVE: Capabilities = Capabilities {
    dialect: Dialect::Responses,
    ..LLAMA
};

struct Recording {
    name: String,
    /// Of the thread it belongs to; a session may hold several.
    thread: String,
    body: Object,
}

fn recordings() -> Vec<Recording> {
    let beside_the_repository = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .skip(2)
        .take(2)
        .map(|parent| parent.join("shared/fixtures/codex"))
        .find(|path| path.is_dir());
    let Some(folder) = beside_the_repository else {
        eprintln!("SKIPPED: no recordings in ../shared/fixtures/codex beside the repository");
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        })
        .collect();
    files.sort();
    let mut recordings = Vec::new();
    for file in files {
        let recording: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let requests = recording.get("requests").and_then(Value::as_array);
        for (index, request) in requests.into_iter().flatten().enumerate() {
            let is_turn = request["path"]
                .as_str()
                .is_some_and(|path| path.ends_with("/responses"));
            let Some(body) = request["body"].as_object().filter(|_| is_turn) else {
                continue;
            };
            let thread = &request["body"]["client_metadata"]["thread_id"];
            recordings.push(Recording {
                name: format!("{}[{index}]", file.file_stem().unwrap().to_string_lossy()),
                thread: format!("{} {thread}", file.display()),
                body: body.clone(),
            });
        }
    }
    assert!(
        recordings.len() > 100,
        "only {} recordings",
        recordings.len()
    );
    recordings
}

/// Hosted web search is declared in most recordings and mapped in none.
fn lenient() -> Policy {
    Policy {
        unknown_tools: UnknownTools::Drop,
        ..Policy::default()
    }
}

fn normalized(recording: &Recording, upstream: &Capabilities) -> Option<Normalized> {
    let input = recording.body["input"].as_array();
    let asks_to_compact = input
        .into_iter()
        .flatten()
        .any(|item| item["type"] == "compaction_trigger");
    match normalize(recording.body.clone(), &lenient(), upstream) {
        Ok(normalized) => Some(normalized),
        Err(error) if asks_to_compact => {
            assert!(error.to_string().contains("compaction_trigger"), "{error}");
            None
        }
        Err(error) => panic!("{}: {error}", recording.name),
    }
}

#[test]
fn every_recorded_request_becomes_one_with_function_tools_only() {
    for recording in recordings() {
        for upstream in [LLAMA, NATIVE] {
            let Some(normalized) = normalized(&recording, &upstream) else {
                continue;
            };
            let body = &normalized.body;
            for tool in body
                .get("tools")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                assert_eq!(tool["type"], "function", "{}", recording.name);
                let name = tool["name"].as_str().unwrap();
                assert!(normalized.translation.catalog.resolve(name).is_some());
                assert!(name.len() <= 64);
            }
            let mut known = vec![
                "message",
                "function_call",
                "function_call_output",
                "reasoning",
            ];
            if upstream.dialect == Dialect::Responses {
                known.push("web_search_call");
            }
            for item in body["input"].as_array().into_iter().flatten() {
                let kind = item["type"].as_str().unwrap();
                assert!(known.contains(&kind), "{}: {kind}", recording.name);
                assert_eq!(item.get("namespace"), None, "{}", recording.name);
            }
            let dropped = &normalized.translation.counts.dropped_tools;
            assert!(
                dropped.keys().all(|kind| kind == "web_search"),
                "{}: {dropped:?}",
                recording.name
            );
        }
    }
}

#[test]
fn llama_server_gets_no_ids_no_nulls_and_system_text_only_at_the_start() {
    for recording in recordings() {
        let Some(normalized) = normalized(&recording, &LLAMA) else {
            continue;
        };
        let body = &normalized.body;
        for leak in [
            "client_metadata",
            "include",
            "instructions",
            "prompt_cache_key",
            "store",
        ] {
            assert_eq!(body.get(leak), None, "{}", recording.name);
        }
        assert!(!body.values().any(Value::is_null), "{}", recording.name);
        for (index, item) in body["input"].as_array().unwrap().iter().enumerate() {
            assert_eq!(item.get("id"), None, "{}", recording.name);
            assert_ne!(item["role"], "developer", "{}", recording.name);
            assert!(index == 0 || item["role"] != "system", "{}", recording.name);
        }
    }
}

#[test]
fn each_turn_of_a_thread_begins_with_the_whole_turn_before() {
    let one_call_at_a_time = Capabilities {
        parallel_calls: false,
        ..LLAMA
    };
    let mut compared = 0;
    for upstream in [LLAMA, one_call_at_a_time, NATIVE] {
        let mut threads: BTreeMap<String, [Value; 3]> = BTreeMap::new();
        for recording in recordings() {
            let Some(normalized) = normalized(&recording, &upstream) else {
                continue;
            };
            let asked = recording.body["input"].clone();
            let sent = normalized.body["input"].clone();
            let tools = normalized.body.get("tools").cloned().unwrap_or_default();
            let turn = [asked.clone(), sent.clone(), tools.clone()];
            let Some([asked_before, sent_before, tools_before]) =
                threads.insert(recording.thread, turn)
            else {
                continue;
            };
            if !begins_with(&asked, &asked_before) {
                // A compacted history is another one.
                assert!(recording.name.starts_with("compact"), "{}", recording.name);
                continue;
            }
            assert!(
                begins_with(&sent, &sent_before),
                "{}: the turn before is no prefix",
                recording.name
            );
            // A compaction request offers no tools.
            assert!(
                begins_with(&tools, &tools_before) || recording.name.starts_with("compact"),
                "{}: a tool changed or moved",
                recording.name
            );
            compared += 1;
        }
    }
    eprintln!("{compared} pairs of turns compared");
}

fn begins_with(history: &Value, start: &Value) -> bool {
    match (history.as_array(), start.as_array()) {
        (Some(history), Some(start)) => history.starts_with(start),
        _ => true,
    }
}
