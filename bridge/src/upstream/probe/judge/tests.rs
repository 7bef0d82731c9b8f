use pretty_assertions::assert_eq;
use serde_json::json;

use super::*;

#[test]
fn a_llama_server_describes_itself() {
    let props = json!({
        "default_generation_settings": {"params": {}, "n_ctx": 4096},
        "model_alias": "",
        "model_path": "/models/tiny.gguf",
        "modalities": {"vision": true, "audio": false},
        "chat_template": "…",
        "chat_template_caps": {"supports_tools": true, "supports_parallel_tool_calls": false},
    });
    assert_eq!(
        from_props(&props).unwrap(),
        Detected {
            kind: UpstreamKind::LlamaCpp,
            model: Some("tiny.gguf".to_owned()),
            context: Some(4096),
            vision: true,
            parallel_calls: false,
            template: TemplateCaps {
                tools: Some(true),
                parallel_tool_calls: Some(false),
                ..TemplateCaps::default()
            },
            models: vec!["tiny.gguf".to_owned()],
        }
    );
}

#[test]
fn without_caps_the_template_text_decides() {
    let with = |template: &str| {
        let props = json!({"default_generation_settings": {"n_ctx": 0}, "chat_template": template});
        from_props(&props).unwrap()
    };
    let single = "raise_exception('This model only supports single tool-calls at once!')";
    assert!(!with(single).parallel_calls);
    assert!(with("{% for call in tool_calls %}").parallel_calls);
    assert_eq!(with("").context, None);
}

#[test]
fn another_server_is_known_by_its_list() {
    let list = json!({"data": [{"id": "m", "max_model_len": 32768, "input_modalities": ["text", "image"]}]});
    let detected = from_models(&list, UpstreamKind::Auto);
    assert_eq!(
        (
            detected.kind,
            detected.model.as_deref(),
            detected.context,
            detected.vision
        ),
        (UpstreamKind::Responses, Some("m"), Some(32768), true)
    );
    let two = json!({"data": [{"id": "a", "context_length": 1}, {"id": "b"}]});
    let detected = from_models(&two, UpstreamKind::Auto);
    assert_eq!((detected.model, detected.context), (None, None));
    assert_eq!(detected.models, ["a", "b"]);
}
