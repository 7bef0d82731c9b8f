//! How long things take with a real vocabulary: a file with a token a line, in hexadecimal, named by CODEX_BRIDGE_TEST_VOCABULARY.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::support::*;
use crate::{
    call_syntax::CallSyntax,
    engine::constraint::Next,
    grammar::{Choice, Grammars, TextFormat, ToolSet, Vocabulary},
};

fn from_file() -> Option<Vocabulary> {
    let Ok(path) = std::env::var("CODEX_BRIDGE_TEST_VOCABULARY") else {
        eprintln!("skipped: CODEX_BRIDGE_TEST_VOCABULARY names no file");
        return None;
    };
    let text = std::fs::read_to_string(path).unwrap();
    let bytes: Vec<Vec<u8>> = text
        .lines()
        .map(|line| {
            let digits = line.as_bytes().chunks(2);
            let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
            digits.map(byte).collect()
        })
        .collect();
    let control = bytes
        .iter()
        .map(|bytes| bytes.starts_with(b"<|") && bytes.ends_with(b"|>"))
        .collect();
    let mut by_length: std::collections::HashMap<Vec<u8>, u32> = std::collections::HashMap::new();
    for (token, bytes) in bytes.iter().enumerate() {
        by_length.insert(bytes.clone(), token as u32);
    }
    let encode = move |text: &str| {
        let mut text = text.as_bytes();
        let mut tokens = Vec::new();
        while !text.is_empty() {
            let length = (1..=text.len().min(64))
                .rev()
                .find(|length| by_length.contains_key(&text[..*length]))
                .unwrap();
            tokens.push(by_length[&text[..length]]);
            text = &text[length..];
        }
        tokens
    };
    Some(Vocabulary {
        bytes,
        control,
        end_tokens: vec![0, 2],
        encode: Arc::new(encode),
    })
}

/// The tools of a recorded request as the bridge would send them.
fn recorded(name: &str) -> Option<Vec<Value>> {
    let recorded = fixture(name)?;
    let mut tools = Vec::new();
    let mut open: Vec<&Value> = recorded["requests"][0]["body"]["tools"]
        .as_array()?
        .iter()
        .collect();
    open.reverse();
    while let Some(tool) = open.pop() {
        let name = tool["name"].as_str().unwrap_or_default();
        match tool["type"].as_str()? {
            "namespace" => open.extend(tool["tools"].as_array()?),
            "function" => tools.push(function(name, &tool["parameters"])),
            "custom" => tools.push(lark_tool(name, tool["format"]["definition"].as_str()?)),
            _ => {}
        }
    }
    Some(tools)
}

fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort();
    times[(times.len() - 1) * percent / 100]
}

#[test]
#[ignore = "a measurement: cargo test --release -p codex-bridge-backend --lib grammar::tests::measure -- --ignored --nocapture"]
fn what_it_costs() {
    let Some(vocabulary) = from_file() else {
        return;
    };
    let count = vocabulary.bytes.len();
    let started = Instant::now();
    let grammars = Grammars::new(vocabulary.clone()).unwrap();
    eprintln!("{count} tokens: factory {:?}", started.elapsed());
    for name in ["hi.json", "mcp.json", "spawn.json", "patch.json"] {
        let Some(mut list) = recorded(name) else {
            return;
        };
        let seen: std::collections::HashSet<String> =
            list.iter().map(|tool| tool["name"].to_string()).collect();
        list.dedup_by_key(|tool| tool["name"].to_string());
        assert_eq!(seen.len(), list.len());
        let bytes = Value::from(list.clone()).to_string().len();
        let tools = ToolSet::from_request(&list).unwrap();
        for (choice, syntax) in [
            (Choice::Auto, CallSyntax::LlamaJson),
            (Choice::Required, CallSyntax::SmolLm2),
        ] {
            let build = || {
                grammars
                    .constraint(&tools, &choice, true, &TextFormat::Text, syntax)
                    .unwrap()
            };
            let started = Instant::now();
            let relaxed = build().1.len();
            let first = started.elapsed();
            let started = Instant::now();
            build();
            eprintln!(
                "{name}: {} tools, {bytes} bytes, {choice:?}: compiled in {first:?}, from the cache in {:?}, {relaxed} relaxed",
                list.len(),
                started.elapsed()
            );
        }
        let mut times = Vec::new();
        let mut text_times = Vec::new();
        let mut forced = 0;
        let mut drawn = 0;
        for seed in 0..20 {
            let choice = if seed % 2 == 0 && name == "patch.json" {
                Choice::Function("apply_patch".to_owned())
            } else {
                Choice::Required
            };
            let mut constraint = grammars
                .constraint(
                    &tools,
                    &choice,
                    true,
                    &TextFormat::Text,
                    CallSyntax::SmolLm2,
                )
                .unwrap()
                .0
                .unwrap();
            let mut dice = Dice::new(seed);
            for _ in 0..100 {
                let started = Instant::now();
                let next = constraint.next().unwrap();
                times.push(started.elapsed());
                match next {
                    Next::End => break,
                    Next::Free => panic!("not free"),
                    Next::Forced(tokens) => {
                        for token in tokens {
                            forced += 1;
                            constraint.accept(token).unwrap();
                        }
                    }
                    Next::Mask(mask) => {
                        let allowed: Vec<u32> = (0..count as u32)
                            .filter(|token| mask.allows(*token))
                            .collect();
                        drawn += 1;
                        constraint.accept(*dice.pick(&allowed)).unwrap();
                    }
                }
            }
            let mut text = grammars
                .constraint(
                    &tools,
                    &Choice::Auto,
                    true,
                    &TextFormat::Text,
                    CallSyntax::LlamaJson,
                )
                .unwrap()
                .0
                .unwrap();
            for token in (vocabulary.encode)(
                "{ \"answer\": 1 } or:\nThe \"name\" of it is\n\n{\"name\": \"exec_comman",
            ) {
                let started = Instant::now();
                text.next().unwrap();
                text_times.push(started.elapsed());
                text.accept(token).unwrap();
            }
        }
        eprintln!(
            "{name}: {drawn} drawn, {forced} forced; next(): median {:?}, p90 {:?}, p99 {:?}, max {:?}; in text: median {:?}, max {:?}",
            percentile(&mut times, 50),
            percentile(&mut times, 90),
            percentile(&mut times, 99),
            percentile(&mut times, 100),
            percentile(&mut text_times, 50),
            percentile(&mut text_times, 100)
        );
    }
}
