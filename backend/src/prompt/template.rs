//! The model's chat template, run as Hugging Face's `transformers` runs it.

use super::{Conversation, PromptError, Tools, ToolsMode};
use crate::{call_syntax::CallSyntax, tokenizer::Tokenizer};

/// A model's chat template and what is known about its habits. Made once a model; `&self` is all that rendering needs.
#[derive(Debug)]
pub struct Template {}

/// What the owner of the model decides about its prompts.
#[derive(Clone, Debug, Default)]
pub struct TemplateOptions {
    /// How calls are written; `None`: chosen from template and vocabulary.
    pub syntax: Option<CallSyntax>,
    pub tools: ToolsMode,
    /// `26 Jul 2024`, for templates that print the date; `None`: the day this was made. Fixed, so that midnight does not empty the prefix cache.
    pub date: Option<String>,
    /// Tokens of the context and parameters of the model: [`ToolsMode::Auto`] goes by them.
    pub context: usize,
    pub parameters: u64,
}

/// What a single request decides.
#[derive(Clone, Debug, Default)]
pub struct RenderOptions {
    /// `enable_thinking` of templates that know it; `None`: the template's own default.
    pub thinking: Option<bool>,
}

/// The marks around a model's reasoning.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Thinking {
    pub open: &'static str,
    pub close: &'static str,
}

/// A prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    pub tokens: Vec<u32>,
    /// Tokens of instructions and tools at the start: what other conversations share.
    pub stable_prefix: usize,
    /// Tokens at the end that open the assistant's turn; all before them comes back in the next turn's prompt.
    pub generation_prompt: usize,
    pub syntax: CallSyntax,
    /// Tools are in the prompt, in this form; `Off` also when the request has none. Never `Auto`.
    pub tools: ToolsMode,
    /// The prompt ends inside the model's reasoning: output begins with it, without the opening mark.
    pub thinking_open: bool,
}

impl Template {
    /// Compiles `source`, or the built-in template of the vocabulary's family when the model has none.
    pub fn new(source: Option<&str>, tokenizer: &Tokenizer, options: TemplateOptions) -> Result<Template, PromptError> {
        todo!()
    }

    pub fn syntax(&self) -> CallSyntax {
        todo!()
    }

    /// `None`: the model was not taught to reason in the open.
    pub fn thinking(&self) -> Option<Thinking> {
        todo!()
    }

    pub fn render(&self, conversation: &Conversation, tools: &Tools, options: &RenderOptions) -> Result<Rendered, PromptError> {
        todo!()
    }
}
