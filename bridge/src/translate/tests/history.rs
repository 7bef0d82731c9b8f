use pretty_assertions::assert_eq;

use super::*;
use crate::config::SystemMessages;

const ONE_AT_A_TIME: Capabilities = Capabilities {
    parallel_calls: false,
    ..LLAMA
};

#[test]
fn a_native_server_gets_the_calls_renamed_and_the_rest_untouched() {
    let history = json!([
        user("close 41"),
        {"type": "message", "id": "msg_1", "role": "assistant", "phase": "commentary", "content": []},
        {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "close.ticket", "namespace": "mcp__tickets",
            "arguments": "{\"id\":41", "status": "completed", "encrypted_function_args": []},
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "b", "name": "apply_patch", "input": "*** \"x\"\n",
            "status": "completed", "extra": 1},
        {"type": "custom_tool_call", "call_id": "c", "name": "apply patch", "namespace": "functions"},
        {"type": "custom_tool_call_output", "id": "ctco_1", "call_id": "b", "output": [{"type": "input_text", "text": "ok"}]},
        {"type": "function_call", "call_id": "d", "name": "gone tool", "namespace": null, "arguments": {"x": 1}},
        {"type": "compaction", "encrypted_content": "x"},
        {"type": "item_reference", "id": "msg_9"},
    ]);
    assert_eq!(
        input(history, &NATIVE),
        json!([
            user("close 41"),
            {"type": "message", "id": "msg_1", "role": "assistant", "phase": "commentary", "content": []},
            {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "mcp__tickets__close_ticket",
                "arguments": "{\"id\":41", "status": "completed"},
            {"type": "function_call", "id": "ctc_1", "call_id": "b", "name": "apply_patch",
                "arguments": "{\"input\":\"*** \\\"x\\\"\\n\"}", "status": "completed"},
            {"type": "function_call", "call_id": "c", "name": "functions__apply_patch", "arguments": "{\"input\":\"\"}"},
            {"type": "function_call_output", "id": "ctco_1", "call_id": "b",
                "output": [{"type": "input_text", "text": "ok"}]},
            {"type": "function_call", "call_id": "d", "name": "gone_tool", "arguments": {"x": 1}},
            {"type": "compaction", "encrypted_content": "x"},
            {"type": "item_reference", "id": "msg_9"},
        ])
    );
}

#[test]
fn llama_server_gets_messages_calls_outputs_and_reasoning_without_ids() {
    // F005, F019, F063, F112
    let history = json!([
        {"role": "user", "content": "go"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": null, "encrypted_content": ""},
        {"type": "reasoning", "id": "rs_2", "summary": [{"type": "summary_text", "text": "short"}]},
        {"type": "reasoning", "id": "rs_3", "summary": [{"type": "summary_text", "text": "short"}],
            "content": [{"type": "reasoning_text", "text": "a"}, {"type": "reasoning_text", "text": "b"}]},
        {"role": "assistant", "id": "msg_1", "status": "completed", "phase": "commentary",
            "internal_chat_message_metadata_passthrough": {}, "content": "looking"},
        {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "find_ticket", "namespace": "mcp__tickets",
            "status": "completed", "arguments": "{\"cmd\":\"type \\\"notes dir\\\\sub\\\\a.txt\\\"\"}"},
        {"type": "function_call_output", "id": "fco_1", "call_id": "a", "output": "open"},
        {"type": "custom_tool_call", "call_id": "b", "name": "apply_patch", "input": "*** Begin Patch\n"},
        {"type": "custom_tool_call_output", "call_id": "b", "output": "Done"},
        {"type": "compaction", "encrypted_content": "x"},
    ]);
    let reasoning = |text: &str| json!({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]});
    assert_eq!(
        input(history, &LLAMA),
        json!([
            {"role": "user", "content": "go", "type": "message"},
            reasoning("short"),
            reasoning("a\nb"),
            {"role": "assistant", "phase": "commentary", "type": "message",
                "content": [{"type": "output_text", "text": "looking"}]},
            call("a", "mcp__tickets__find_ticket", "{\"cmd\":\"type \\\"notes dir\\\\sub\\\\a.txt\\\"\"}"),
            output("a", "open"),
            call("b", "apply_patch", "{\"input\":\"*** Begin Patch\\n\"}"),
            output("b", "Done"),
        ])
    );
}

#[test]
fn broken_arguments_travel_inside_an_object() {
    // F025
    for (written, sent) in [
        (
            "{\"path\":\"src/a",
            "{\"malformed_arguments\":\"{\\\"path\\\":\\\"src/a\"}",
        ),
        ("[1]", "{\"malformed_arguments\":\"[1]\"}"),
        ("", "{}"),
        ("{ \"a\" : 1e400 }", "{ \"a\" : 1e400 }"),
    ] {
        let history = json!([call("k", "save", written), output("k", "error")]);
        assert_eq!(input(history.clone(), &NATIVE), history);
        assert_eq!(
            input(history, &LLAMA),
            json!([call("k", "save", sent), output("k", "error")])
        );
    }
}

#[test]
fn outputs_follow_their_calls() {
    let history = json!([
        call("a", "x", "{}"),
        call("b", "y", "{}"),
        assistant("meanwhile"),
        output("b", "2"),
        output("a", "1"),
        user("go on"),
    ]);
    assert_eq!(input(history.clone(), &NATIVE), history);
    assert_eq!(
        input(history.clone(), &LLAMA),
        json!([
            call("a", "x", "{}"),
            call("b", "y", "{}"),
            output("a", "1"),
            output("b", "2"),
            assistant("meanwhile"),
            user("go on"),
        ])
    );
    // A template that takes one call in a turn raises on two (Llama 3.1).
    assert_eq!(
        input(history, &ONE_AT_A_TIME),
        json!([
            call("a", "x", "{}"),
            output("a", "1"),
            call("b", "y", "{}"),
            output("b", "2"),
            assistant("meanwhile"),
            user("go on"),
        ])
    );
}

#[test]
fn a_call_id_that_is_used_again_pairs_in_order() {
    let history = json!([
        call("a", "x", "{}"),
        output("a", "1"),
        call("a", "x", "{}"),
        call("a", "x", "{}"),
        output("a", "2"),
        output("a", "3"),
    ]);
    assert_eq!(input(history.clone(), &LLAMA), history);
}

#[test]
fn a_call_without_output_is_answered_and_a_stray_output_is_told() {
    // F070
    let history = json!([
        user("go"),
        call("x", "save", "{}"),
        user("stop"),
        assistant("stopped"),
        output("y", json!([{"type": "input_text", "text": "late"}])),
    ]);
    assert_eq!(
        input(history, &LLAMA),
        json!([
            user("go"),
            call("x", "save", "{}"),
            output("x", "aborted: this call got no output"),
            user("stop"),
            assistant("stopped"),
            {"type": "message", "role": "user", "content": [
                {"type": "input_text", "text": "[output of a tool call that is not part of this conversation: y]"},
                {"type": "input_text", "text": "late"},
            ]},
        ])
    );
}

#[test]
fn an_image_in_a_tool_output_needs_vision_or_becomes_a_note() {
    // F085
    let image =
        json!({"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "high"});
    let text = json!({"type": "input_text", "text": "one image"});
    let history = json!([
        call("v", "view_image", "{}"),
        output(
            "v",
            json!([text, image, {"type": "input_file", "file_id": "f"}])
        ),
        call("w", "odd", "{}"),
        output("w", json!({"stdout": "x"})),
    ]);
    let sent = |parts: Value| {
        json!([
            call("v", "view_image", "{}"),
            output("v", parts),
            call("w", "odd", "{}"),
            output("w", "{\"stdout\":\"x\"}"),
        ])
    };
    let note = |text: &str| json!({"type": "input_text", "text": text});
    let file = note("[input_file omitted: the model server cannot take it]");
    assert_eq!(
        input(history.clone(), &LLAMA),
        sent(json!([
            text,
            note("[image omitted: the model has no vision]"),
            file
        ]))
    );
    let mut native = history.clone();
    native[1]["output"][1] = note("[image omitted: the model has no vision]");
    assert_eq!(input(history.clone(), &NATIVE), native);
    let seeing = Capabilities {
        vision: true,
        ..LLAMA
    };
    assert_eq!(input(history, &seeing), sent(json!([text, image, file])));
    let message = json!([{"type": "message", "role": "user", "content": [text, image]}]);
    assert_eq!(input(message.clone(), &seeing), message);
}

#[test]
fn hosted_and_legacy_items_are_told_in_words_or_as_calls() {
    let history = json!([
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "rust \"x\""}},
        {"type": "web_search_call", "id": "ws_2", "action": {"type": "open_page", "url": "https://example.org/"}},
        {"type": "web_search_call", "id": "ws_3",
            "action": {"type": "find_in_page", "url": "https://example.org/", "pattern": "p"}},
        {"type": "image_generation_call", "id": "ig_1", "result": "AAAA", "revised_prompt": "a cat"},
        {"type": "local_shell_call", "id": "lsc_1", "call_id": "l", "status": "completed",
            "action": {"type": "exec", "command": ["ls"]}},
        {"type": "local_shell_call_output", "id": "l", "output": "a.txt"},
        {"type": "agent_message", "author": "/root", "content": [
            {"type": "input_text", "text": "count files"}, {"type": "encrypted_content", "encrypted_content": "x"}]},
    ]);
    assert_eq!(
        input(history, &LLAMA),
        json!([
            assistant("[searched the web for \"rust \\\"x\\\"\"]"),
            assistant("[searched the web and opened https://example.org/]"),
            assistant("[searched the web for \"p\" in https://example.org/]"),
            assistant("[generated an image: a cat]"),
            call(
                "l",
                "local_shell",
                "{\"type\":\"exec\",\"command\":[\"ls\"]}"
            ),
            output("l", "a.txt"),
            user("count files"),
        ])
    );
}

#[test]
fn a_refusal_is_told_as_text() {
    let refusal = json!({"role": "assistant", "content": [
        {"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "I will not."}]});
    assert_eq!(
        input(json!([refusal]), &LLAMA),
        json!([{"role": "assistant", "type": "message", "content": [
            {"type": "output_text", "text": "a"}, {"type": "output_text", "text": "I will not."}]}])
    );
}

#[test]
fn unknown_items_can_be_dropped_and_are_counted() {
    let request =
        json!({"model": "m", "input": [user("hi"), {"type": "novelty"}, {"type": "novelty"}]});
    let normalized = normalized(request, &dropping(), &LLAMA);
    assert_eq!(normalized.body["input"], json!([user("hi")]));
    assert_eq!(normalized.translation.counts.dropped_items["novelty"], 2);
}

#[test]
fn leading_instructions_become_one_system_message_and_user_turns_alternate() {
    // F066, F068
    let developer = |text: &str| json!({"type": "message", "role": "developer", "content": [{"type": "input_text", "text": text}]});
    let request = json!({"model": "m", "instructions": "A", "input": [
        {"type": "message", "id": "msg_1", "role": "developer", "content": [
            {"type": "input_text", "text": "B"}, {"type": "input_text", "text": "C"}]},
        {"role": "system", "content": "D"},
        user("<env>"),
        user("hi"),
        assistant("hello"),
        developer("E"),
        {"role": "user", "content": "more"},
    ]});
    let body = normalized(request.clone(), &Policy::default(), &LLAMA).body;
    assert_eq!(
        body["input"],
        json!([
            {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "A\n\nB\n\nC\n\nD"}]},
            {"type": "message", "role": "user", "content": [
                {"type": "input_text", "text": "<env>"}, {"type": "input_text", "text": "hi"}]},
            assistant("hello"),
            {"type": "message", "role": "user", "content": [
                {"type": "input_text", "text": "E"}, {"type": "input_text", "text": "more"}]},
        ])
    );
    assert_eq!(body.get("instructions"), None);

    let keep = Policy {
        system_messages: SystemMessages::Keep,
        ..Policy::default()
    };
    let body = normalized(request.clone(), &keep, &LLAMA).body;
    assert_eq!(body["instructions"], "A");
    assert_eq!(body["input"].as_array().unwrap().len(), 7);

    let merge = Policy {
        system_messages: SystemMessages::Merge,
        ..Policy::default()
    };
    let body = normalized(request, &merge, &NATIVE).body;
    assert_eq!(body["input"].as_array().unwrap().len(), 4);
}

#[test]
fn instructions_beside_a_text_input_are_merged_too() {
    let request = json!({"model": "m", "instructions": "A", "input": "hi"});
    let body = normalized(request, &Policy::default(), &LLAMA).body;
    assert_eq!(
        body["input"],
        json!([
            {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "A"}]},
            {"type": "message", "role": "user", "content": "hi"},
        ])
    );
}

#[test]
fn two_threads_that_say_the_same_give_the_same_bytes() {
    let thread = |n: u32| {
        json!({"model": "m", "prompt_cache_key": n, "client_metadata": {"thread_id": n}, "input": [
            {"type": "message", "id": format!("msg_{n}"), "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "reasoning", "id": format!("rs_{n}"), "summary": [], "content": [{"type": "reasoning_text", "text": "r"}]},
            {"type": "function_call", "id": format!("fc_{n}"), "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "id": format!("fco_{n}"), "call_id": "c", "output": "ok"},
        ]})
    };
    let bytes =
        |n| serde_json::to_vec(&normalized(thread(n), &Policy::default(), &LLAMA).body).unwrap();
    assert_eq!(bytes(1), bytes(2));
}

#[test]
fn each_turn_begins_with_the_one_before() {
    let turns = [
        json!([{"type": "message", "role": "developer", "content": "A"}, user("env"), user("one")]),
        json!([
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "r"}]},
            assistant("looking"),
            call("a", "x", "{}"),
            call("b", "y", "{oops"),
            output("a", "1"),
            output("b", "2"),
        ]),
        json!([assistant("done"), {"type": "message", "role": "developer", "content": "B"}, user("two")]),
        json!([
            {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "p"},
            {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"},
        ]),
    ];
    for upstream in [LLAMA, ONE_AT_A_TIME, NATIVE] {
        let mut history = Vec::new();
        let mut before = Vec::new();
        for turn in &turns {
            history.extend(turn.as_array().unwrap().clone());
            let sent = input(history.clone().into(), &upstream);
            let sent = sent.as_array().unwrap();
            assert!(sent.starts_with(&before));
            before.clone_from(sent);
        }
    }
}
