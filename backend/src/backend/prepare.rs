//! From a request to what the engine is given: checked, rendered, constrained. Everything that can be wrong with a request is found here.

use protocol::{Object, error};
use serde_json::Value;

use super::error::{Refusal, RespondError};
use crate::{
    engine::request::{GenerateRequest, SubmitError},
    grammar::{Choice, GrammarError, Grammars, Relaxed, TextFormat, ToolSet},
    parse::ParserOptions,
    prompt::{
        Conversation, PromptError, RenderOptions, Rendered, Template, Tools, ToolsMode, Turn,
    },
    respond::request::{self, Settings},
    sample::SamplingParams,
    tokenizer::Tokenizer,
};

/// What preparing a request takes; one a backend.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) tokenizer: Tokenizer,
    pub(super) template: Template,
    pub(super) grammars: Grammars,
    pub(super) defaults: SamplingParams,
    pub(super) tools: ToolsMode,
    /// Tokens of the window.
    pub(super) context: usize,
}

/// A request, ready for the engine.
pub(super) struct Prepared {
    pub(super) settings: Settings,
    pub(super) generate: GenerateRequest,
    pub(super) parser: ParserOptions,
    pub(super) only_answers: bool,
    pub(super) tools: ToolSet,
    pub(super) relaxed: Vec<String>,
}

/// The part of a request that becomes the prompt.
struct Asked {
    conversation: Conversation,
    tools: Tools,
    set: ToolSet,
    choice: Choice,
    format: TextFormat,
}

impl Desk {
    /// # Errors
    /// [`Refusal::Down`]: the engine must end, since the template does not.
    pub(super) fn prepare(&self, request: &Object, seed: u64) -> Result<Prepared, RespondError> {
        let settings = request::read(request, &self.defaults, seed)?;
        let asked = self.ask(request)?;
        // The grammar holds from the first token: there is no place for reasoning before it.
        let tied = asked.choice.is_forced() || asked.format != TextFormat::Text;
        let thinking = settings.thinking.or(tied.then_some(false));
        let rendered = self.fit(&asked, thinking, settings.may_truncate)?;
        let (constraint, relaxed) = self.grammars.constraint(
            &asked.set,
            &asked.choice,
            settings.parallel,
            &asked.format,
            rendered.syntax,
        )?;
        let names = asked.set.iter().map(|tool| &tool.name);
        let callable = names.filter(|name| asked.choice.allows(name)).cloned();
        let parser = ParserOptions {
            syntax: rendered.syntax,
            tools: callable.collect(),
            json_answer: asked.format != TextFormat::Text,
            thinking: rendered.thinking_open && !tied,
        };
        let left = self.context - rendered.tokens.len();
        tracing::debug!(
            tokens = rendered.tokens.len(),
            of_instructions_and_tools = rendered.stable_prefix,
            tools = asked.set.iter().len(),
            shown = ?rendered.tools,
            constrained = constraint.is_some(),
            "prompt"
        );
        Ok(Prepared {
            only_answers: parser.tools.is_empty() || parser.json_answer,
            parser,
            generate: GenerateRequest {
                prompt: rendered.tokens,
                stable_prefix: rendered.stable_prefix,
                sampling: settings.sampling.clone(),
                max_tokens: settings.max_output_tokens.unwrap_or(left).min(left),
                end_tokens: self.tokenizer.end_tokens(),
                constraint,
                top_logprobs: settings.logprobs.unwrap_or(0),
            },
            tools: asked.set,
            relaxed: relaxed.iter().map(sentence).collect(),
            settings,
        })
    }

    /// Tokens of the prompt alone, which may be more than fit.
    ///
    /// # Errors
    /// As [`Desk::prepare`].
    pub(super) fn count(&self, request: &Object) -> Result<usize, RespondError> {
        let settings = request::read(request, &self.defaults, 0)?;
        let asked = self.ask(request)?;
        let rendered = self.render(&asked.conversation, &asked.tools, settings.thinking)?;
        Ok(rendered.tokens.len())
    }

    fn ask(&self, request: &Object) -> Result<Asked, RespondError> {
        let conversation = Conversation::from_request(request)?;
        let list = match request.get("tools") {
            Some(Value::Array(list)) if self.tools != ToolsMode::Off => list.as_slice(),
            _ => &[],
        };
        let tools = match list.is_empty() {
            true => Tools::default(),
            false => Tools::from_request(request)?,
        };
        let set = ToolSet::from_request(list)?;
        Ok(Asked {
            choice: Choice::from_request(request, &set)?,
            format: TextFormat::from_request(request)?,
            conversation,
            tools,
            set,
        })
    }

    fn render(
        &self,
        conversation: &Conversation,
        tools: &Tools,
        thinking: Option<bool>,
    ) -> Result<Rendered, RespondError> {
        let options = RenderOptions { thinking };
        Ok(self.template.render(conversation, tools, &options)?)
    }

    /// The prompt, which leaves room for at least one token. With `truncation: "auto"` the oldest turns are left out, from one user's turn to the next, so
    /// that calls keep their results; the leading instructions and the last user's turn always stay.
    fn fit(
        &self,
        asked: &Asked,
        thinking: Option<bool>,
        may_truncate: bool,
    ) -> Result<Rendered, RespondError> {
        // Too long to be rendered is too long for the window.
        let fitted = |rendered: Result<Rendered, RespondError>| match rendered {
            Ok(rendered) if rendered.tokens.len() < self.context => Ok(Ok(rendered)),
            Ok(rendered) => {
                let error = SubmitError::ContextExceeded {
                    prompt: rendered.tokens.len(),
                    context: self.context,
                };
                Ok(Err(error.into()))
            }
            Err(error) if error.error.code.as_deref() == Some(error::CONTEXT_LENGTH_EXCEEDED) => {
                Ok(Err(error))
            }
            Err(error) => Err(error),
        };
        let too_long: RespondError =
            match fitted(self.render(&asked.conversation, &asked.tools, thinking))? {
                Ok(whole) => return Ok(whole),
                Err(too_long) => too_long,
            };
        let turns = &asked.conversation.turns;
        let first = turns
            .iter()
            .take_while(|turn| matches!(turn, Turn::System(_)));
        let first = first.count();
        let later = (first + 1..turns.len()).filter(|at| matches!(turns[*at], Turn::User(_)));
        let starts: Vec<usize> = later.filter(|_| may_truncate).collect();
        let shortened = |start: usize| {
            let turns = [&turns[..first], &turns[start..]].concat();
            self.render(&Conversation { turns }, &asked.tools, thinking)
        };
        let (mut low, mut high) = (0, starts.len());
        let mut best = None;
        while low < high {
            let middle = low + (high - low) / 2;
            match fitted(shortened(starts[middle]))? {
                Ok(rendered) => {
                    best = Some(rendered);
                    high = middle;
                }
                Err(_) => low = middle + 1,
            }
        }
        best.ok_or(too_long)
    }
}

fn sentence(relaxed: &Relaxed) -> String {
    let Relaxed {
        tool,
        path,
        keyword,
        reason,
    } = relaxed;
    let what = match keyword.is_empty() {
        true => "the schema",
        false => keyword,
    };
    format!("{tool}{path}: {what} is not enforced: {reason}")
}

impl From<PromptError> for RespondError {
    fn from(error: PromptError) -> RespondError {
        if matches!(error, PromptError::Endless { .. }) {
            return RespondError::down(error.to_string());
        }
        let mut refused = RespondError::invalid(error.param(), error.to_string());
        if matches!(error, PromptError::TooLong { .. }) {
            refused.error.code = Some(error::CONTEXT_LENGTH_EXCEEDED.to_owned());
        }
        refused
    }
}

impl From<GrammarError> for RespondError {
    fn from(error: GrammarError) -> RespondError {
        match error.retry_after {
            Some(retry_after) => RespondError::busy(error.to_string(), retry_after),
            None => RespondError {
                refusal: Refusal::Invalid,
                error: error.into(),
            },
        }
    }
}

impl From<SubmitError> for RespondError {
    fn from(refused: SubmitError) -> RespondError {
        let message = refused.to_string();
        match refused {
            SubmitError::Invalid(_) => RespondError::invalid(None, message),
            SubmitError::ContextExceeded { .. } => {
                let mut refused = RespondError::invalid(Some("input"), message);
                refused.error.code = Some(error::CONTEXT_LENGTH_EXCEEDED.to_owned());
                refused
            }
            SubmitError::QueueFull { retry_after, .. } => RespondError::busy(message, retry_after),
            SubmitError::Down(_) => RespondError::down(message),
        }
    }
}
