//! What an upstream's answers say about it: `/props` of llama-server, the model list of any other.

use serde_json::Value;

use crate::config::UpstreamKind;

/// An upstream that answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detected {
    /// Never `Auto`.
    pub kind: UpstreamKind,
    /// The model served, where there is just one.
    pub model: Option<String>,
    /// Tokens of one sequence as the server runs it, not as the model was trained.
    pub context: Option<u64>,
    pub vision: bool,
    /// The chat template takes more than one call in a turn of the history.
    pub parallel_calls: bool,
    pub template: TemplateCaps,
    /// Every id of the model list; empty where the list was not asked for.
    pub models: Vec<String>,
}

impl Detected {
    /// What comes of a llama-server that does not tell its window, for people.
    pub fn hides_its_window(&self) -> Option<&'static str> {
        let is_hidden = self.kind == UpstreamKind::LlamaCpp && self.context.is_none();
        is_hidden.then_some(
            "the llama.cpp server does not tell its context window: an answer that fills it will look complete, and Codex has to be told the window \
             (codex-bridge --init DIR --context TOKENS)",
        )
    }
}

/// llama-server's `chat_template_caps`; `None` where a build does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TemplateCaps {
    pub tools: Option<bool>,
    pub tool_calls: Option<bool>,
    pub parallel_tool_calls: Option<bool>,
    pub system_role: Option<bool>,
    pub preserve_reasoning: Option<bool>,
}

/// From llama-server's `/props`; `None` when this is no answer of llama-server.
pub(super) fn from_props(props: &Value) -> Option<Detected> {
    let settings = props.get("default_generation_settings")?;
    let caps = &props["chat_template_caps"];
    let cap = |name: &str| caps[name].as_bool();
    let template = TemplateCaps {
        tools: cap("supports_tools"),
        tool_calls: cap("supports_tool_calls"),
        parallel_tool_calls: cap("supports_parallel_tool_calls"),
        system_role: cap("supports_system_role"),
        preserve_reasoning: cap("supports_preserve_reasoning"),
    };
    let model = model_name(props);
    Some(Detected {
        kind: UpstreamKind::LlamaCpp,
        models: model.iter().cloned().collect(),
        model,
        // A router that has no model loaded says 0.
        context: settings["n_ctx"].as_u64().filter(|tokens| *tokens > 0),
        vision: props["modalities"]["vision"].as_bool().unwrap_or(false),
        parallel_calls: template
            .parallel_tool_calls
            .unwrap_or_else(|| !refuses_parallel_calls(&props["chat_template"])),
        template,
    })
}

/// Llama 3's templates raise "This model only supports single tool-calls at once!".
fn refuses_parallel_calls(template: &Value) -> bool {
    template
        .as_str()
        .is_some_and(|text| text.contains("single tool-calls"))
}

/// The alias, else the file without folder, as llama-server names it in its list.
fn model_name(props: &Value) -> Option<String> {
    let text = |key: &str| props[key].as_str().filter(|name| !name.is_empty());
    text("model_alias")
        .or_else(|| text("model_path")?.rsplit(['/', '\\']).next())
        .map(str::to_owned)
}

/// From a model list, for a server that has no more to say.
pub(super) fn from_models(list: &Value, configured: UpstreamKind) -> Detected {
    let entries = list["data"].as_array().map_or(&[][..], Vec::as_slice);
    let models: Vec<String> = entries
        .iter()
        .filter_map(|entry| entry["id"].as_str())
        .map(str::to_owned)
        .collect();
    let only = match entries {
        [only] => Some(only),
        _ => None,
    };
    Detected {
        kind: match configured {
            UpstreamKind::Auto => UpstreamKind::Responses,
            kind => kind,
        },
        model: only.and(models.first().cloned()),
        context: only.and_then(context_of),
        vision: only.is_some_and(sees),
        // A server that is trusted in everything is trusted in this.
        parallel_calls: true,
        template: TemplateCaps::default(),
        models,
    }
}

/// The running window of a model list's entry: llama-server's spelling, then vLLM's and others'.
pub fn context_of(entry: &Value) -> Option<u64> {
    [
        &entry["meta"]["n_ctx"],
        &entry["max_model_len"],
        &entry["context_length"],
        &entry["context_window"],
    ]
    .into_iter()
    .find_map(Value::as_u64)
    .filter(|tokens| *tokens > 0)
}

/// The entry says that it takes images.
pub fn sees(entry: &Value) -> bool {
    let modalities = [
        &entry["architecture"]["input_modalities"],
        &entry["input_modalities"],
    ];
    modalities
        .into_iter()
        .filter_map(Value::as_array)
        .flatten()
        .any(|modality| modality == "image")
}

#[cfg(test)]
mod tests;
