//! Whole conversations: the prompts of one turn after the other; [`disturbed`] ones; [`measure`] for their speed and size.

mod disturbed;
mod measure;

use serde_json::{Value, json};

use super::{
    testing::{self, assistant, call, output, render, tool, user},
    *,
};
use crate::testing::recordings;

/// Each prompt, without what opens the assistant's turn, is the beginning of the next.
fn assert_append_only(name: &str, template: &Template, requests: &[Value]) {
    let prompts: Vec<Rendered> = requests
        .iter()
        .map(|request| render(template, request))
        .collect();
    for (index, pair) in prompts.windows(2).enumerate() {
        let kept = pair[0].tokens.len() - pair[0].generation_prompt;
        let same = pair[0]
            .tokens
            .iter()
            .zip(&pair[1].tokens)
            .take_while(|(left, right)| left == right)
            .count();
        // Hermes' template ends a result at the end of the conversation without the line break it has elsewhere; the end of turn after it is lost.
        let lost = usize::from(name.contains("hermes"));
        assert!(
            same + lost >= kept,
            "{name}: request {}: {same} of {kept} tokens are those of the next",
            index + 1
        );
        assert_eq!(pair[0].stable_prefix, pair[1].stable_prefix, "{name}");
    }
}

#[test]
fn a_turns_prompt_is_the_beginning_of_the_next_turns() {
    // Field cases F078 and F079.
    let steps = [
        vec![user("<environment_context>"), user("list the files")],
        vec![
            assistant("I'll look."),
            call("1", "look", "{\"city\":\"a\"}"),
            call("2", "look", "{}"),
            output("1", "x\ny"),
            output("2", "z < w"),
        ],
        vec![call("3", "look", "{\"bad"), output("3", "error")],
        vec![assistant("Done: <|im_end|>"), user("thanks")],
        vec![
            assistant("Bye."),
            json!({"role": "developer", "content": "new rule"}),
            user("again"),
        ],
    ];
    for (name, _, _) in testing::shapes() {
        for mode in [ToolsMode::Full, ToolsMode::Compact, ToolsMode::Off] {
            let (template, _) = testing::template(name, mode);
            let requests: Vec<Value> = (1..=steps.len())
                .map(|count| json!({"instructions": "Be good.", "tools": [tool("look"), tool("other")], "input": steps[..count].concat()}))
                .collect();
            assert_append_only(&format!("{name} {mode:?}"), &template, &requests);
        }
    }
}

#[test]
fn the_same_request_gives_the_same_tokens() {
    for (name, _, _) in testing::shapes() {
        let request = json!({"input": [user("a"), call("1", "f", "{\"x\":1}"), output("1", "b")], "tools": [tool("f")]});
        let [one, other] =
            [(), ()].map(|()| render(&testing::template(name, ToolsMode::Full).0, &request));
        assert_eq!(one, other);
    }
}

/// A recorded request as the bridge sends it on: functions only. Roughly; the bridge's own tests say exactly.
fn functions_only(mut body: Value) -> Value {
    let mut tools = Vec::new();
    let flatten = |prefix: &str, entry: &Value| match entry["type"].as_str() {
        Some("function") => {
            let mut entry = entry.clone();
            entry["name"] = format!("{prefix}{}", entry["name"].as_str().unwrap()).into();
            Some(entry)
        }
        Some("custom") => Some(
            json!({"type": "function", "name": format!("{prefix}{}", entry["name"].as_str().unwrap()), "description": entry["description"],
            "parameters": {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}}),
        ),
        _ => None,
    };
    for entry in body["tools"].as_array().into_iter().flatten() {
        if entry["type"] == "namespace" {
            let prefix = format!("{}__", entry["name"].as_str().unwrap());
            tools.extend(
                entry["tools"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter_map(|inner| flatten(&prefix, inner)),
            );
        } else {
            tools.extend(flatten("", entry));
        }
    }
    body["tools"] = tools.into();
    if let Some(input) = body["input"].as_array_mut() {
        input.retain(|item| {
            !matches!(
                item["type"].as_str(),
                Some(
                    "tool_search_call"
                        | "tool_search_output"
                        | "additional_tools"
                        | "compaction_trigger"
                )
            )
        });
        for item in input {
            match item["type"].as_str() {
                Some("custom_tool_call") => {
                    let arguments = json!({"input": item["input"]}).to_string();
                    item["arguments"] = arguments.into();
                    item["type"] = "function_call".into();
                }
                Some("custom_tool_call_output") => item["type"] = "function_call_output".into(),
                _ => {}
            }
            for part in item["content"].as_array_mut().into_iter().flatten() {
                if part["type"] == "input_image" {
                    *part = json!({"type": "input_text", "text": "[image]"});
                }
            }
        }
    }
    body
}

#[test]
fn every_recorded_conversation_of_codex_is_append_only() {
    let Some(folder) = recordings() else {
        println!("skipped: no ../shared/fixtures/codex beside the checkout");
        return;
    };
    let templates: Vec<(String, Template)> = testing::shapes()
        .iter()
        .flat_map(|(name, _, _)| {
            [ToolsMode::Full, ToolsMode::Compact]
                .map(|mode| (format!("{name} {mode:?}"), testing::template(name, mode).0))
        })
        .collect();
    let (mut files, mut pairs) = (0, 0);
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let file: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let requests: Vec<Value> = file["requests"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|request| {
                request["path"]
                    .as_str()
                    .is_some_and(|path| path.ends_with("/responses"))
                    && request["body"]["input"].is_array()
            })
            .map(|request| functions_only(request["body"].clone()))
            .collect();
        for (name, template) in &templates {
            let name = format!("{} {name}", path.file_name().unwrap().display());
            for request in &requests {
                render(template, request);
            }
            // Requests of one thread: the items of the one are the first items of the other, with the same tools.
            for (index, request) in requests.iter().enumerate() {
                let next = requests[index + 1..].iter().find(|next| {
                    next["tools"] == request["tools"]
                        && next["instructions"] == request["instructions"]
                        && starts_with(&next["input"], &request["input"])
                });
                if let Some(next) = next {
                    pairs += 1;
                    assert_append_only(&name, template, &[request.clone(), next.clone()]);
                }
            }
        }
        files += 1;
    }
    println!("{files} recordings, {pairs} pairs of requests");
    assert!(files > 10 && pairs > 100);
}

fn starts_with(longer: &Value, shorter: &Value) -> bool {
    match (longer.as_array(), shorter.as_array()) {
        (Some(longer), Some(shorter)) => {
            longer.len() > shorter.len() && longer.starts_with(shorter)
        }
        _ => false,
    }
}
