use serde_json::json;

use super::super::{
    ToolsMode,
    testing::{assistant, call, output, prompt, tool, user},
};

/// A prompt of a conversation without tools.
fn said(name: &str, input: &serde_json::Value) -> String {
    prompt(name, ToolsMode::Off, &json!({"input": input}))
}

#[test]
fn results_follow_their_call_in_the_role_the_model_knows() {
    // Field case F038.
    let input = json!([
        user("temp in Oslo?"),
        call("t1", "temp", "{\"city\":\"Oslo\"}"),
        output("t1", "{\"c\":-3}")
    ]);
    let llama = said("llama31", &input);
    let expected = "⟨start_header_id⟩user⟨end_header_id⟩\n\ntemp in Oslo?⟨eot_id⟩\
        ⟨start_header_id⟩assistant⟨end_header_id⟩\n\n{\"name\": \"temp\", \"parameters\": {\"city\": \"Oslo\"}}⟨eot_id⟩\
        ⟨start_header_id⟩ipython⟨end_header_id⟩\n\n\"{\\\"c\\\":-3}\"⟨eot_id⟩\
        ⟨start_header_id⟩assistant⟨end_header_id⟩\n\n";
    assert!(llama.ends_with(expected), "{llama}");
    let hermes = said("hermes", &input);
    let expected = "⟨im_start⟩assistant\n<tool_call>\n{\"name\": \"temp\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>⟨im_end⟩\n\
        ⟨im_start⟩tool\n<tool_response>\n{\"c\":-3}\n</tool_response>⟨im_end⟩⟨im_start⟩assistant\n";
    assert!(hermes.ends_with(expected), "{hermes}");
    let smollm2 = said("smollm2", &input);
    let expected = "⟨im_start⟩assistant\n<tool_call>[{\"name\": \"temp\", \"arguments\": {\"city\": \"Oslo\"}}]</tool_call>⟨im_end⟩\n\
        ⟨im_start⟩user\n<tool_response>\n{\"c\":-3}\n</tool_response>⟨im_end⟩\n⟨im_start⟩assistant\n";
    assert!(smollm2.ends_with(expected), "{smollm2}");
}

#[test]
fn a_llama_template_without_tools_prints_results_as_ipython_all_the_same() {
    use crate::{
        prompt::{Conversation, RenderOptions, Template, TemplateOptions, Tools, testing},
        tokenizer::testing::with_controls,
    };
    let tokenizer = with_controls(&testing::LLAMA_CONTROLS);
    let template = Template::new(None, &tokenizer, TemplateOptions::default()).unwrap();
    let request = testing::request(
        json!({"input": [user("a"), call("1", "f", "{}"), call("2", "g", "{}"), output("1", "x"), output("2", "y")]}),
    );
    let conversation = Conversation::from_request(&request).unwrap();
    let rendered = template
        .render(&conversation, &Tools::default(), &RenderOptions::default())
        .unwrap();
    assert_eq!(
        testing::spell(&tokenizer, &rendered.tokens),
        "⟨begin_of_text⟩⟨start_header_id⟩user⟨end_header_id⟩\n\na⟨eot_id⟩\
         ⟨start_header_id⟩assistant⟨end_header_id⟩\n\n{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}⟨eot_id⟩\
         ⟨start_header_id⟩ipython⟨end_header_id⟩\n\nx⟨eot_id⟩⟨start_header_id⟩ipython⟨end_header_id⟩\n\ny⟨eot_id⟩\
         ⟨start_header_id⟩assistant⟨end_header_id⟩\n\n"
    );
}

#[test]
fn parallel_calls_are_split_where_the_template_takes_one_a_turn() {
    let input = json!([
        user("a"),
        call("1", "f", "{}"),
        call("2", "g", "{}"),
        output("1", "x"),
        output("2", "y")
    ]);
    let llama = said("llama31", &input);
    let expected = "{\"name\": \"f\", \"parameters\": {}}⟨eot_id⟩⟨start_header_id⟩ipython⟨end_header_id⟩\n\n\"x\"⟨eot_id⟩\
        ⟨start_header_id⟩assistant⟨end_header_id⟩\n\n{\"name\": \"g\", \"parameters\": {}}⟨eot_id⟩⟨start_header_id⟩ipython⟨end_header_id⟩\n\n\"y\"⟨eot_id⟩";
    assert!(llama.contains(expected), "{llama}");
    let hermes = said("hermes", &input);
    let expected = "</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>⟨im_end⟩\n\
        ⟨im_start⟩tool\n<tool_response>\nx\n</tool_response>\n<tool_response>\ny\n</tool_response>⟨im_end⟩";
    assert!(hermes.contains(expected), "{hermes}");
}

#[test]
fn text_with_a_call_is_a_turn_of_its_own_where_the_template_would_lose_it() {
    let input = json!([
        user("a"),
        assistant("let me see"),
        call("1", "f", "{}"),
        output("1", "x")
    ]);
    let llama = said("llama31", &input);
    let expected = "⟨start_header_id⟩assistant⟨end_header_id⟩\n\nlet me see⟨eot_id⟩⟨start_header_id⟩assistant⟨end_header_id⟩\n\n{\"name\": \"f\"";
    assert!(llama.contains(expected), "{llama}");
    let hermes = said("hermes", &input);
    assert!(
        hermes.contains("⟨im_start⟩assistant\nlet me see\n<tool_call>"),
        "{hermes}"
    );
    let smollm2 = said("smollm2", &input);
    assert!(
        smollm2.contains("⟨im_start⟩assistant\nlet me see\n<tool_call>["),
        "{smollm2}"
    );
}

#[test]
fn an_aborted_call_says_so_and_broken_arguments_reach_the_model() {
    // Field cases F070 and F025.
    let input = json!([
        user("go"),
        call("k", "save", "{\"path\":\"src/a"),
        user("retry")
    ]);
    for name in [
        "smollm2", "llama31", "llama32", "hermes", "strict", "thinker",
    ] {
        let text = said(name, &input);
        assert!(text.contains("invalid_arguments"), "{name}: {text}");
        assert!(text.contains("{\\\"path\\\":\\\"src/a"), "{name}: {text}");
        assert!(
            text.contains("[no result: the call was aborted]"),
            "{name}: {text}"
        );
        assert!(text.find("aborted") < text.find("retry"), "{name}: {text}");
    }
}

#[test]
fn environment_and_question_both_reach_the_model_in_order() {
    // Field case F068.
    let input = json!([user("<env>cwd=proj</env>"), user("Hi")]);
    for name in [
        "smollm2", "llama31", "llama32", "hermes", "strict", "thinker",
    ] {
        let text = said(name, &input);
        let (env, hi) = (
            text.find("<env>cwd=proj</env>").unwrap(),
            text.find("Hi").unwrap(),
        );
        assert!(env < hi, "{name}: {text}");
    }
    assert!(said("strict", &input).contains("⟨im_start⟩user\n<env>cwd=proj</env>\n\nHi⟨im_end⟩"));
}

#[test]
fn instructions_and_developer_messages_are_one_system_block() {
    // Field case F066.
    let request = json!({"instructions": "A", "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "B"}]}, user("C"),
    ]});
    let text = prompt("smollm2", ToolsMode::Off, &request);
    assert_eq!(
        text,
        "⟨im_start⟩system\nA\n\nB⟨im_end⟩\n⟨im_start⟩user\nC⟨im_end⟩\n⟨im_start⟩assistant\n"
    );
    let text = prompt("llama31", ToolsMode::Off, &request);
    assert_eq!(text.matches("⟨start_header_id⟩system").count(), 1);
    assert!(
        text.contains("A\n\nB⟨eot_id⟩⟨start_header_id⟩user⟨end_header_id⟩\n\nC⟨eot_id⟩"),
        "{text}"
    );
}

#[test]
fn late_system_messages_stay_in_place_or_become_user_text_where_the_template_refuses_them() {
    let input =
        json!([user("a"), assistant("b"), {"role": "developer", "content": "be brief"}, user("c")]);
    assert!(said("llama31", &input).contains(
        "⟨eot_id⟩⟨start_header_id⟩system⟨end_header_id⟩\n\nbe brief⟨eot_id⟩⟨start_header_id⟩user"
    ));
    assert!(said("strict", &input).contains("⟨im_start⟩user\nbe brief\n\nc⟨im_end⟩"));
}

#[test]
fn reasoning_is_rendered_only_where_the_template_knows_it() {
    // Field case F079: what the template keeps, it keeps in the same place.
    let reasoning = json!({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "because"}]});
    let input = json!([user("a"), reasoning, call("1", "f", "{}"), output("1", "x")]);
    assert!(
        said("thinker", &input)
            .contains("⟨im_start⟩assistant\n<think>\nbecause\n</think>\n\n<tool_call>")
    );
    for name in ["smollm2", "llama31", "hermes"] {
        assert!(!said(name, &input).contains("because"), "{name}");
    }
}

#[test]
fn tools_are_described_in_the_system_turn() {
    let request = json!({"instructions": "Be good.", "input": "Qqq", "tools": [tool("weather")]});
    for (name, end) in [
        ("smollm2", "⟨im_end⟩"),
        ("llama31", "⟨eot_id⟩"),
        ("hermes", "⟨im_end⟩"),
        ("strict", "Qqq"),
    ] {
        for mode in [ToolsMode::Full, ToolsMode::Compact] {
            let text = prompt(name, mode, &request);
            let system = text.split(end).next().unwrap();
            assert!(
                system.contains("Be good.")
                    && system.contains("weather")
                    && system.contains("only when the task needs it"),
                "{name} {mode:?}: {text}"
            );
            assert_eq!(
                system.contains("weather(city: string, days?: integer) - Looks."),
                mode == ToolsMode::Compact,
                "{name}: {text}"
            );
            assert_eq!(text.matches("weather").count(), 1, "{name}: {text}");
        }
        assert!(!prompt(name, ToolsMode::Off, &request).contains("weather"));
    }
    // Llama 3.1 prints a preface for an empty list; it is given none.
    assert!(
        !prompt(
            "llama31",
            ToolsMode::Full,
            &json!({"input": "hi", "tools": []})
        )
        .contains("Environment")
    );
}
