//! How a family of models writes a tool call. Prompt, grammar and parser must agree on it, so they all read it here.
//!
//! Sources: model cards of Llama 3.1 and 3.2 (`meta-llama/llama-models`, `text_prompt_format.md`), SmolLM2-1.7B-Instruct, Hermes 2 Pro.

/// How calls are written.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum CallSyntax {
    /// `{"name": "f", "parameters": {…}}`, several separated by `; `, sometimes after `<|python_tag|>`: Llama 3.1 and later.
    LlamaJson,
    /// `[f(a='x', b=1), g()]`: the model cards of Llama 3.2. Read when it comes, never forced.
    LlamaPythonic,
    /// `<tool_call>\n{"name": "f", "arguments": {…}}\n</tool_call>`, one pair of tags a call: Hermes, Qwen.
    Hermes,
    /// `<tool_call>[{"name": "f", "arguments": {…}}, …]</tool_call>`, one list for all calls: SmolLM2.
    SmolLm2,
}

impl CallSyntax {
    /// The text that can only be the start of a call, if the syntax has one.
    pub fn marker(self) -> Option<&'static str> {
        match self {
            CallSyntax::LlamaJson | CallSyntax::LlamaPythonic => None,
            CallSyntax::Hermes | CallSyntax::SmolLm2 => Some("<tool_call>"),
        }
    }

    /// The key of a call's arguments.
    pub fn arguments_key(self) -> &'static str {
        match self {
            CallSyntax::LlamaJson | CallSyntax::LlamaPythonic => "parameters",
            CallSyntax::Hermes | CallSyntax::SmolLm2 => "arguments",
        }
    }
}
