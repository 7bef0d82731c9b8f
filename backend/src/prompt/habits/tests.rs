use super::*;
use crate::{
    prompt::testing::{SMOLLM2, template},
    prompt::{Template, TemplateOptions, ToolsMode},
    tokenizer::testing::bytes_only,
};

fn habits(name: &str) -> Habits {
    template(name, ToolsMode::Full).0.habits().clone()
}

#[test]
fn templates_show_what_they_can_say() {
    let permissive = Habits {
        system: true,
        late_system: true,
        consecutive_users: true,
        consecutive_assistants: true,
        tools: false,
        calls: None,
        result_role: None,
        parallel_calls: false,
        text_with_calls: false,
        reasoning: false,
        opening: Some("<|im_start|>assistant\n".to_owned()),
    };
    assert_eq!(habits("smollm2"), permissive);
    let llama = Habits {
        tools: true,
        calls: Some(Arguments::Object),
        result_role: Some("tool"),
        opening: Some("<|start_header_id|>assistant<|end_header_id|>\n\n".to_owned()),
        ..permissive
    };
    assert_eq!(habits("llama31"), llama);
    assert_eq!(habits("llama32"), llama);
    let hermes = Habits {
        tools: true,
        calls: Some(Arguments::Object),
        result_role: Some("tool"),
        parallel_calls: true,
        text_with_calls: true,
        ..permissive.clone()
    };
    assert_eq!(habits("hermes"), hermes);
    let strict = Habits {
        late_system: false,
        consecutive_users: false,
        consecutive_assistants: false,
        ..permissive.clone()
    };
    assert_eq!(habits("strict"), strict);
    let thinker = Habits {
        calls: Some(Arguments::Object),
        result_role: Some("tool"),
        parallel_calls: true,
        text_with_calls: true,
        reasoning: true,
        opening: Some("<|im_start|>assistant\n<think>\n".to_owned()),
        ..permissive
    };
    assert_eq!(habits("thinker"), thinker);
}

#[test]
fn a_template_that_wants_arguments_as_text_gets_text() {
    let source = SMOLLM2.replace(
        "+ m['content'] +",
        "+ m['content'] + ('<tool_call>{\"name\": \"' + \
         m.tool_calls[0].function.name + '\", \"arguments\": ' + m.tool_calls[0].function.arguments if m.tool_calls else '') +",
    );
    let template = Template::new(Some(&source), &bytes_only(), TemplateOptions::default()).unwrap();
    assert_eq!(template.habits().calls, Some(Arguments::Text));
}

#[test]
fn a_template_that_writes_calls_in_another_syntax_is_not_asked_to() {
    let (_, source, tokenizer) = crate::prompt::testing::shapes().remove(3);
    for (syntax, native) in [
        (CallSyntax::Hermes, true),
        (CallSyntax::SmolLm2, false),
        (CallSyntax::LlamaJson, false),
        (CallSyntax::LlamaPythonic, false),
    ] {
        let options = TemplateOptions {
            syntax: Some(syntax),
            ..TemplateOptions::default()
        };
        let template = Template::new(Some(&source), &tokenizer, options).unwrap();
        assert_eq!(
            (template.habits().calls.is_some(), template.habits().tools),
            (native, native),
            "{syntax:?}"
        );
        // The template's own tools are only those it can call.
        assert_eq!(template.habits().result_role, Some("tool"));
    }
}

#[test]
fn a_template_that_prints_no_user_text_is_refused() {
    let refusal = |source: &str| {
        Template::new(Some(source), &bytes_only(), TemplateOptions::default())
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refusal("hello"),
        "chat template: does not print the text of a user message"
    );
    assert_eq!(
        refusal("{{ raise_exception('never') }}"),
        "chat template: never (line 1)"
    );
    assert!(refusal("{% for %}").starts_with("chat template: "));
}
