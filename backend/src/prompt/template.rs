//! The model's chat template and the prompts it makes.

use std::time::Duration;

use minijinja::Value;

use super::{
    Conversation, PromptError, Tools, ToolsMode, Turn,
    date::Date,
    environment::Jinja,
    escape::{Guard, unescape},
    families,
    habits::Habits,
    messages::{Message, Shape},
    probation::RENDERING,
};
use crate::{
    call_syntax::CallSyntax,
    tokenizer::{Piece, Tokenizer},
};

/// A model's chat template and what is known about its habits. Made once a model; `&self` is all that rendering needs.
#[derive(Debug)]
pub struct Template {
    program: Program,
    habits: Habits,
    guard: Guard,
    tokenizer: Tokenizer,
    syntax: CallSyntax,
    /// The model was taught to reason in the open.
    thinks: bool,
    options: TemplateOptions,
}

/// What the owner of the model decides about its prompts.
#[derive(Clone, Debug)]
pub struct TemplateOptions {
    /// How calls are written; `None`: chosen from template and vocabulary.
    pub syntax: Option<CallSyntax>,
    pub tools: ToolsMode,
    /// For templates that print the date; `None`: the day this was made. Fixed, so that midnight does not empty the prefix cache.
    pub date: Option<Date>,
    /// Tokens of the context and parameters of the model, 0 where unknown: [`ToolsMode::Auto`] goes by them.
    pub context: usize,
    pub parameters: u64,
    /// What a prompt may take to be made.
    pub patience: Duration,
}

impl Default for TemplateOptions {
    fn default() -> TemplateOptions {
        TemplateOptions {
            syntax: None,
            tools: ToolsMode::default(),
            date: None,
            context: 0,
            parameters: 0,
            patience: RENDERING,
        }
    }
}

/// What a single request decides.
#[derive(Clone, Debug, Default)]
pub struct RenderOptions {
    /// `enable_thinking` of templates that know it; `None`: the template's own default.
    pub thinking: Option<bool>,
}

/// The marks around a model's reasoning.
const THINK: [&str; 2] = ["<think>", "</think>"];

/// A prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    pub tokens: Vec<u32>,
    /// Tokens of instructions and tools at the start: what other conversations share. 0 where the template mixes them with the conversation.
    pub stable_prefix: usize,
    /// Tokens at the end that open the assistant's turn; all before them comes back in the next turn's prompt.
    pub generation_prompt: usize,
    pub syntax: CallSyntax,
    /// Tools are in the prompt, in this form; `Off` also when the request has none. Never `Auto`.
    pub tools: ToolsMode,
    /// The prompt ends inside the model's reasoning: output begins with it, without the opening mark.
    pub thinking_open: bool,
}

/// A template with the names it is given.
#[derive(Debug)]
pub(super) struct Program {
    jinja: Jinja,
    bos: String,
    eos: String,
    date: String,
}

impl Program {
    /// The text for `messages`, guarded strings still guarded.
    pub(super) fn run(
        &self,
        messages: &[Message<'_>],
        tools: Option<&Value>,
        options: &RenderOptions,
        open: bool,
    ) -> Result<String, PromptError> {
        let mut given = messages.iter().map(Message::len).sum();
        let list: Vec<Value> = messages.iter().map(Message::value).collect();
        let mut fields = vec![
            ("messages", Value::from(list)),
            ("add_generation_prompt", Value::from(open)),
            ("bos_token", Value::from(self.bos.as_str())),
            ("eos_token", Value::from(self.eos.as_str())),
            ("date_string", Value::from(self.date.as_str())),
            // Llama 3.1: into the system turn, so that the tools stay in the cache when the first question changes.
            ("tools_in_user_message", Value::from(false)),
            ("tools", tools.cloned().unwrap_or_else(|| Value::from(()))),
        ];
        if let Some(thinking) = options.thinking {
            fields.push(("enable_thinking", Value::from(thinking)));
        }
        if let Some(tools) = tools {
            given += tools.len().unwrap_or(0) * 8192;
        }
        self.jinja.render(Value::from_pairs(fields), given)
    }
}

impl Template {
    /// Compiles `source`, or the built-in template of the vocabulary's family when the model has none.
    pub fn new(
        source: Option<&str>,
        tokenizer: &Tokenizer,
        options: TemplateOptions,
    ) -> Result<Template, PromptError> {
        let Some(source) = source.or_else(|| families::built_in(tokenizer)) else {
            let problem = "the model has none, and its vocabulary is of no family with a built-in one (Llama 3, ChatML)";
            return Err(PromptError::Template(problem.to_owned()));
        };
        let date = options.date.unwrap_or_else(Date::today);
        let spelling = |token: Option<u32>| {
            token
                .and_then(|token| tokenizer.control_text(token))
                .unwrap_or_default()
                .to_owned()
        };
        let program = Program {
            jinja: Jinja::new(source, date, options.patience)?,
            bos: spelling(tokenizer.bos()),
            eos: spelling(tokenizer.eos()),
            date: date.format("%d %b %Y"),
        };
        let syntax = options
            .syntax
            .unwrap_or_else(|| families::syntax(source, tokenizer));
        let habits = Habits::of(
            &program,
            source,
            syntax,
            families::permissive_result_role(syntax, tokenizer),
        )?;
        // A habit is learnt from failures too.
        program.jinja.ends()?;
        let thinks = THINK.iter().any(|mark| source.contains(mark))
            || tokenizer.token_id(THINK[0]).is_some();
        Ok(Template {
            guard: Guard::new(tokenizer.markup()),
            program,
            habits,
            tokenizer: tokenizer.clone(),
            syntax,
            thinks,
            options,
        })
    }

    #[cfg(test)]
    pub(super) fn habits(&self) -> &Habits {
        &self.habits
    }

    pub fn syntax(&self) -> CallSyntax {
        self.syntax
    }

    /// The prompt for the assistant's next turn.
    pub fn render(
        &self,
        conversation: &Conversation,
        tools: &Tools,
        options: &RenderOptions,
    ) -> Result<Rendered, PromptError> {
        let mode = self.mode(tools);
        let guarded = |text: &str| self.guard.escape(text).into_owned();
        let native = mode == ToolsMode::Full && self.habits.tools;
        let declared = native.then(|| {
            tools
                .list
                .iter()
                .map(|tool| families::declaration(tool, &guarded))
                .collect::<Value>()
        });
        let more = match mode {
            ToolsMode::Off => None,
            _ if native => Some(families::OPTIONAL.to_owned()),
            _ => Some(families::describe(tools, mode, self.syntax, &guarded)?),
        };
        let shape = Shape {
            habits: &self.habits,
            guard: &self.guard,
            syntax: self.syntax,
        };
        let messages = shape.messages(conversation, more.as_deref())?;
        let text = self
            .program
            .run(&messages, declared.as_ref(), options, true)?;
        if text.len() > self.most_bytes() {
            return Err(PromptError::TooLong { bytes: text.len() });
        }
        let stable = self.stable_bytes(
            &shape,
            conversation,
            more.as_deref(),
            declared.as_ref(),
            options,
            &text,
        );
        let opened = self.opened_bytes(&messages, declared.as_ref(), options, &text);
        // Those two make do without a prompt that could not be made; the engine must not.
        self.program.jinja.ends()?;
        let (tokens, stable_prefix, before_opening) =
            self.encode(&text, stable, text.len() - opened);
        Ok(Rendered {
            stable_prefix,
            generation_prompt: tokens.len() - before_opening,
            tokens,
            syntax: self.syntax,
            tools: mode,
            thinking_open: self.thinks
                && text[text.len() - opened..].trim_end().ends_with(THINK[0]),
        })
    }

    /// Text of more bytes is longer than the window whatever it says, and need not be cut into tokens to know. Guarded text is at most twice as long.
    fn most_bytes(&self) -> usize {
        match self.options.context {
            0 => usize::MAX,
            context => context.saturating_mul(2 * self.tokenizer.longest()),
        }
    }

    fn mode(&self, tools: &Tools) -> ToolsMode {
        const SMALL: u64 = 3_000_000_000;
        let TemplateOptions {
            context,
            parameters,
            ..
        } = self.options;
        match self.options.tools {
            _ if tools.list.is_empty() => ToolsMode::Off,
            ToolsMode::Auto if (1..SMALL).contains(&parameters) => ToolsMode::Compact,
            ToolsMode::Auto if context > 0 && tools.estimated_tokens() > context / 4 => {
                ToolsMode::Compact
            }
            ToolsMode::Auto => ToolsMode::Full,
            mode => mode,
        }
    }

    /// Bytes at the start of `text` that do not depend on what was said: those that a conversation with another first word has too.
    fn stable_bytes(
        &self,
        shape: &Shape<'_>,
        conversation: &Conversation,
        more: Option<&str>,
        tools: Option<&Value>,
        options: &RenderOptions,
        text: &str,
    ) -> usize {
        let mut turns: Vec<Turn> = conversation
            .turns
            .iter()
            .take(1)
            .filter(|turn| matches!(turn, Turn::System(_)))
            .cloned()
            .collect();
        turns.push(Turn::User("\u{FDD3}".to_owned()));
        let other = Conversation { turns };
        let other = shape
            .messages(&other, more)
            .and_then(|messages| self.program.run(&messages, tools, options, true));
        match other {
            Ok(other) => text
                .bytes()
                .zip(other.bytes())
                .take_while(|(left, right)| left == right)
                .count(),
            Err(_) => 0,
        }
    }

    /// Bytes at the end of `text` that open the assistant's turn.
    fn opened_bytes(
        &self,
        messages: &[Message<'_>],
        tools: Option<&Value>,
        options: &RenderOptions,
        text: &str,
    ) -> usize {
        match &self.habits.opening {
            Some(opening) if options.thinking.is_none() && text.ends_with(opening.as_str()) => {
                opening.len()
            }
            _ => match self.program.run(messages, tools, options, false) {
                Ok(closed) if text.starts_with(&closed) => text.len() - closed.len(),
                _ => 0,
            },
        }
    }

    /// The tokens of a rendered prompt, and how many of them lie wholly in its first `stable` and its first `before` bytes.
    fn encode(&self, text: &str, stable: usize, before: usize) -> (Vec<u32>, usize, usize) {
        let mut tokens = Vec::with_capacity(text.len() / 3 + 8);
        if self.tokenizer.adds_bos()
            && let Some(bos) = self.tokenizer.bos()
            && !text.starts_with(&self.program.bos)
        {
            tokens.push(bos);
        }
        let (mut in_stable, mut in_before) = (0, 0);
        let start = text.as_ptr() as usize;
        self.tokenizer.split(text, |piece, end| {
            match piece {
                Piece::Text(part) => {
                    let first = part.as_ptr() as usize == start;
                    let plain = unescape(part);
                    self.tokenizer.encode_fragment(&plain, first, &mut tokens);
                }
                Piece::Token(token) => tokens.push(token),
            }
            if end <= stable {
                in_stable = tokens.len();
            }
            if end <= before {
                in_before = tokens.len();
            }
        });
        (tokens, in_stable, in_before)
    }
}

#[cfg(test)]
mod tests;
