//! Models whose answers are written into their weights.

use codex_bridge_backend::testing::{Scripted, events::response as last};
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::support::{events, object, response, scripted, tool};

#[tokio::test]
async fn text_with_split_characters_arrives_whole() {
    let backend = scripted(&Scripted::default().answer_text("zażółć 😀 gęślą jaźń, 中文", 3));
    let events = events(&backend, json!({"input": "Hi", "temperature": 0})).await;
    let text = &last(&events)["output"][0]["content"][0]["text"];
    assert_eq!(text, "zażółć 😀 gęślą jaźń, 中文");
    assert_eq!(last(&events)["output"][0]["phase"], "final_answer");
    let deltas = events
        .iter()
        .filter(|event| event["type"] == "response.output_text.delta");
    assert!(deltas.count() > 3);
}

#[tokio::test]
async fn reasoning_and_text_are_two_items() {
    let script = Scripted::default().answer(&[
        "<think>",
        "Let me",
        " see.",
        "</think>",
        "\n\nIt is",
        " four.",
    ]);
    let backend = scripted(&script);
    let events = events(&backend, json!({"input": "2 + 2?", "temperature": 0})).await;
    let output = last(&events)["output"].as_array().unwrap();
    assert_eq!(output[0]["content"][0]["text"], "Let me see.");
    assert_eq!(output[1]["content"][0]["text"], "It is four.");
    let usage = &last(&events)["usage"];
    assert_eq!(usage["output_tokens_details"]["reasoning_tokens"], 4);
    assert_eq!(usage["output_tokens"], 7);
}

#[tokio::test]
async fn a_call_in_free_text_streams_its_arguments() {
    let chunks = [
        "I look. ",
        "<tool_call>",
        "\n{\"name\": \"find\", \"arguments\": ",
        "{\"q\": \"",
        "some",
        "thing",
        "\"}}\n</tool_call>",
    ];
    let backend = scripted(&Scripted::default().answer(&chunks));
    let schema = json!({"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"], "additionalProperties": false});
    let request = json!({"input": "Find it", "temperature": 0, "tools": [tool("find", schema)]});
    let events = events(&backend, request).await;
    let output = last(&events)["output"].as_array().unwrap();
    assert_eq!(output[0]["content"][0]["text"], "I look. ");
    assert_eq!(output[0]["phase"], "commentary");
    assert_eq!(output[1]["name"], "find");
    assert_eq!(output[1]["arguments"], "{\"q\": \"something\"}");
    assert_eq!(output[1]["status"], "completed");
    assert_eq!(backend.status().calls, 1);
    assert_eq!(backend.status().invalid_calls, 0);
}

fn query() -> serde_json::Value {
    json!({"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"], "additionalProperties": false})
}

#[tokio::test]
async fn two_parallel_calls_are_two_items_and_one_where_one_is_asked_for() {
    let chunks = [
        "<tool_call>",
        "\n{\"name\": \"",
        "find\", \"arguments\": {\"q\": \"",
        "left",
        "\"}}\n</tool_call>",
        "\n<tool_call>\n{\"name\": \"",
        "fetch\", \"arguments\": {\"q\": \"",
        "right",
        "\"}",
        "}\n</tool_call>",
    ];
    let backend = scripted(&Scripted::default().answer(&chunks));
    let tools = json!([tool("find", query()), tool("fetch", query())]);
    let request = json!({"input": "Both", "temperature": 0, "tools": tools});
    let events = events(&backend, request.clone()).await;
    let output = last(&events)["output"].as_array().unwrap();
    let calls: Vec<_> = output
        .iter()
        .map(|item| {
            (
                item["name"].as_str().unwrap(),
                item["arguments"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        calls,
        [
            ("find", "{\"q\": \"left\"}"),
            ("fetch", "{\"q\": \"right\"}")
        ]
    );
    assert_ne!(output[0]["call_id"], output[1]["call_id"]);

    let mut single = object(request);
    single.insert("parallel_tool_calls".into(), false.into());
    let one = response(&backend, single.into()).await;
    assert_eq!(one["output"].as_array().unwrap().len(), 1);
    assert_eq!(one["output"][0]["arguments"], "{\"q\": \"left\"}");
    assert_eq!(one["status"], "completed");
}

#[tokio::test]
async fn a_call_that_the_limit_cuts_is_incomplete() {
    let chunks = [
        "<tool_call>",
        "\n{\"name\": \"find\", \"arguments\": {\"q\": \"",
        "left",
        " and",
        " right",
        "\"}}\n</tool_call>",
    ];
    let backend = scripted(&Scripted::default().answer(&chunks));
    let request = json!({"input": "Both", "temperature": 0, "tools": [tool("find", query())]});
    let whole = response(&backend, request.clone()).await;
    let mut request = object(request);
    let tokens = whole["usage"]["output_tokens"].as_u64().unwrap();
    assert_eq!(whole["output"][0]["status"], "completed");
    for limit in 1..tokens - 1 {
        request.insert("max_output_tokens".into(), limit.into());
        let cut = response(&backend, request.clone().into()).await;
        assert_eq!(cut["status"], "incomplete");
        let item = &cut["output"][0];
        assert_eq!(item["status"], "incomplete");
        if item["type"] == "function_call" {
            let whole = whole["output"][0]["arguments"].as_str().unwrap();
            assert!(
                whole.starts_with(item["arguments"].as_str().unwrap()),
                "{item}"
            );
        }
    }
    assert_eq!(backend.status().calls, 1);
}

#[tokio::test]
async fn a_limit_cuts_text_and_says_so() {
    let backend = scripted(&Scripted::default().answer(&["One ", "two ", "three ", "four."]));
    let cut = response(
        &backend,
        json!({"input": "Count", "temperature": 0, "max_output_tokens": 2}),
    )
    .await;
    assert_eq!(cut["status"], "incomplete");
    assert_eq!(cut["incomplete_details"]["reason"], "max_output_tokens");
    assert_eq!(cut["output"][0]["status"], "incomplete");
    assert_eq!(cut["output"][0]["content"][0]["text"], "One two ");
    assert_eq!(cut["usage"]["output_tokens"], 2);
    assert_eq!(backend.status().responses_incomplete, 1);
}

#[tokio::test]
async fn the_second_request_finds_the_first_ones_prompt() {
    let backend = scripted(&Scripted::default().answer(&["Hello", " there"]));
    let input = "word ".repeat(50);
    let request = json!({"input": input, "temperature": 0});
    let first = response(&backend, request.clone()).await;
    assert_eq!(first["usage"]["input_tokens_details"]["cached_tokens"], 0);
    let second = response(&backend, request).await;
    let (input, cached) = (
        &second["usage"]["input_tokens"],
        &second["usage"]["input_tokens_details"]["cached_tokens"],
    );
    assert!(
        cached.as_u64().unwrap() + 16 >= input.as_u64().unwrap(),
        "{cached} of {input}"
    );
    assert_eq!(
        second["output"][0]["content"],
        first["output"][0]["content"]
    );
}

#[tokio::test]
async fn dropping_a_response_frees_its_pages_for_the_next() {
    let chunks: Vec<String> = (0..500).map(|number| format!("word{number} ")).collect();
    let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
    let backend = scripted(&Scripted::default().answer(&chunks));
    for _ in 0..8 {
        let request = object(json!({"input": "Go", "temperature": 0}));
        let mut responding = backend.respond(request).await.unwrap();
        for _ in 0..6 {
            responding.next().await.unwrap();
        }
    }
    // Were one of them still running, there would be no place left for a third at some point, and the last would wait for it.
    let whole = response(&backend, json!({"input": "Go", "temperature": 0})).await;
    assert_eq!(whole["usage"]["output_tokens"], 501);
    assert_eq!(backend.status().responses_cancelled, 8);
}

#[tokio::test]
async fn stopping_the_engine_ends_streams_honestly() {
    let chunks: Vec<String> = (0..500).map(|number| format!("word{number} ")).collect();
    let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
    let backend = scripted(&Scripted::default().answer(&chunks));
    let request = json!({"input": "Go", "temperature": 0});
    let mut responding = backend.respond(object(request.clone())).await.unwrap();
    for _ in 0..6 {
        responding.next().await.unwrap();
    }
    let other = backend.clone();
    std::thread::spawn(move || other.shutdown()).join().unwrap();
    let response = responding.collect().await;
    assert_eq!(response["status"], "failed");
    assert_eq!(response["error"]["message"], "the engine is shutting down");
    let refused = crate::support::refused(&backend, request).await;
    assert_eq!(
        refused.refusal,
        codex_bridge_backend::backend::Refusal::Down
    );
    assert!(!backend.status().healthy);
}

#[tokio::test]
async fn a_probe_without_words_is_answered() {
    let backend = scripted(&Scripted::default().answer(&["Hello", " there"]));
    let probe = json!({"model": "any", "input": "", "max_output_tokens": 1, "tools": [], "tool_choice": "auto"});
    let answer = response(&backend, probe).await;
    assert_eq!(answer["model"], "any");
    assert_eq!(answer["output"][0]["content"][0]["text"], "Hello");
}

#[tokio::test]
async fn requests_side_by_side_get_their_own_answers() {
    let backend =
        scripted(&Scripted::default().answer_text("One answer for everybody who asks.", 4));
    let asked = (0..4).map(|number| {
        response(
            &backend,
            json!({"input": format!("{number}"), "temperature": 0}),
        )
    });
    let mut ids = std::collections::BTreeSet::new();
    for asked in asked.collect::<Vec<_>>() {
        let answer = asked.await;
        assert_eq!(
            answer["output"][0]["content"][0]["text"],
            "One answer for everybody who asks."
        );
        ids.insert(answer["output"][0]["id"].as_str().unwrap().to_owned());
        ids.insert(answer["id"].as_str().unwrap().to_owned());
    }
    assert_eq!(ids.len(), 8);
    assert_eq!(backend.status().responses_completed, 4);
}

#[tokio::test]
async fn what_is_served_is_told() {
    let backend = scripted(&Scripted::default().answer(&["Hello"]));
    let info = backend.info();
    assert_eq!(info.id, "scripted");
    assert_eq!(info.format, "F32");
    assert_eq!((info.context, info.trained_context), (2048, 32_768));
    assert_eq!(info.tokenizer, "gpt2 (gpt-2)");
    assert_eq!(info.call_syntax, "hermes");
    assert!(info.device.starts_with("cpu ("));
    assert!(!info.template_knows_tools);
    assert_eq!(info.warnings.len(), 2);
    assert!(backend.status().healthy);
}
