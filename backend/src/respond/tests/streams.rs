//! Event streams of the kinds of answers there are.

use std::sync::atomic::Ordering;

use pretty_assertions::assert_eq;
use protocol::tool::GRAMMAR_FIELD;
use serde_json::json;

use super::Case;
use crate::{
    call_syntax::CallSyntax::{Hermes, LlamaJson, SmolLm2},
    engine::{
        constraint::ConstraintError,
        request::{Finish, Output, Usage},
    },
    testing::events::{joined, lines, response},
};

#[tokio::test]
async fn a_plain_answer_streams_token_by_token() {
    let events = Case::answered("Hey", Hermes).events().await;
    assert_eq!(
        lines(&events),
        [
            "created",
            "in_progress",
            "output_item.added 0 type=message status=in_progress",
            "content_part.added 0 output_text \"\"",
            "output_text.delta 0 \"H\"",
            "output_text.delta 0 \"e\"",
            "output_text.delta 0 \"y\"",
            "output_text.done 0 \"Hey\"",
            "content_part.done 0 output_text \"Hey\"",
            "output_item.done 0 type=message status=completed phase=final_answer",
            "completed",
        ]
    );
    assert_eq!(
        response(&events)["usage"],
        json!({
            "input_tokens": 30, "input_tokens_details": {"cached_tokens": 16, "cache_write_tokens": 0},
            "output_tokens": 12, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 42,
        })
    );
    assert_eq!(response(&events)["completed_at"], 1_700_000_000);
}

#[tokio::test]
async fn text_before_a_call_is_commentary_and_arguments_stream() {
    let answer = "Look.\n{\"name\": \"find\", \"parameters\": {\"q\": 1}}\nDone.";
    let events = Case::answered(answer, LlamaJson).events().await;
    assert_eq!(
        joined(&events)[2..],
        [
            "output_item.added 0 type=message status=in_progress",
            "content_part.added 0 output_text \"\"",
            "output_text.delta 0 \"Look.\\n\"",
            "output_text.done 0 \"Look.\\n\"",
            "content_part.done 0 output_text \"Look.\\n\"",
            "output_item.done 0 type=message status=completed phase=commentary",
            "output_item.added 1 type=function_call status=in_progress name=find arguments=",
            "function_call_arguments.delta 1 \"{\\\"q\\\": 1}\"",
            "function_call_arguments.done 1 \"{\\\"q\\\": 1}\"",
            "output_item.done 1 type=function_call status=completed name=find arguments={\"q\": 1}",
            "output_item.added 2 type=message status=in_progress",
            "content_part.added 2 output_text \"\"",
            "output_text.delta 2 \"Done.\"",
            "output_text.done 2 \"Done.\"",
            "content_part.done 2 output_text \"Done.\"",
            "output_item.done 2 type=message status=completed phase=final_answer",
            "completed",
        ]
    );
    let deltas = events
        .iter()
        .filter(|event| event["type"] == "response.function_call_arguments.delta");
    assert_eq!(deltas.count(), "{\"q\": 1}".len());
}

#[tokio::test]
async fn parallel_calls_have_ids_of_their_own() {
    let answer = "<tool_call>[{\"name\": \"g\", \"arguments\": {}}, {\"name\": \"fan\", \"arguments\": {\"on\": true}}]</tool_call>";
    let events = Case::answered(answer, SmolLm2).events().await;
    let output = response(&events)["output"].as_array().unwrap();
    assert_eq!(output.len(), 2);
    assert_eq!(output[0]["arguments"], "{}");
    assert_eq!(output[1]["arguments"], "{\"on\": true}");
    assert_ne!(output[0]["call_id"], output[1]["call_id"]);
    assert_ne!(output[0]["id"], output[1]["id"]);
    assert!(output[0]["call_id"].as_str().unwrap().starts_with("call_"));
    assert!(output[0]["id"].as_str().unwrap().starts_with("fc_"));
}

#[tokio::test]
async fn reasoning_is_an_item_of_its_own_and_counted() {
    let events = Case::answered("<think>Hm.</think>Yes", Hermes)
        .events()
        .await;
    assert_eq!(
        joined(&events)[2..],
        [
            "output_item.added 0 type=reasoning status=in_progress",
            "content_part.added 0 reasoning_text \"\"",
            "reasoning_text.delta 0 \"Hm.\"",
            "reasoning_text.done 0 \"Hm.\"",
            "content_part.done 0 reasoning_text \"Hm.\"",
            "output_item.done 0 type=reasoning status=completed",
            "output_item.added 1 type=message status=in_progress",
            "content_part.added 1 output_text \"\"",
            "output_text.delta 1 \"Yes\"",
            "output_text.done 1 \"Yes\"",
            "content_part.done 1 output_text \"Yes\"",
            "output_item.done 1 type=message status=completed phase=final_answer",
            "completed",
        ]
    );
    // `>` of the opening mark, `Hm.` and the closing mark: what came while the model was thinking.
    assert_eq!(
        response(&events)["usage"]["output_tokens_details"]["reasoning_tokens"],
        "Hm.</think>".len() + 1
    );
    assert_eq!(
        response(&events)["output"][0]["content"],
        json!([{"type": "reasoning_text", "text": "Hm."}])
    );
}

#[tokio::test]
async fn a_limit_leaves_the_open_item_incomplete() {
    let case = Case::new(json!({"max_output_tokens": 5}), Hermes);
    let events = case.says("Hello").ends(Finish::Length).events().await;
    assert_eq!(events.last().unwrap()["type"], "response.incomplete");
    assert_eq!(
        response(&events)["incomplete_details"],
        json!({"reason": "max_output_tokens"})
    );
    assert_eq!(response(&events)["output"][0]["status"], "incomplete");
    assert_eq!(
        response(&events)["output"][0]["content"][0]["text"],
        "Hello"
    );
    assert_eq!(response(&events)["max_output_tokens"], 5);

    let case = Case::new(json!({}), LlamaJson);
    let cut = "Hm.\n{\"name\": \"find\", \"parameters\": {\"q\": \"x";
    let events = case.says(cut).ends(Finish::Length).events().await;
    let call = &response(&events)["output"][1];
    assert_eq!(call["status"], "incomplete");
    assert_eq!(call["arguments"], "{\"q\": \"x");
    assert!(
        !events
            .iter()
            .any(|event| event["type"] == "response.function_call_arguments.done")
    );
}

#[tokio::test]
async fn prefill_shows_as_signs_of_life() {
    let progress = |done| Output::Progress {
        cached: 16,
        done,
        total: 30,
    };
    let events = Case::new(json!({}), Hermes)
        .gives(progress(20))
        .gives(progress(30))
        .says("Ok")
        .ends(Finish::Stop(None))
        .events()
        .await;
    assert_eq!(
        lines(&events)[..4],
        [
            "created",
            "in_progress",
            "in_progress {\"total\":30,\"cache\":16,\"processed\":20}",
            "in_progress {\"total\":30,\"cache\":16,\"processed\":30}",
        ]
    );
}

#[tokio::test]
async fn an_empty_answer_has_no_items() {
    let events = Case::answered("\n", Hermes).events().await;
    assert_eq!(lines(&events), ["created", "in_progress", "completed"]);
    assert_eq!(response(&events)["output"], json!([]));
}

#[tokio::test]
async fn failures_end_the_stream_with_a_code_that_says_whether_to_repeat() {
    for (reason, code) in [
        // The code goes by what failed, not by how it is told.
        (
            Finish::Device("grammar: it broke".to_owned()),
            "server_error",
        ),
        (
            Finish::Constraint(ConstraintError("too long".to_owned())),
            "invalid_prompt",
        ),
        (Finish::Stopped, "server_error"),
    ] {
        let events = Case::new(json!({}), Hermes)
            .says("<think>a</think>Half")
            .ends(reason)
            .events()
            .await;
        assert_eq!(events.last().unwrap()["type"], "response.failed");
        assert_eq!(response(&events)["error"]["code"], code);
        // The half message is in no history.
        assert_eq!(response(&events)["output"].as_array().unwrap().len(), 1);
    }
    let mut silent = Case::new(json!({}), Hermes);
    silent.closed = true;
    let events = silent.events().await;
    assert_eq!(
        response(&events)["error"]["message"],
        "the engine ended without a word"
    );
}

#[tokio::test]
async fn a_stop_string_ends_the_text_and_the_generation() {
    let case = Case::new(json!({"stop": ["Obs:", "zzz"]}), Hermes).says("One\nObs: two");
    let (responding, counters, dropped) = case.start();
    let response = responding.collect().await;
    assert_eq!(response["output"][0]["content"][0]["text"], "One\n");
    assert_eq!(response["status"], "completed");
    assert_eq!(response["usage"]["output_tokens"], "One\nObs:".len());
    assert!(dropped.load(Ordering::Acquire));
    assert_eq!(counters.completed.load(Ordering::Relaxed), 1);
    assert_eq!(counters.cancelled.load(Ordering::Relaxed), 0);

    let call = "{\"name\": \"find\", \"parameters\": {\"q\": \"Obs:\"}}";
    let case = Case::new(json!({"stop": "Obs:"}), LlamaJson);
    let events = case.says(call).ends(Finish::Stop(None)).events().await;
    assert_eq!(
        crate::testing::events::response(&events)["output"][0]["arguments"],
        "{\"q\": \"Obs:\"}"
    );
}

#[tokio::test]
async fn without_parallel_calls_the_first_is_the_last() {
    let two = "{\"name\":\"light\",\"parameters\":{\"on\":true}}{\"name\":\"fan\",\"parameters\":{\"on\":false}}";
    let case = Case::new(json!({"parallel_tool_calls": false}), LlamaJson).says(two);
    let (responding, counters, dropped) = case.start();
    let response = responding.collect().await;
    assert_eq!(response["output"].as_array().unwrap().len(), 1);
    assert_eq!(response["output"][0]["arguments"], "{\"on\":true}");
    assert!(dropped.load(Ordering::Acquire));
    assert_eq!(counters.calls.load(Ordering::Relaxed), 1);

    let both = Case::answered(two, LlamaJson).events().await;
    assert_eq!(
        crate::testing::events::response(&both)["output"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[tokio::test]
async fn logprobs_come_with_the_text_they_belong_to() {
    let request =
        json!({"include": ["message.output_text.logprobs"], "top_logprobs": 2, "stop": ["!?"]});
    let case = Case::new(request, Hermes).says("<think>no</think>aé!");
    let events = case.ends(Finish::Stop(None)).events().await;
    let of = |kind: &str| -> Vec<Vec<String>> {
        let entries = events.iter().filter(|event| event["type"] == kind);
        let names = entries.map(|event| {
            let list = event["logprobs"].as_array().unwrap();
            list.iter()
                .map(|entry| entry["bytes"].to_string())
                .collect()
        });
        names.collect()
    };
    assert_eq!(
        of("response.output_text.delta"),
        [vec!["[97]"], vec!["[195]", "[169]"], vec!["[33]"]]
    );
    assert_eq!(
        of("response.output_text.done"),
        [["[97]", "[195]", "[169]", "[33]"]]
    );
    let part = &response(&events)["output"][1]["content"][0]["logprobs"][0];
    assert_eq!(
        part,
        &json!({"token": "a", "bytes": [97], "logprob": -0.5, "top_logprobs": [
            {"token": "a", "bytes": [97], "logprob": -0.5},
            {"token": "<|im_end|>", "bytes": [], "logprob": -9999.0},
        ]})
    );
}

#[tokio::test]
async fn characters_are_never_cut() {
    let text = "zażółć 😀 中文";
    let events = Case::answered(text, Hermes).events().await;
    let deltas = events
        .iter()
        .filter_map(|event| event.get("delta")?.as_str());
    assert!(deltas.clone().all(|delta| !delta.contains('\u{fffd}')));
    assert_eq!(deltas.collect::<String>(), text);

    let mut outputs = super::tokens("a😀");
    let Output::Tokens(list) = &mut outputs[0] else {
        unreachable!()
    };
    list.truncate(3);
    let case = Case::new(json!({}), Hermes).gives(outputs.remove(0));
    let events = case.ends(Finish::Length).events().await;
    assert_eq!(response(&events)["output"][0]["content"][0]["text"], "a");
}

#[tokio::test]
async fn control_tokens_are_hidden_and_mark_calls() {
    let answer =
        "\u{1}<|python_tag|>\u{2}{\"name\": \"g\", \"parameters\": {}}\u{1}<|eom_id|>\u{2}";
    let events = Case::answered(answer, LlamaJson).events().await;
    assert_eq!(response(&events)["output"].as_array().unwrap().len(), 1);
    assert_eq!(response(&events)["output"][0]["name"], "g");
}

#[tokio::test]
async fn dropping_a_response_lets_the_generation_go() {
    let (mut responding, counters, dropped) = Case::new(json!({}), Hermes).says("Hel").start();
    for _ in 0..5 {
        responding.next().await.unwrap();
    }
    assert!(!dropped.load(Ordering::Acquire));
    drop(responding);
    assert!(dropped.load(Ordering::Acquire));
    assert_eq!(counters.cancelled.load(Ordering::Relaxed), 1);
    assert_eq!(counters.completed.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_finished_call_is_looked_at_and_a_cut_one_is_not() {
    let (seen, calls) = std::sync::mpsc::channel();
    let written = "{\"name\": \"find\", \"parameters\": {\"q\": 1}}; {\"name\": \"find\", \"parameters\": {\"q";
    let mut case = Case::new(json!({}), LlamaJson)
        .says(written)
        .ends(Finish::Length);
    case.check = Some(Box::new(move |name, arguments| {
        seen.send((name.to_owned(), arguments.to_owned())).unwrap();
    }));
    case.events().await;
    let calls: Vec<_> = calls.iter().collect();
    assert_eq!(calls, [("find".to_owned(), "{\"q\": 1}".to_owned())]);
}

#[tokio::test]
async fn where_no_call_can_come_the_phase_is_there_from_the_start() {
    let mut case = Case::answered("Hi", Hermes);
    case.only_answers = true;
    let events = case.events().await;
    assert_eq!(
        lines(&events)[2],
        "output_item.added 0 type=message status=in_progress phase=final_answer"
    );
}

#[tokio::test]
async fn messages_before_a_call_are_commentary_and_the_last_is_the_answer() {
    let mut case = Case::new(json!({}), Hermes);
    case.thinking = true;
    let events = case
        .says("a</think>One <tool_call>{\"name\":\"g\"}</tool_call>Two")
        .ends(Finish::Stop(None))
        .events()
        .await;
    let phases: Vec<_> = response(&events)["output"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["phase"].as_str())
        .collect();
    assert_eq!(
        phases,
        [None, Some("commentary"), None, Some("final_answer")]
    );
}

#[tokio::test]
async fn the_resource_shows_what_is_in_force() {
    let request = json!({
        "temperature": null, "top_p": 0.25, "truncation": "auto", "metadata": {"k": "v"}, "text": {"verbosity": "low"},
        "tools": [{"type": "function", "name": "g", GRAMMAR_FIELD: {"type": "grammar"}}], "tool_choice": {"type": "function", "name": "g"},
    });
    let case = Case::new(request, Hermes).gives(Output::Finished {
        reason: Finish::Stop(None),
        usage: Usage::default(),
    });
    let events = case.events().await;
    let response = &events[0]["response"];
    for (key, expected) in [
        ("temperature", json!(0.6)),
        ("top_p", json!(0.25)),
        ("presence_penalty", json!(0.0)),
        ("truncation", json!("auto")),
        ("metadata", json!({"k": "v"})),
        (
            "text",
            json!({"verbosity": "low", "format": {"type": "text"}}),
        ),
        ("tools", json!([{"type": "function", "name": "g"}])),
        ("tool_choice", json!({"type": "function", "name": "g"})),
        ("model", json!("served")),
        ("created_at", json!(1_700_000_000)),
        ("status", json!("in_progress")),
        ("output", json!([])),
        ("usage", json!(null)),
        ("reasoning", json!(null)),
    ] {
        assert_eq!(response[key], expected, "{key}");
    }
}

#[tokio::test]
async fn text_in_a_loop_is_ended_as_if_the_model_had() {
    let says = format!("Well. {}", "I am here to help. ".repeat(100));
    let case = || Case::new(json!({"model": "m"}), SmolLm2).says(&says);
    let (responding, counters, dropped) = case().start();
    let answer = responding.collect().await;
    assert_eq!(answer["status"], "completed");
    assert_eq!(answer["output"][0]["phase"], "final_answer");
    let text = answer["output"][0]["content"][0]["text"].as_str().unwrap();
    assert!(
        says.starts_with(text) && (500..600).contains(&text.len()),
        "{text}"
    );
    assert_eq!(answer["usage"]["output_tokens"], text.len());
    // Nobody computes what is not wanted.
    assert!(dropped.load(Ordering::Acquire));
    assert_eq!(counters.completed.load(Ordering::Relaxed), 1);
    assert_eq!(counters.looped.load(Ordering::Relaxed), 1);
    case().events().await;
}

#[tokio::test]
async fn a_loop_goes_on_where_the_client_has_a_limit_inside_a_call_and_where_that_is_off() {
    let says = "na ".repeat(400);
    let limited = Case::new(json!({"model": "m", "max_output_tokens": 1200}), SmolLm2);
    let events = limited.says(&says).ends(Finish::Length).events().await;
    assert_eq!(response(&events)["status"], "incomplete");
    assert_eq!(response(&events)["output"][0]["content"][0]["text"], says);

    let call = format!(
        "<tool_call>[{{\"name\": \"g\", \"arguments\": {{\"x\": \"{says}\"}}}}]</tool_call>"
    );
    let events = Case::answered(&call, SmolLm2).events().await;
    let arguments = json!({"x": says}).to_string();
    let given: serde_json::Value = serde_json::from_str(
        response(&events)["output"][0]["arguments"]
            .as_str()
            .unwrap(),
    )
    .unwrap();
    assert_eq!(given.to_string(), arguments);

    let mut case = Case::answered(&says, SmolLm2);
    case.end_loops = false;
    let (responding, counters, _) = case.start();
    let answer = responding.collect().await;
    assert_eq!(answer["output"][0]["content"][0]["text"], says);
    assert_eq!(counters.looped.load(Ordering::Relaxed), 0);
}
