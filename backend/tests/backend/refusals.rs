//! What is refused, before anything is computed.

use std::time::Duration;

use codex_bridge_backend::{
    backend::{Backend, BackendOptions, DeviceChoice, LoadError, Refusal, ToolsMode},
    testing::{Scripted, TinyLlama, gguf::Gguf},
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::support::{object, options, refused, response, scripted, tool};

fn hello() -> Scripted {
    Scripted::default().answer(&["Hello"])
}

#[tokio::test]
async fn a_prompt_beyond_the_window_is_refused_with_both_numbers() {
    let backend = scripted(&hello());
    let request = json!({"input": "word ".repeat(3000)});
    let tokens = backend.input_tokens(object(request.clone())).await.unwrap();
    assert!(tokens > 2048);
    let refused = refused(&backend, request).await;
    assert_eq!(refused.refusal, Refusal::Invalid);
    assert_eq!(
        refused.error.code.as_deref(),
        Some("context_length_exceeded")
    );
    assert_eq!(
        refused.error.message,
        format!("the prompt has {tokens} tokens, and the context of this model is 2048 tokens")
    );
}

#[tokio::test]
async fn truncation_leaves_out_the_oldest_turns() {
    let backend = scripted(&hello());
    let message = |role: &str, text: &str| json!({"role": role, "content": text});
    let mut input = vec![message("developer", "Be brief.")];
    for _ in 0..8 {
        input.push(message("user", &"many words ".repeat(60)));
        input.push(message("assistant", "Yes."));
    }
    input.push(message("user", "And now?"));
    let request = json!({"input": input, "truncation": "auto", "temperature": 0});
    let cut = response(&backend, request).await;
    assert_eq!(cut["status"], "completed");
    let used = cut["usage"]["input_tokens"].as_u64().unwrap();
    assert!((1000..2048).contains(&used), "{used}");
    // One turn that is too long by itself.
    let request = json!({"input": "word ".repeat(3000), "truncation": "auto"});
    let refused = refused(&backend, request).await;
    assert_eq!(
        refused.error.code.as_deref(),
        Some("context_length_exceeded")
    );
}

#[tokio::test]
async fn a_conversation_longer_than_any_template_takes_is_beyond_the_window_too() {
    let backend = scripted(&hello());
    let message = |role: &str| json!({"role": role, "content": "a"});
    let mut input: Vec<Value> = ["user", "assistant"]
        .map(message)
        .into_iter()
        .cycle()
        .take(100_000)
        .collect();
    input.push(message("user"));
    let mut request = json!({"input": input, "temperature": 0});
    let refused = refused(&backend, request.clone()).await;
    assert_eq!(refused.refusal, Refusal::Invalid);
    assert_eq!(
        refused.error.code.as_deref(),
        Some("context_length_exceeded"),
        "{refused}"
    );
    assert_eq!(refused.error.param.as_deref(), Some("input"));
    // What is left out of it need not be rendered.
    request["truncation"] = "auto".into();
    assert_eq!(response(&backend, request).await["status"], "completed");
}

#[tokio::test]
async fn fields_at_fault_are_named() {
    let backend = scripted(&hello());
    let schema = json!({"type": "object", "properties": {}});
    for (request, param) in [
        (json!({"input": "a", "temperature": 3}), "temperature"),
        (
            json!({"input": "a", "tool_choice": "required"}),
            "tool_choice",
        ),
        (
            json!({"input": "a", "tools": [tool("f", schema.clone())], "tool_choice": {"type": "function", "name": "g"}}),
            "tool_choice",
        ),
        (
            json!({"input": "a", "tools": [tool("f", schema.clone()), tool("f", schema)]}),
            "tools[1].name",
        ),
        (
            json!({"input": "a", "text": {"format": {"type": "xml"}}}),
            "text.format.type",
        ),
        (
            json!({"input": [{"type": "message", "role": "user", "content": 7}]}),
            "input[0].content",
        ),
    ] {
        let refused = refused(&backend, request).await;
        assert_eq!(refused.refusal, Refusal::Invalid);
        assert_eq!(
            refused.error.param.as_deref(),
            Some(param),
            "{}",
            refused.error.message
        );
    }
}

#[tokio::test]
async fn one_more_than_may_wait_is_told_when_to_come_back() {
    let chunks: Vec<String> = (0..900).map(|number| format!("word{number} ")).collect();
    let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
    let backend = scripted(&Scripted::default().answer(&chunks));
    // Two run and two wait; nobody reads, so nobody ends.
    let mut open = Vec::new();
    for _ in 0..4 {
        let request = object(json!({"input": "Go", "temperature": 0}));
        open.push(backend.respond(request).await.unwrap());
    }
    let refused = refused(&backend, json!({"input": "Go"})).await;
    let Refusal::Busy { retry_after } = refused.refusal else {
        panic!("{refused:?}");
    };
    assert_eq!(refused.error.code.as_deref(), Some("rate_limit_exceeded"));
    assert!(
        refused
            .error
            .message
            .contains(&format!("try again in {retry_after}s")),
        "{}",
        refused.error.message
    );
}

#[tokio::test]
async fn tools_that_are_switched_off_are_neither_shown_nor_called() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scripted.gguf");
    Scripted::default()
        .answer(&["<tool_call>", "{\"name\": \"f\"}", "</tool_call>"])
        .write_gguf(&path)
        .unwrap();
    let off = BackendOptions {
        tools: ToolsMode::Off,
        ..options(&path)
    };
    let backend = Backend::load(&off).unwrap();
    let with = json!({"input": "a", "temperature": 0, "tools": [tool("f", json!({}))]});
    let without = json!({"input": "a", "temperature": 0});
    let count = |request: Value| backend.input_tokens(object(request));
    assert_eq!(
        count(with.clone()).await.unwrap(),
        count(without).await.unwrap()
    );
    let answer = response(&backend, with).await;
    assert_eq!(answer["output"][0]["type"], "message");
}

#[test]
fn what_cannot_be_loaded_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scripted.gguf");
    hello().write_gguf(&path).unwrap();
    let refused = |options: BackendOptions| {
        let error = Backend::load(&options).unwrap_err();
        let message = error.to_string();
        assert!(!message.contains('\n'), "{message}");
        (error, message)
    };
    let (error, message) = refused(options(&folder.path().join("none.gguf")));
    assert!(matches!(error, LoadError::Model(_)), "{message}");
    let cuda = BackendOptions {
        device: DeviceChoice::Cuda(0),
        ..options(&path)
    };
    let (error, message) = refused(cuda);
    assert!(matches!(error, LoadError::Device { .. }), "{message}");
    for (option, problem, wrong) in [
        (
            "threads",
            "is 0; at least 1 is allowed",
            BackendOptions {
                threads: Some(0),
                ..options(&path)
            },
        ),
        (
            "context length",
            "is 32769; at most 32768 is allowed, what this model was trained for",
            BackendOptions {
                context_length: Some(32_769),
                ..options(&path)
            },
        ),
    ] {
        let (error, message) = refused(wrong);
        assert!(matches!(error, LoadError::Option { .. }), "{message}");
        assert_eq!(message, format!("{option}: {problem}"));
    }
}

/// Every weight is finite; what comes of them together is not.
#[test]
fn a_model_whose_numbers_overflow_is_refused_when_it_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    let fill = |file: &mut Gguf, tensor: &str, value: f32| {
        let bytes = &mut file.tensor(tensor).bytes;
        *bytes = value.to_le_bytes().repeat(bytes.len() / 4);
    };
    let load = |change: &dyn Fn(&mut Gguf)| {
        let tiny = TinyLlama {
            chat_template: Some("{{ messages[0]['content'] }}".to_owned()),
            ..TinyLlama::default()
        };
        let mut file = tiny.gguf();
        change(&mut file);
        file.write(&path).unwrap();
        let small = BackendOptions {
            context_length: Some(256),
            ..options(&path)
        };
        Backend::load(&small)
    };
    load(&|_| {}).unwrap();
    for (tensor, value) in [
        ("blk.0.attn_norm.weight", 1e30),
        ("blk.1.ffn_norm.weight", 1e30),
        ("output_norm.weight", 3e38),
        ("blk.1.attn_v.weight", 3e38),
        ("token_embd.weight", 3e38),
    ] {
        let Err(error) = load(&|file| fill(file, tensor, value)) else {
            panic!("{tensor}: loaded");
        };
        assert!(matches!(error, LoadError::Model(_)), "{tensor}: {error}");
        let line = error.to_string();
        let begin = format!("{}: logits of a trial step: found ", path.display());
        assert!(line.starts_with(&begin), "{tensor}: {line}");
        let end = "; supported: finite numbers that differ, so weights that do not overflow";
        assert!(line.ends_with(end), "{tensor}: {line}");
    }
}

/// What no fuel is charged for, and nothing can stop: comparing lists that are written down nowhere.
const ENDLESS: &str = "{% if 'forever' in messages[-1]['content'] %}\
    {% for i in range(10000) %}{{ [[1] * 100000000] == [[1] * 100000000] }}{% endfor %}{% endif %}\
    {{ messages[-1]['content'] }}";

#[tokio::test]
async fn a_template_that_does_not_end_ends_the_engine_and_everybody_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scripted.gguf");
    let chunks: Vec<String> = (0..900).map(|number| format!("word{number} ")).collect();
    let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
    Scripted::default()
        .answer(&chunks)
        .template(ENDLESS)
        .write_gguf(&path)
        .unwrap();
    let backend = Backend::load(&BackendOptions {
        prompt_patience: Duration::from_secs(1),
        ..options(&path)
    })
    .unwrap();
    // Nobody reads it yet, so it does not end.
    let open = object(json!({"input": "Go", "temperature": 0}));
    let mut open = backend.respond(open).await.unwrap();

    let why = "chat template: it does more work than 1 s are enough for";
    let refused = refused(&backend, json!({"input": "Go on forever"})).await;
    assert_eq!(refused.refusal, Refusal::Down);
    assert_eq!(refused.error.message, why);
    let status = backend.status();
    assert!(!status.healthy);
    assert_eq!(status.failure.as_deref(), Some(why));

    let mut last = None;
    while let Some(event) = open.next().await {
        last = Some(event);
    }
    let last = last.unwrap();
    assert_eq!(last["type"], "response.failed");
    assert_eq!(last["response"]["error"]["message"], why);
    let next = object(json!({"input": "Go"}));
    let next = backend.respond(next).await.unwrap_err();
    assert_eq!(next.refusal, Refusal::Down);
}
