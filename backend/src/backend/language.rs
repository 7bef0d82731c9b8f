//! Everything of a model that has to do with text: its tokens, its chat template, its grammars.

use std::sync::Arc;

use super::{BackendOptions, LoadError};
use crate::{
    grammar::{Grammars, Vocabulary},
    model::Model,
    prompt::{Template, TemplateOptions, on_probation},
    tokenizer::Tokenizer,
};

#[derive(Debug)]
pub(super) struct Language {
    pub(super) tokenizer: Tokenizer,
    pub(super) template: Template,
    pub(super) grammars: Grammars,
}

impl Language {
    /// `context`: tokens of the window.
    pub(super) fn new(
        model: &Model,
        options: &BackendOptions,
        context: usize,
    ) -> Result<Language, LoadError> {
        let tokenizer = Tokenizer::new(&model.tokenizer)
            .map_err(|error| LoadError::Tokenizer(error.to_string()))?
            .with_end_tokens(&model.generation.end_tokens);
        let options = TemplateOptions {
            tools: options.tools,
            patience: options.prompt_patience,
            context,
            parameters: model.parameters,
            ..TemplateOptions::default()
        };
        let template = {
            let (source, tokenizer) = (model.chat_template.clone(), tokenizer.clone());
            on_probation(move || Template::new(source.as_deref(), &tokenizer, options))
                .map_err(|error| LoadError::Template(error.to_string()))?
        };
        let grammars = Grammars::new(vocabulary(&tokenizer))
            .map_err(|error| LoadError::Grammar(error.to_string()))?;
        Ok(Language {
            tokenizer,
            template,
            grammars,
        })
    }
}

fn vocabulary(tokenizer: &Tokenizer) -> Vocabulary {
    let tokens = 0..tokenizer.vocab_len() as u32;
    let bytes = tokens
        .clone()
        .map(|token| match tokenizer.control_text(token) {
            Some(name) => name.as_bytes().to_vec(),
            None => tokenizer.token_bytes(token).to_vec(),
        });
    let encoder = tokenizer.clone();
    Vocabulary {
        bytes: bytes.collect(),
        control: tokens.map(|token| tokenizer.is_control(token)).collect(),
        end_tokens: tokenizer.end_tokens().to_vec(),
        encode: Arc::new(move |text| encoder.encode_text(text)),
    }
}
