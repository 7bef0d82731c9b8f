use pretty_assertions::assert_eq;

use super::*;

#[test]
fn llama_server_gets_what_it_honours_and_nothing_that_changes_from_turn_to_turn() {
    // F012
    let request = json!({
        "model": "m", "stream": false, "input": "hi", "tools": [], "tool_choice": "auto",
        "parallel_tool_calls": false, "text": {"verbosity": "low"}, "reasoning": {"effort": "high", "summary": "auto"},
        "include": ["reasoning.encrypted_content"], "store": false, "prompt_cache_key": "k1",
        "client_metadata": {"a": "b"}, "service_tier": null, "previous_response_id": null, "temperature": 0.10,
        "max_output_tokens": 5, "id_slot": 3, "seed": 9007199254740993u64, "user": null,
    });
    let Normalized {
        body,
        translation,
        prewarm,
    } = normalized(request.clone(), &Policy::default(), &LLAMA);
    assert_eq!(
        Value::Object(body),
        json!({
            "model": "m", "stream": true,
            "input": [{"type": "message", "role": "user", "content": "hi"}],
            "tools": [], "tool_choice": "auto", "parallel_tool_calls": false, "temperature": 0.10,
            "max_output_tokens": 5, "id_slot": 3, "seed": 9007199254740993u64, "reasoning": {"effort": "high"},
            "return_progress": true,
        })
    );
    assert!(
        !prewarm
            && !translation.stream
            && translation.single_call
            && !translation.structured_output
    );
    assert_eq!(translation.max_output_tokens, Some(5));
    let declared = Value::Object(translation.declared);
    for key in [
        "model",
        "tools",
        "tool_choice",
        "text",
        "reasoning",
        "temperature",
        "parallel_tool_calls",
    ] {
        assert_eq!(declared[key], request[key], "{key}");
    }
    assert_eq!(declared.get("input"), None);
}

#[test]
fn a_native_server_gets_the_request_as_it_came() {
    let request = json!({
        "input": [user("hi"), 7, {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": null},
            {"type": "web_search_call", "id": "ws_1", "status": "completed"}, {"type": "novelty"}],
        "model": "m", "novelty": null, "store": false, "client_metadata": {"b": 1, "a": 2}, "instructions": "A",
        "previous_response_id": "resp_1", "stream": true, "text": {"format": {"type": "json_object"}},
    });
    let normalized = normalized(request.clone(), &Policy::default(), &NATIVE);
    assert_eq!(
        Value::Object(normalized.body).to_string(),
        request.to_string()
    );
    assert!(normalized.translation.structured_output && normalized.translation.stream);
}

#[test]
fn a_schema_becomes_a_response_format_and_withholds_the_tools() {
    let schema = json!({"type": "object", "properties": {"title": {"type": "string"}}});
    let mut request = json!({"model": "m", "input": "hi", "tools": tickets(), "tool_choice": "auto", "text": {"format": {
        "type": "json_schema", "name": "codex_output_schema", "strict": true, "description": null, "schema": schema}}});
    let Normalized {
        body, translation, ..
    } = normalized(request.clone(), &Policy::default(), &LLAMA);
    assert_eq!(
        body["response_format"],
        json!({"type": "json_schema",
            "json_schema": {"name": "codex_output_schema", "strict": true, "schema": schema}})
    );
    assert_eq!(
        (body.get("tools"), body.get("tool_choice"), body.get("text")),
        (None, None, None)
    );
    assert_eq!(
        (
            translation.counts.tools_withheld,
            translation.counts.tools_sent
        ),
        (4, 0)
    );
    assert!(translation.structured_output);
    assert_eq!(translation.declared["tools"], tickets());

    // A forced call cannot be JSON text as well.
    request["tool_choice"] = json!({"type": "custom", "name": "apply_patch"});
    let body = normalized(request, &Policy::default(), &LLAMA).body;
    assert_eq!(body.get("response_format"), None);
    assert_eq!(body["tools"].as_array().unwrap().len(), 1);
}

#[test]
fn a_default_effort_fills_what_the_client_left_open() {
    // F065
    let policy = Policy {
        default_reasoning_effort: Some("low".into()),
        ..Policy::default()
    };
    for (reasoning, effort) in [
        (json!(null), "low"),
        (json!({}), "low"),
        (json!({"effort": null}), "low"),
        (json!({"effort": "high"}), "high"),
    ] {
        for upstream in [LLAMA, NATIVE] {
            let request = json!({"model": "m", "input": "hi", "reasoning": reasoning});
            assert_eq!(
                normalized(request, &policy, &upstream).body["reasoning"]["effort"],
                effort
            );
        }
    }
    let request = json!({"model": "m", "input": "hi"});
    assert_eq!(
        normalized(request, &policy, &NATIVE).body["reasoning"],
        json!({"effort": "low"})
    );
}

#[test]
fn an_exact_alias_goes_before_the_wildcard() {
    // F014
    let mut policy = Policy::default();
    let served = |asked: &str, policy: &Policy| {
        normalized(json!({"model": asked, "input": "hi"}), policy, &LLAMA).body["model"].clone()
    };
    assert_eq!(served("x", &policy), "x");
    policy.model_aliases.insert("*".into(), "any".into());
    policy.model_aliases.insert("gpt".into(), "llama".into());
    assert_eq!(
        (served("gpt", &policy), served("x", &policy)),
        ("llama".into(), "any".into())
    );
}

#[test]
fn a_request_that_generates_nothing_is_marked() {
    // F104
    for input in [json!([]), json!(""), json!(null)] {
        let request = json!({"model": "m", "input": input, "generate": false, "stream": true});
        for upstream in [LLAMA, NATIVE] {
            let normalized = normalized(request.clone(), &Policy::default(), &upstream);
            assert!(normalized.prewarm);
            assert_eq!(normalized.body.get("generate"), None);
        }
    }
}

#[test]
fn the_load_probe_of_lm_studio_passes() {
    let request = json!({"model": "m", "input": "", "max_output_tokens": 1});
    let normalized = normalized(request.clone(), &Policy::default(), &LLAMA);
    assert_eq!(
        Value::Object(normalized.body),
        json!({"model": "m", "input": [{"type": "message", "role": "user", "content": ""}], "max_output_tokens": 1,
            "stream": true, "return_progress": true})
    );
    assert!(!normalized.prewarm && !normalized.translation.stream);
    let native = super::normalized(request.clone(), &Policy::default(), &NATIVE).body;
    assert_eq!(Value::Object(native), request);
}
