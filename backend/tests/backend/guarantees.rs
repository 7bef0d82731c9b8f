//! What no model can get wrong, asked of a model that would: SmolLM2-135M at temperature 1.
//!
//! A few requests each by default. `CODEX_BRIDGE_CALLS` sets how many; `CODEX_BRIDGE_CALLS_FROM=N` begins with the N-th, so that a long count can be made
//! in portions. All of it, in minutes on two cores:
//! `CODEX_BRIDGE_CALLS=300 cargo test --release -p codex-bridge-backend --test backend guarantees -- --nocapture`.

use std::{collections::BTreeMap, ops::Range};

use codex_bridge_backend::{
    backend::Backend,
    grammar::{Checked, Checker, ToolSet},
    testing::{
        Random,
        schemas::{self, Extent},
    },
};
use pretty_assertions::assert_eq;
use protocol::Object;
use serde_json::{Value, json};

use crate::{
    smollm2::load,
    support::{object, tool},
};

/// Requests that run side by side.
const AT_ONCE: usize = 4;

/// Numbers of the requests to make. Few by default: this is a real model's work.
fn runs() -> Range<usize> {
    let number = |name, usual| std::env::var(name).map_or(usual, |runs| runs.parse().unwrap());
    let first = number("CODEX_BRIDGE_CALLS_FROM", 0);
    first..first + number("CODEX_BRIDGE_CALLS", 8)
}

/// A request's answer, and what of its tools' schemas was not held.
async fn ask(backend: &Backend, seed: usize, fields: Value) -> (Object, Vec<String>) {
    let mut request = object(json!({
        "input": "Use the tool with any values you like.", "temperature": 1, "top_p": 1, "seed": seed,
    }));
    request.extend(object(fields));
    let responding = backend.respond(request).await.unwrap();
    let relaxed = responding.relaxed().to_vec();
    (responding.collect().await, relaxed)
}

/// The calls of an answer, one that was cut included.
fn calls(answer: &Object) -> impl Iterator<Item = &Value> {
    let output = answer["output"].as_array().unwrap().iter();
    output.filter(|item| item["type"] == "function_call")
}

/// What became of requests that had to be answered by a call.
#[derive(Debug, Default)]
struct Tally {
    /// Answers that ended by themselves.
    completed: usize,
    /// Answers that the limit ended.
    cut: usize,
    /// Calls that came whole, all of which satisfied their schemas.
    valid: usize,
    /// How many of the calls had a schema with this in it.
    kinds: BTreeMap<&'static str, usize>,
    output_tokens: u64,
    longest: u64,
}

impl Tally {
    fn count(&mut self, tools: &[Value], answer: &Object) {
        match answer["status"].as_str() {
            Some("completed") => self.completed += 1,
            Some("incomplete") => self.cut += 1,
            other => panic!("{other:?}: {answer:?}"),
        }
        let tokens = answer["usage"]["output_tokens"].as_u64().unwrap();
        self.output_tokens += tokens;
        self.longest = self.longest.max(tokens);
        let set = ToolSet::from_request(tools).unwrap();
        for call in calls(answer).filter(|call| call["status"] == "completed") {
            let name = call["name"].as_str().unwrap();
            let arguments = call["arguments"].as_str().unwrap();
            let checked = Checker::new(set.get(name).unwrap()).check(arguments);
            assert_eq!(checked, Checked::Valid, "{arguments} of {tools:?}");
            self.valid += 1;
            let called = tools.iter().find(|tool| tool["name"] == name);
            for kind in schemas::kinds(&called.unwrap()["parameters"]) {
                *self.kinds.entry(kind).or_default() += 1;
            }
        }
    }
}

/// Offers two drawn tools a request, of which one must be called.
async fn required(backend: &Backend, runs: Range<usize>, fields: Value) -> Tally {
    let mut tally = Tally::default();
    for first in runs.clone().step_by(AT_ONCE) {
        let asked: Vec<_> = (first..runs.end.min(first + AT_ONCE))
            .map(|seed| {
                let mut random = Random(seed as u64);
                let tools = ["first", "second"]
                    .map(|name| tool(name, schemas::tool_schema(&mut random, Extent::Bounded)));
                let mut fields = fields.clone();
                fields["tools"] = json!(tools);
                fields["tool_choice"] = json!("required");
                let backend = backend.clone();
                tokio::spawn(async move { (tools, ask(&backend, seed, fields).await) })
            })
            .collect();
        for asked in asked {
            let (tools, (answer, relaxed)) = asked.await.unwrap();
            assert_eq!(relaxed, Vec::<String>::new(), "{tools:?}");
            tally.count(&tools, &answer);
        }
    }
    println!("{tally:#?}");
    tally
}

#[tokio::test]
async fn every_required_call_is_whole_and_satisfies_its_schema() {
    let Some(backend) = load() else { return };
    let runs = runs();
    let tally = required(
        &backend,
        runs.clone(),
        json!({"parallel_tool_calls": false}),
    )
    .await;
    assert_eq!(
        (tally.completed, tally.cut, tally.valid),
        (runs.len(), 0, runs.len())
    );
    for kind in schemas::KINDS {
        assert!(tally.kinds.contains_key(kind), "no {kind} was called");
    }
    assert_eq!(backend.status().invalid_calls, 0);
}

/// A model that may call again may go on until the limit cuts a call; those before it are whole.
#[tokio::test]
async fn several_required_calls_satisfy_their_schemas() {
    let Some(backend) = load() else { return };
    let runs = runs();
    let fields = json!({"parallel_tool_calls": true, "max_output_tokens": 600});
    let tally = required(&backend, runs.clone(), fields).await;
    assert!(tally.valid >= runs.len(), "{tally:?}");
    assert_eq!(backend.status().invalid_calls, 0);
}

#[tokio::test]
async fn choices_are_kept() {
    let Some(backend) = load() else { return };
    let parameters = json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["n"]});
    let tools = ["alpha", "beta", "gamma"].map(|name| tool(name, parameters.clone()));
    let ask = async |seed: usize, fields: Value| {
        let mut all = json!({"tools": tools, "max_output_tokens": 200});
        all.as_object_mut().unwrap().extend(object(fields));
        let (answer, _) = ask(&backend, seed, all).await;
        let names = calls(&answer).map(|call| call["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    for run in runs() {
        let named = json!({"tool_choice": {"type": "function", "name": "beta"}, "parallel_tool_calls": false});
        assert_eq!(ask(run, named).await, ["beta"]);

        let some =
            json!([{"type": "function", "name": "alpha"}, {"type": "function", "name": "gamma"}]);
        let allowed =
            json!({"tool_choice": {"type": "allowed_tools", "mode": "required", "tools": some}});
        let names = ask(run, allowed).await;
        assert!(!names.is_empty());
        assert!(names.iter().all(|name| name != "beta"), "{names:?}");

        let none = json!({"tool_choice": "none", "max_output_tokens": 80});
        assert_eq!(ask(run, none).await, Vec::<String>::new());
    }
}
