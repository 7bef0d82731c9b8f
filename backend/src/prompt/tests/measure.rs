//! Speed and size of prompts; nothing is judged here.

use serde_json::{Value, json};

use super::*;

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
#[ignore = "a measurement: CODEX_BRIDGE_TEST_LLAMA3_TOKENIZER=tokenizer.json cargo test --release -p codex-bridge-backend --lib prompt::tests::measure -- --ignored --nocapture"]
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
#[ignore = "a measurement: CODEX_BRIDGE_TEST_MODEL=model.gguf cargo test --release -p codex-bridge-backend --lib prompt::tests::measure -- --ignored --nocapture"]
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
