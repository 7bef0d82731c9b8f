//! Whole conversations: the prompts of one turn after the other, and of broken ones.

use serde_json::{Value, json};

use super::{
    testing::{self, assistant, call, output, render, tool, user},
    *,
};

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

/// `../shared/fixtures/codex` beside the checkout, or one level higher for a work tree.
fn recordings() -> Option<std::path::PathBuf> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    [
        "../../shared/fixtures/codex",
        "../../../shared/fixtures/codex",
    ]
    .iter()
    .map(|place| root.join(place))
    .find(|place| place.is_dir())
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

/// Runs a million with `CODEX_BRIDGE_FUZZ_RUNS=1000000`.
fn runs(usual: u64) -> u64 {
    std::env::var("CODEX_BRIDGE_FUZZ_RUNS")
        .ok()
        .and_then(|runs| runs.parse().ok())
        .unwrap_or(usual)
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound.max(1)
    }

    /// A random piece of `text`, up to `most` bytes.
    fn piece<'a>(&mut self, text: &'a str, most: usize) -> &'a str {
        let mut start = self.below(text.len());
        while !text.is_char_boundary(start) {
            start -= 1;
        }
        let mut end = (start + 1 + self.below(most)).min(text.len());
        while !text.is_char_boundary(end) {
            end += 1;
        }
        &text[start..end]
    }
}

/// Cuts, doubles and moves pieces of templates; pieces of others come in.
fn mutate(source: &str, others: &[String], dice: &mut Dice) -> String {
    const WORDS: [&str; 24] = [
        "{%",
        "%}",
        "{{",
        "}}",
        "-%}",
        "for x in messages",
        "endfor",
        "if",
        "endif",
        "loop",
        " | tojson",
        "(indent=4)",
        "namespace(a=1)",
        "messages",
        "[0]",
        "['content']",
        " ~ ",
        " + ",
        " * 9999",
        "range(99999)",
        "macro m()",
        "raise_exception('x')",
        "recursive",
        "<|im_end|>",
    ];
    let mut text = source.to_owned();
    for _ in 0..1 + dice.below(4) {
        if text.is_empty() {
            break;
        }
        let piece = dice.piece(&text, 40);
        let at = piece.as_ptr() as usize - text.as_ptr() as usize;
        let len = piece.len();
        let other = &others[dice.below(others.len())];
        let new = match dice.below(5) {
            0 => String::new(),
            1 => piece.repeat(2),
            2 => dice.piece(other, 60).to_owned(),
            3 => WORDS[dice.below(WORDS.len())].to_owned(),
            _ => dice.piece(&text, 80).to_owned(),
        };
        text.replace_range(at..at + len, &new);
    }
    text
}

#[test]
fn mutated_templates_neither_panic_nor_hang() {
    let shapes = testing::shapes();
    let sources: Vec<String> = shapes.iter().map(|shape| shape.1.clone()).collect();
    let request = testing::request(
        json!({"instructions": "a <|im_end|>", "tools": [tool("look")], "input": [
            user("b"), assistant("c"), call("1", "look", "{\"x\": 1}"), output("1", "d"), user("e"),
        ]}),
    );
    let conversation = Conversation::from_request(&request).unwrap();
    let tools = Tools::from_request(&request).unwrap();
    let mut dice = Dice(11);
    let mut usable = 0;
    for run in 0..runs(400) {
        let (_, source, tokenizer) = &shapes[dice.below(shapes.len())];
        let source = mutate(source, &sources, &mut dice);
        let started = std::time::Instant::now();
        if let Ok(template) = Template::new(Some(&source), tokenizer, TemplateOptions::default()) {
            usable += u64::from(
                template
                    .render(&conversation, &tools, &RenderOptions::default())
                    .is_ok(),
            );
        }
        assert!(started.elapsed().as_secs() < 60, "run {run}: {source}");
    }
    assert!(usable > 0);
}

/// Puts something else at a random place of a JSON value.
fn disturb(value: &mut Value, dice: &mut Dice) {
    if dice.below(3) > 0 {
        match value {
            Value::Array(list) if !list.is_empty() => {
                let at = dice.below(list.len());
                match dice.below(6) {
                    0 => drop(list.remove(at)),
                    1 => list.insert(at, list[at].clone()),
                    2 => {
                        let other = dice.below(list.len());
                        list.swap(at, other);
                    }
                    _ => disturb(&mut list[at], dice),
                }
                return;
            }
            Value::Object(object) if !object.is_empty() => {
                let at = dice.below(object.len());
                let key = object.keys().nth(at).unwrap().clone();
                if dice.below(8) == 0 {
                    object.shift_remove(&key);
                } else {
                    disturb(&mut object[&key], dice);
                }
                return;
            }
            _ => {}
        }
    }
    *value = match dice.below(10) {
        0 => Value::Null,
        1 => json!([]),
        2 => json!({}),
        3 => json!(true),
        4 => serde_json::from_str("123456789012345678901234567890e999").unwrap(),
        5 => json!("<|eot_id|>\u{FDD0}<|im_end|>"),
        6 => json!([{"type": "input_text", "text": "x"}, {"type": "input_image"}]),
        7 => json!("{\"a\": [1, {\"b\": null}]}"),
        8 => json!("function_call"),
        _ => json!("1"),
    };
}

#[test]
fn disturbed_requests_are_read_or_refused_with_their_place() {
    let base = json!({"instructions": "a", "tools": [tool("look"), tool("other")], "input": [
        user("b"), {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "r"}]}, assistant("c"),
        call("1", "look", "{\"x\": 1}"), call("2", "other", "{}"), output("1", "d"), output("2", "e"), {"role": "developer", "content": "f"}, user("g"),
    ]});
    let templates: Vec<Template> = testing::shapes()
        .iter()
        .flat_map(|(name, _, _)| {
            [ToolsMode::Full, ToolsMode::Compact].map(|mode| testing::template(name, mode).0)
        })
        .collect();
    let mut dice = Dice(5);
    let mut rendered = 0;
    for _ in 0..runs(2000) {
        let mut request = base.clone();
        for _ in 0..1 + dice.below(3) {
            disturb(&mut request, &mut dice);
        }
        let Value::Object(request) = request else {
            continue;
        };
        let read = Conversation::from_request(&request)
            .and_then(|conversation| Ok((conversation, Tools::from_request(&request)?)));
        match read {
            Ok((conversation, tools)) => {
                let template = &templates[dice.below(templates.len())];
                match template.render(&conversation, &tools, &RenderOptions::default()) {
                    Ok(prompt) => {
                        rendered += 1;
                        assert!(
                            prompt.stable_prefix <= prompt.tokens.len()
                                && prompt.generation_prompt <= prompt.tokens.len()
                        );
                    }
                    Err(error) => assert!(matches!(error, PromptError::Template(_)), "{error}"),
                }
            }
            Err(error) => assert!(
                error.param().is_some_and(|param| !param.is_empty()),
                "{error}"
            ),
        }
    }
    assert!(rendered > 0);
}

/// A conversation of a text's size, as Codex's are: instructions, tools, a few turns with calls.
fn long_request(bytes: usize) -> Value {
    let code =
        "fn main() {\n    println!(\"{}\", 1 < 2); // zażółć 中文\n}\n".repeat(1 + bytes / 8 / 58);
    let tools: Vec<Value> = (0..8).map(|index| tool(&format!("tool_{index}"))).collect();
    let mut input = vec![user(&code), user("go on")];
    for turn in 0..3 {
        let id = turn.to_string();
        input.extend([
            assistant("I look."),
            call(&id, "tool_1", "{\"city\": \"a\"}"),
            output(&id, &code),
        ]);
    }
    json!({"instructions": code.repeat(4), "tools": tools, "input": input})
}

#[test]
#[ignore = "a measurement: CODEX_BRIDGE_TEST_LLAMA3_TOKENIZER=tokenizer.json cargo test --release -p codex-bridge-backend --lib prompt::tests -- --ignored --nocapture"]
fn speed_of_a_prompt_of_30_kilobytes() {
    use std::{path::PathBuf, time::Instant};

    use crate::{model::TokenizerSource, tokenizer::Tokenizer};

    let Some(path) = std::env::var_os("CODEX_BRIDGE_TEST_LLAMA3_TOKENIZER").map(PathBuf::from)
    else {
        println!("skipped: CODEX_BRIDGE_TEST_LLAMA3_TOKENIZER does not name a tokenizer.json");
        return;
    };
    let started = Instant::now();
    let source = TokenizerSource::Json {
        tokenizer_json: path,
        config: Value::Null,
    };
    let tokenizer = Tokenizer::new(&source).unwrap();
    println!("tokenizer loaded in {:?}", started.elapsed());
    let started = Instant::now();
    let template = Template::new(
        Some(testing::LLAMA31),
        &tokenizer,
        TemplateOptions::default(),
    )
    .unwrap();
    println!("template compiled and probed in {:?}", started.elapsed());
    let request = testing::request(long_request(30_000));
    let conversation = Conversation::from_request(&request).unwrap();
    let tools = Tools::from_request(&request).unwrap();
    for round in 0..4 {
        let started = Instant::now();
        let rendered = template
            .render(&conversation, &tools, &RenderOptions::default())
            .unwrap();
        let whole = started.elapsed();
        let text = testing::spell(&tokenizer, &rendered.tokens);
        let started = Instant::now();
        let tokens = tokenizer.encode_text(&text);
        let encoded = started.elapsed();
        println!(
            "round {round}: {} bytes, {} tokens: rendered and encoded in {whole:?}; encoding alone {encoded:?} ({} tokens)",
            text.len(),
            rendered.tokens.len(),
            tokens.len()
        );
    }
    for (name, text) in [
        ("a letter", "a".repeat(1 << 20)),
        ("blanks", " ".repeat(1 << 20)),
        ("marks", "=".repeat(1 << 20)),
        ("base64", "Qk1OQVdFUlR5dWlvcGFz".repeat(1 << 16)),
    ] {
        let started = Instant::now();
        let tokens = tokenizer.encode_text(&text).len();
        println!(
            "{} bytes of {name}: {tokens} tokens in {:?}",
            text.len(),
            started.elapsed()
        );
    }
}

#[test]
#[ignore = "a measurement: CODEX_BRIDGE_TEST_MODEL=model.gguf cargo test --release -p codex-bridge-backend --lib prompt::tests -- --ignored --nocapture"]
fn size_of_codexs_first_prompt() {
    let (Some(folder), Some(path)) = (recordings(), std::env::var_os("CODEX_BRIDGE_TEST_MODEL"))
    else {
        println!(
            "skipped: no recordings beside the checkout, or CODEX_BRIDGE_TEST_MODEL does not name a model"
        );
        return;
    };
    let model = crate::model::open(path.as_ref()).unwrap();
    let tokenizer = crate::tokenizer::Tokenizer::new(&model.tokenizer).unwrap();
    for file in ["hi_slim.json", "hi.json", "hi_fallback.json"] {
        let recording: Value =
            serde_json::from_str(&std::fs::read_to_string(folder.join(file)).unwrap()).unwrap();
        let request = functions_only(recording["requests"][0]["body"].clone());
        for tools in [ToolsMode::Full, ToolsMode::Compact, ToolsMode::Off] {
            let options = TemplateOptions {
                tools,
                ..TemplateOptions::default()
            };
            let template =
                Template::new(model.chat_template.as_deref(), &tokenizer, options).unwrap();
            let started = std::time::Instant::now();
            let rendered = render(&template, &request);
            println!(
                "{file} {tools:?}: {} tokens, {} of them stable, in {:?}",
                rendered.tokens.len(),
                rendered.stable_prefix,
                started.elapsed()
            );
        }
    }
}
