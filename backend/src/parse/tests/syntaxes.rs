//! What models of each family write.

use pretty_assertions::assert_eq;

use super::{
    super::{End, ParserOptions, Segment},
    call, cut_call, options, parse, reasoning, text,
};
use crate::call_syntax::CallSyntax::{self, Hermes, LlamaJson, LlamaPythonic, SmolLm2};

fn answer(syntax: CallSyntax, answer: &str) -> Vec<Segment> {
    parse(options(syntax), answer, End::Stop)
}

fn cut(syntax: CallSyntax, answer: &str) -> Vec<Segment> {
    parse(options(syntax), answer, End::Cut)
}

fn all<const N: usize>(parts: [Vec<Segment>; N]) -> Vec<Segment> {
    parts.concat()
}

#[test]
fn plain_text_is_text_in_every_syntax() {
    for syntax in [Hermes, SmolLm2, LlamaJson, LlamaPythonic] {
        for plain in [
            "zażółć 😀 中文",
            "a < b, <tool, <|python",
            "{\"answer\": 42}",
            "[1, 2, {\"name\": \"light\"",
            "{\"name\": \"nobody\", \"parameters\": {}}",
            "  indented\n",
            "{",
            "[exec_comman",
            "[exec_command('ls')]",
            "{\"name\": \"li",
            "<think",
        ] {
            assert_eq!(answer(syntax, plain), [text(plain)], "{syntax:?}");
        }
    }
}

#[test]
fn white_space_alone_is_no_message() {
    assert_eq!(answer(Hermes, " \n\n "), []);
}

#[test]
fn hermes_calls_come_one_a_pair_of_tags() {
    let two = "<tool_call>\n{\"name\": \"light\", \"arguments\": {\"on\": true}}\n</tool_call>\n\
               <tool_call>\n{\"arguments\": {\"on\": false}, \"name\": \"fan\"}\n</tool_call>";
    assert_eq!(
        answer(Hermes, two),
        all([
            call("light", "{\"on\": true}"),
            call("fan", "{\"on\": false}")
        ])
    );
}

#[test]
fn prose_around_a_call_is_text() {
    let prose = "I look.\n<tool_call>{\"name\": \"g\"}</tool_call>\n\nDone.";
    assert_eq!(
        answer(Hermes, prose),
        all([
            vec![text("I look.\n")],
            call("g", "{}"),
            vec![text("Done.")]
        ])
    );
    let prose = "I look.\n{\"name\": \"g\", \"parameters\": {}}\nDone.";
    assert_eq!(
        answer(LlamaJson, prose),
        all([
            vec![text("I look.\n")],
            call("g", "{}"),
            vec![text("Done.")]
        ])
    );
}

#[test]
fn smollm2_writes_one_list_and_an_empty_one_is_no_call() {
    let two = "<tool_call>[{\"name\": \"light\", \"arguments\": {\"on\": true}}, {\"name\": \"g\", \"arguments\": {}}]</tool_call>";
    assert_eq!(
        answer(SmolLm2, two),
        all([call("light", "{\"on\": true}"), call("g", "{}")])
    );
    assert_eq!(answer(SmolLm2, "<tool_call>[]</tool_call>"), []);
    assert_eq!(
        answer(SmolLm2, "<tool_call>\n[ ]\n</tool_call>Hi"),
        [text("Hi")]
    );
    assert_eq!(answer(SmolLm2, "<tool_call>[]"), []);
}

#[test]
fn either_tag_form_is_read_in_either_syntax() {
    let list = "<tool_call>[{\"name\": \"g\", \"parameters\": {}}]</tool_call>";
    let single = "<tool_call>{\"name\": \"g\", \"parameters\": {}}</tool_call>";
    for syntax in [Hermes, SmolLm2] {
        assert_eq!(answer(syntax, list), call("g", "{}"));
        assert_eq!(answer(syntax, single), call("g", "{}"));
    }
}

#[test]
fn unknown_tools_stay_text_tags_and_all() {
    let unknown = "<tool_call>\n{\"name\": \"rm\", \"arguments\": {\"all\": true}}\n</tool_call>";
    assert_eq!(answer(Hermes, unknown), [text(unknown)]);
    let second =
        "<tool_call>[{\"name\": \"g\", \"arguments\": {}}, {\"name\": \"rm\"}]</tool_call>";
    assert_eq!(
        answer(SmolLm2, second),
        all([
            call("g", "{}"),
            vec![text(", {\"name\": \"rm\"}]</tool_call>")]
        ])
    );
}

#[test]
fn without_tools_nothing_is_a_call() {
    for syntax in [Hermes, SmolLm2, LlamaJson, LlamaPythonic] {
        let none = ParserOptions {
            tools: [].into(),
            ..options(syntax)
        };
        for written in [
            "<tool_call>{\"name\": \"g\"}</tool_call>",
            "{\"name\": \"g\"}",
            "[g()]",
        ] {
            assert_eq!(parse(none.clone(), written, End::Stop), [text(written)]);
        }
    }
}

#[test]
fn llama_json_calls_come_bare_or_behind_the_python_tag() {
    for head in ["", "\u{1}<|python_tag|>\u{2}", "<|python_tag|>", "\n\n"] {
        for name in ["parameters", "arguments"] {
            let written = format!("{head}{{\"name\": \"find\", \"{name}\": {{\"q\": \"x\"}}}}");
            assert_eq!(
                answer(LlamaJson, &written),
                call("find", "{\"q\": \"x\"}"),
                "{written}"
            );
        }
    }
}

#[test]
fn llama_4_marks_both_ends() {
    let json = "{\"name\": \"find\", \"parameters\": {\"q\": \"x\"}}";
    for written in [
        format!("<|python_start|>{json}<|python_end|>"),
        format!("\u{1}<|python_start|>\u{2}{json}\u{1}<|python_end|>\u{2}"),
    ] {
        assert_eq!(answer(LlamaJson, &written), call("find", "{\"q\": \"x\"}"));
    }
    assert_eq!(
        answer(LlamaJson, "<|python_start|>print(1)<|python_end|> so"),
        [text("print(1) so")]
    );
}

#[test]
fn parallel_llama_calls_come_with_any_separator() {
    for separator in [
        "; ",
        ";",
        "\n",
        "",
        ", ",
        " ;\n",
        "\u{1}<|python_tag|>\u{2}",
        "<|python_tag|>",
    ] {
        let written = format!(
            "{{\"name\":\"light\",\"parameters\":{{\"on\":true}}}}{separator}{{\"name\":\"fan\",\"parameters\":{{\"on\":false}}}}"
        );
        assert_eq!(
            answer(LlamaJson, &written),
            all([
                call("light", "{\"on\":true}"),
                call("fan", "{\"on\":false}")
            ]),
            "{separator:?}"
        );
    }
}

#[test]
fn arguments_that_are_a_string_are_parsed_once_and_nothing_becomes_empty() {
    let string = "{\"name\":\"read_note\",\"parameters\":\"{\\\"id\\\":4}\"}";
    assert_eq!(answer(LlamaJson, string), call("read_note", "{\"id\":4}"));
    for (given, kept) in [
        ("[1,2]", "[1,2]"),
        ("\"four\"", "\"four\""),
        ("\"{broken\"", "\"{broken\""),
        ("4", "4"),
        ("null", "{}"),
    ] {
        let written = format!("{{\"name\":\"read_note\",\"parameters\":{given}}}");
        assert_eq!(answer(LlamaJson, &written), call("read_note", kept));
    }
}

#[test]
fn arguments_may_come_before_the_name() {
    for given in ["{\"q\": [\"}\", {}]}", "\"{\\\"q\\\": 1}\""] {
        let written = format!("{{\"parameters\": {given}, \"name\": \"find\"}}");
        let kept = match given.starts_with('"') {
            true => "{\"q\": 1}",
            false => given,
        };
        assert_eq!(answer(LlamaJson, &written), call("find", kept));
    }
}

#[test]
fn keys_that_some_models_add_do_not_matter() {
    let written = "{\"type\": \"function\", \"name\": \"g\", \"parameters\": {}, \"id\": [\"}\"]}";
    assert_eq!(answer(LlamaJson, written), call("g", "{}"));
}

#[test]
fn brackets_inside_strings_end_nothing() {
    let arguments = r#"{"cmd": "echo \"}\" '{' \\", "n": [1, {"x": null}]}"#;
    let written =
        format!("<tool_call>{{\"name\":\"exec_command\",\"arguments\":{arguments}}}</tool_call>");
    assert_eq!(answer(Hermes, &written), call("exec_command", arguments));
}

#[test]
fn beside_json_answers_a_call_needs_its_arguments() {
    let asked = ParserOptions {
        json_answer: true,
        ..options(LlamaJson)
    };
    for answer in [
        "{\"name\": \"g\"}",
        "{\"name\": \"g\", \"title\": \"parameters\"}",
        "{\"title\": \"g\"}",
    ] {
        assert_eq!(parse(asked.clone(), answer, End::Stop), [text(answer)]);
    }
    let called = "{\"name\": \"g\", \"parameters\": {}}";
    assert_eq!(parse(asked, called, End::Stop), call("g", "{}"));
}

#[test]
fn a_bracket_inside_another_opens_no_call() {
    let written = "{\"tools\": [\n{\"name\": \"g\", \"parameters\": {}}\n]}";
    assert_eq!(answer(LlamaJson, written), [text(written)]);
    let left_open = format!("Like this: {{\n\n{}", "{\"name\": \"g\"}");
    assert_eq!(
        answer(LlamaJson, &left_open),
        all([vec![text("Like this: {\n\n")], call("g", "{}")])
    );
}

#[test]
fn a_call_inside_a_code_block_is_an_example() {
    let written = "So:\n```json\n{\"name\": \"g\", \"parameters\": {}}\n```\n";
    assert_eq!(answer(LlamaJson, written), [text(written)]);
    let after = format!("{written}{{\"name\": \"g\", \"parameters\": {{}}}}");
    assert_eq!(
        answer(LlamaJson, &after),
        all([vec![text(written)], call("g", "{}")])
    );
}

#[test]
fn pythonic_calls_become_json() {
    let written =
        "[exec_command(cmd=\"ls -la src\"), exec_command(cmd=\"wc -l a.txt\", tty=False)]";
    let calls = all([
        call("exec_command", "{\"cmd\":\"ls -la src\"}"),
        call("exec_command", "{\"cmd\":\"wc -l a.txt\",\"tty\":false}"),
    ]);
    for head in ["", "\u{1}<|python_tag|>\u{2}", "<|python_start|>"] {
        for syntax in [LlamaJson, LlamaPythonic] {
            assert_eq!(answer(syntax, &format!("{head}{written}")), calls);
        }
    }
    assert_eq!(answer(LlamaPythonic, "[g()]"), call("g", "{}"));
}

#[test]
fn built_in_syntax_calls_declared_tools_only() {
    let written = "\u{1}<|python_tag|>\u{2}brave_search.call(query=\"tokio select\")";
    assert_eq!(
        answer(LlamaJson, written),
        [text("brave_search.call(query=\"tokio select\")")]
    );
    assert_eq!(
        answer(LlamaJson, "\u{1}<|python_tag|>\u{2}find.call(q=\"x\")"),
        call("find", "{\"q\":\"x\"}")
    );
    assert_eq!(
        answer(LlamaJson, "\u{1}<|python_tag|>\u{2}print(1)"),
        [text("print(1)")]
    );
}

#[test]
fn reasoning_comes_apart_from_the_answer() {
    let written = "<think>\nHm, a < b.\n\n</think>\n\nYes.";
    assert_eq!(
        answer(Hermes, written),
        [reasoning("Hm, a < b."), text("Yes.")]
    );
    let opened = ParserOptions {
        thinking: true,
        ..options(Hermes)
    };
    assert_eq!(
        parse(
            opened.clone(),
            "Hm.</think><tool_call>{\"name\":\"g\"}</tool_call>",
            End::Stop
        ),
        all([vec![reasoning("Hm.")], call("g", "{}")])
    );
    assert_eq!(parse(opened, "Hm </thi", End::Cut), [reasoning("Hm </thi")]);
    assert_eq!(
        answer(Hermes, "\u{1}<think>\u{2}Hm.\u{1}</think>\u{2}Yes."),
        [reasoning("Hm."), text("Yes.")]
    );
    assert_eq!(
        answer(Hermes, "I say <think> so"),
        [text("I say <think> so")]
    );
}

#[test]
fn a_tag_that_is_a_control_token_works_and_is_never_shown() {
    let written =
        "\u{1}<tool_call>\u{2}\n{\"name\": \"g\"}\n\u{1}</tool_call>\u{2}\u{1}<|other|>\u{2}";
    assert_eq!(answer(Hermes, written), call("g", "{}"));
    let unknown = "\u{1}<tool_call>\u{2}{\"name\": \"rm\"}\u{1}</tool_call>\u{2}";
    assert_eq!(answer(Hermes, unknown), [text("{\"name\": \"rm\"}")]);
}

#[test]
fn a_cut_call_is_left_open_and_no_bracket_is_made_up() {
    for (syntax, head) in [(Hermes, "<tool_call>"), (LlamaJson, "")] {
        let written = format!("{head}{{\"name\": \"find\", \"arguments\": {{\"q\": \"x");
        assert_eq!(cut(syntax, &written), cut_call("find", "{\"q\": \"x"));
        let mut stopped = cut_call("find", "{\"q\": \"x");
        stopped.push(Segment::CallEnd);
        assert_eq!(answer(syntax, &written), stopped);
    }
    assert_eq!(
        cut(Hermes, "<tool_call>{\"name\": \"find\", "),
        cut_call("find", "")
    );
    assert_eq!(
        cut(LlamaPythonic, "[find(q='x', r=[1, "),
        cut_call("find", "{\"q\":\"x\"")
    );
    assert_eq!(
        cut(Hermes, "<tool_call>{\"name\": \"fi"),
        [text("<tool_call>{\"name\": \"fi")]
    );
}

#[test]
fn a_missing_last_bracket_or_tag_does_not_matter_when_the_model_is_done() {
    assert_eq!(
        answer(LlamaJson, "{\"name\": \"find\", \"parameters\": {\"q\": 1}"),
        call("find", "{\"q\": 1}")
    );
    assert_eq!(
        answer(
            Hermes,
            "<tool_call>{\"name\": \"find\", \"arguments\": {\"q\": 1}}"
        ),
        call("find", "{\"q\": 1}")
    );
}

#[test]
fn what_breaks_off_inside_a_call_ends_it() {
    let written = "{\"name\": \"find\", \"parameters\": {\"q\": 1}! no";
    assert_eq!(
        answer(LlamaJson, written),
        all([call("find", "{\"q\": 1}"), vec![text("! no")]])
    );
}

#[test]
fn a_second_marker_right_after_a_false_one_is_seen() {
    assert_eq!(
        answer(Hermes, "<<tool_call>{\"name\":\"g\"}</tool_call>"),
        all([vec![text("<")], call("g", "{}")])
    );
    assert_eq!(
        answer(Hermes, "<tool_<tool_call>{\"name\":\"g\"}</tool_call>"),
        all([vec![text("<tool_")], call("g", "{}")])
    );
}

#[test]
fn names_are_read_with_their_escapes() {
    let written = "<tool_call>{\"name\": \"\\u017c\\u00f3\\u0142\\u0107\"}</tool_call>";
    assert_eq!(answer(Hermes, written), call("żółć", "{}"));
}
