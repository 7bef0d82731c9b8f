use serde_json::json;

use super::*;
use crate::prompt::testing::{assistant, call, output, request, user};

fn read(value: Value) -> Result<Vec<Turn>, PromptError> {
    Conversation::from_request(&request(value)).map(|conversation| conversation.turns)
}

fn turns(input: &Value) -> Vec<Turn> {
    read(json!({"input": input})).unwrap()
}

fn refusal(value: Value) -> String {
    read(value).unwrap_err().to_string()
}

fn said(text: &str) -> Turn {
    Turn::Assistant {
        reasoning: String::new(),
        text: text.to_owned(),
        calls: Vec::new(),
    }
}

fn called(text: &str, calls: &[(&str, Value, Option<&str>)]) -> Turn {
    Turn::Assistant {
        reasoning: String::new(),
        text: text.to_owned(),
        calls: calls
            .iter()
            .map(|(id, arguments, output)| Call {
                id: (*id).to_owned(),
                name: "f".to_owned(),
                arguments: arguments.clone(),
                output: output.map(str::to_owned),
            })
            .collect(),
    }
}

#[test]
fn instructions_and_leading_developer_messages_are_one_system_turn() {
    // Field case F066.
    let turns = read(json!({"instructions": "A", "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "B"}, {"type": "input_text", "text": "B2"}]},
        {"role": "system", "content": "C"},
        {"role": "user", "content": [{"type": "input_text", "text": "D"}]},
        {"role": "developer", "content": "late"},
        {"role": "user", "content": "E"},
    ]}))
    .unwrap();
    assert_eq!(
        turns,
        [
            Turn::System("A\n\nB\nB2\n\nC".to_owned()),
            Turn::User("D".to_owned()),
            Turn::System("late".to_owned()),
            Turn::User("E".to_owned())
        ]
    );
}

#[test]
fn a_string_is_a_user_message_even_an_empty_one() {
    assert_eq!(
        read(json!({"input": "hi"})).unwrap(),
        [Turn::User("hi".to_owned())]
    );
    // The load probe of `codex --oss`.
    assert_eq!(
        read(json!({"input": ""})).unwrap(),
        [Turn::User(String::new())]
    );
}

#[test]
fn an_empty_reasoning_item_adds_nothing() {
    // Field case F063.
    let turns = turns(&json!([
        {"role": "user", "content": "a"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": null, "encrypted_content": ""},
        {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": [{"type": "output_text", "text": "b", "annotations": []}]},
        {"role": "user", "content": "c"},
    ]));
    assert_eq!(
        turns,
        [
            Turn::User("a".to_owned()),
            said("b"),
            Turn::User("c".to_owned())
        ]
    );
}

#[test]
fn reasoning_belongs_to_the_turn_it_came_before() {
    let reasoning = json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": "short"}], "encrypted_content": null,
        "content": [{"type": "reasoning_text", "text": "why "}, {"type": "reasoning_text", "text": "not"}]});
    let turns = turns(&json!([
        user("a"),
        reasoning,
        assistant("b"),
        call("1", "f", "{}"),
        output("1", "x")
    ]));
    let mut expected = called("b", &[("1", json!({}), Some("x"))]);
    if let Turn::Assistant { reasoning, .. } = &mut expected {
        reasoning.push_str("why not");
    }
    assert_eq!(turns, [Turn::User("a".to_owned()), expected]);
}

#[test]
fn parallel_calls_are_one_turn_and_successive_ones_are_not() {
    let turns = turns(&json!([
        user("a"),
        call("1", "f", "{}"),
        call("2", "f", "{}"),
        output("2", "two"),
        output("1", "one"),
        call("3", "f", "{}"),
        output("3", "three"),
        assistant("b"),
    ]));
    assert_eq!(
        turns[1..],
        [
            called(
                "",
                &[("1", json!({}), Some("one")), ("2", json!({}), Some("two"))]
            ),
            called("", &[("3", json!({}), Some("three"))]),
            said("b")
        ]
    );
}

#[test]
fn text_between_a_call_and_its_result_was_said_with_the_call() {
    let turns = turns(&json!([
        user("a"),
        assistant("x"),
        call("1", "f", "{}"),
        assistant("y"),
        output("1", "one"),
        assistant("z")
    ]));
    assert_eq!(
        turns[1..],
        [called("x\ny", &[("1", json!({}), Some("one"))]), said("z")]
    );
}

#[test]
fn unfinished_calls_and_results_without_a_call_do_not_end_the_conversation() {
    // Field case F070.
    assert_eq!(
        turns(&json!([user("a"), call("x", "f", "{}"), user("b")])),
        [
            Turn::User("a".to_owned()),
            called("", &[("x", json!({}), None)]),
            Turn::User("b".to_owned())
        ]
    );
    assert_eq!(
        turns(
            &json!([user("a"), output("y", "lost"), {"type": "function_call_output", "output": "nameless"}])
        ),
        [
            Turn::User("a".to_owned()),
            Turn::User("Result of an earlier tool call:\nlost".to_owned()),
            Turn::User("Result of an earlier tool call:\nnameless".to_owned())
        ]
    );
    // The same id twice: the first result is the first call's.
    let twice = turns(&json!([
        call("x", "f", "{}"),
        output("x", "1"),
        call("x", "f", "{}"),
        output("x", "2"),
        output("x", "3")
    ]));
    assert_eq!(
        twice,
        [
            called("", &[("x", json!({}), Some("1"))]),
            called("", &[("x", json!({}), Some("2"))]),
            Turn::User("Result of an earlier tool call:\n3".to_owned())
        ]
    );
}

#[test]
fn arguments_that_are_no_json_are_kept() {
    // Field case F025.
    let arguments = |text: &str| match turns(&json!([call("k", "f", text)])).remove(0) {
        Turn::Assistant { mut calls, .. } => calls.remove(0).arguments,
        other => panic!("{other:?}"),
    };
    assert_eq!(arguments(r#"{"path":"src/a"#), json!(r#"{"path":"src/a"#));
    assert_eq!(arguments(""), json!({}));
    assert_eq!(arguments("[1, 2]"), json!([1, 2]));
    assert_eq!(arguments(r#""{\"id\":4}""#), json!({"id": 4}));
    assert_eq!(arguments(r#""plain""#), json!("plain"));
}

#[test]
fn images_are_refused_in_messages_and_noted_in_results() {
    let image = json!({"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="});
    let message = json!({"input": [user("a"), {"role": "user", "content": [{"type": "input_text", "text": "see"}, image]}]});
    let error = read(message).unwrap_err();
    assert_eq!(
        error.to_string(),
        "input[1].content[1]: is an image, but this model reads text only"
    );
    assert_eq!(error.param(), Some("input[1].content[1]"));
    // Field case F085.
    let result = json!([call("v", "f", "{}"), {"type": "function_call_output", "call_id": "v", "output": [
        {"type": "input_text", "text": "Wall time: 1s"}, image, {"type": "strange"},
    ]}]);
    let note = "Wall time: 1s\n[image omitted: this model reads text only]\n[strange omitted: this model reads text only]";
    assert_eq!(
        turns(&result),
        [called("", &[("v", json!({}), Some(note))])]
    );
}

#[test]
fn hosted_items_of_the_history_are_passed_over() {
    let silent = [
        "web_search_call",
        "mcp_call",
        "computer_call_output",
        "image_generation_call",
        "compaction",
    ];
    let mut input: Vec<Value> = silent
        .iter()
        .map(|kind| json!({"type": kind, "id": "x"}))
        .collect();
    input.push(user("a"));
    assert_eq!(turns(&input.into()), [Turn::User("a".to_owned())]);
}

#[test]
fn every_error_names_the_path_what_came_and_what_is_allowed() {
    for (value, message) in [
        (
            json!({}),
            "input: is missing; it must be a string or an array of items",
        ),
        (
            json!({"input": 7}),
            "input: must be a string or an array of items, but the number 7 came",
        ),
        (
            json!({"instructions": [], "input": "a"}),
            "instructions: must be a string, but an array of 0 came",
        ),
        (
            json!({"input": ["a"]}),
            "input[0]: must be an object, but the string \"a\" came",
        ),
        (
            json!({"input": [{"type": "item_reference", "id": "x"}]}),
            "input[0].type: must be \"message\", \"function_call\", \"function_call_output\" or \"reasoning\", but the string \"item_reference\" came",
        ),
        (
            json!({"input": [{"role": "tool", "content": "x"}]}),
            "input[0].role: must be \"user\", \"assistant\", \"system\" or \"developer\", but the string \"tool\" came",
        ),
        (
            json!({"input": [{"role": "user", "content": 1}]}),
            "input[0].content: must be a string or an array of parts, but the number 1 came",
        ),
        (
            json!({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}),
            "input[0].content[0].type: must be \"input_text\", \"output_text\" or \"refusal\", but the string \"input_file\" came",
        ),
        (
            json!({"input": [{"type": "function_call", "name": "f"}]}),
            "input[0].call_id: is missing; it must be a string",
        ),
        (
            json!({"input": [{"type": "function_call", "call_id": "1", "name": 3}]}),
            "input[0].name: must be a string, but the number 3 came",
        ),
    ] {
        assert_eq!(refusal(value), message);
    }
}
