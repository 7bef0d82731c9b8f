//! Our own chat templates, in the two shapes of tool call that llama.cpp recognises by rendering them.

/// How a scripted model writes thinking and calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `<think>…</think>`, and `<tool_call>{"name": …, "arguments": …}</tool_call>`, several in a row.
    Hermes,
    /// One bare `{"name": …, "parameters": …}`.
    Llama31,
}

impl Format {
    pub(super) fn template(self, answers: usize) -> String {
        let text = match self {
            Self::Hermes => include_str!("../../templates/hermes.jinja"),
            Self::Llama31 => include_str!("../../templates/llama31.jinja"),
        };
        text.replace("LAST_ANSWER", &(answers - 1).to_string())
    }
}

/// The last token of a prompt: which answer is due.
pub(super) fn marker(answer: usize) -> String {
    format!("<|answer_{answer}|>")
}
