//! A model that answers with exactly the text a test wants.
//!
//! Its weights are a next-token table: the embedding of token `t` is the unit vector `t`, attention and feed-forward are zero so that the residual stream
//! passes untouched, and the output matrix maps each token to its successor. Every chunk of an answer is one token.
//!
//! Only the last token of a prompt matters. [`Scripted::template`] ends a prompt with a marker token that counts the tool results seen so far, so the
//! first answer is given to the first request, the second after one tool result, and so on. Any token that is neither marker nor chunk is followed by the
//! first answer.

use std::{collections::BTreeMap, io, path::Path};

use super::{
    Vocabulary,
    gguf::{Gguf, Tensor, Value},
    quantize::quantize_row,
    vocabulary::Kind,
};
use crate::model::weights::Format;

/// The one attention head, which adds nothing.
const HEAD: usize = 64;
const FEED_FORWARD: usize = 64;

/// Answers by number of tool results in the conversation; the template repeats the last one from then on.
#[derive(Clone, Debug)]
pub struct Scripted {
    vocabulary: Vocabulary,
    /// Every chunk of every answer is followed by its successor, the last by `<|im_end|>`.
    successors: BTreeMap<u32, u32>,
    /// First chunk of the first answer.
    first: Option<u32>,
    answers: usize,
    context: usize,
    template: Option<String>,
}

impl Default for Scripted {
    fn default() -> Scripted {
        Scripted {
            vocabulary: Vocabulary::new(&[("Ġ", "Ġ")]),
            successors: BTreeMap::new(),
            first: None,
            answers: 0,
            context: 32_768,
            template: None,
        }
    }
}

impl Scripted {
    /// The next answer, in the chunks it is streamed in.
    ///
    /// # Panics
    /// If a chunk is a token already: every chunk of a script must be different, and none a single byte.
    pub fn answer(mut self, chunks: &[&str]) -> Scripted {
        let mut last = self
            .vocabulary
            .push(Scripted::marker(self.answers), Kind::Control);
        for chunk in chunks {
            let token = self.vocabulary.push((*chunk).to_owned(), Kind::UserDefined);
            self.successors.insert(last, token);
            if self.answers == 0 {
                self.first.get_or_insert(token);
            }
            last = token;
        }
        self.answers += 1;
        self
    }

    /// The next answer, cut into chunks of at least `size` characters that are all new.
    ///
    /// # Panics
    /// If not even the whole text is new.
    pub fn answer_text(self, text: &str, size: usize) -> Scripted {
        let mut chunks: Vec<String> = Vec::new();
        let mut chunk = String::new();
        for character in text.chars() {
            chunk.push(character);
            let known = self.vocabulary.contains(&chunk) || chunks.contains(&chunk);
            if chunk.chars().count() >= size.max(1) && !known {
                chunks.push(std::mem::take(&mut chunk));
            }
        }
        // What is left may be too short or a repetition: chunks before it join until it is new.
        while !chunk.is_empty() {
            if !self.vocabulary.contains(&chunk) && !chunks.contains(&chunk) {
                chunks.push(std::mem::take(&mut chunk));
            } else {
                let before = chunks.pop();
                assert!(before.is_some(), "{text:?} is a token already");
                chunk = before.unwrap_or_default() + &chunk;
            }
        }
        let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
        self.answer(&chunks)
    }

    /// A chat template in Jinja. `LAST_ANSWER` in it becomes the number of the last answer.
    pub fn template(mut self, source: &str) -> Scripted {
        self.template = Some(source.to_owned());
        self
    }

    pub fn context(mut self, tokens: usize) -> Scripted {
        self.context = tokens;
        self
    }

    /// The control token that makes answer `answer` come next.
    pub fn marker(answer: usize) -> String {
        format!("<|answer_{answer}|>")
    }

    /// # Panics
    /// If there is no answer.
    pub fn gguf(&self) -> Gguf {
        assert!(self.first.is_some(), "a script needs an answer");
        let size = self.vocabulary.tokens.len();
        let width = size.next_multiple_of(64);
        let mut file = Gguf::default();
        file.set("general.architecture", "llama");
        file.set("general.name", "scripted");
        file.set("llama.context_length", self.context);
        file.set("llama.embedding_length", width);
        file.set("llama.block_count", 1);
        file.set("llama.feed_forward_length", FEED_FORWARD);
        file.set("llama.attention.head_count", 1);
        file.set("llama.attention.head_count_kv", 1);
        file.set("llama.attention.key_length", HEAD);
        file.set("llama.attention.value_length", HEAD);
        file.set("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5));
        file.set("llama.rope.dimension_count", HEAD);
        file.set("llama.rope.freq_base", Value::F32(10_000.0));
        file.set("llama.vocab_size", size);
        self.vocabulary.describe(&mut file);
        if let Some(template) = &self.template {
            let last = (self.answers - 1).to_string();
            file.set(
                "tokenizer.chat_template",
                template.replace("LAST_ANSWER", &last).as_str(),
            );
        }

        let mut embedding = vec![0.0; size * width];
        let mut output = vec![0.0; size * width];
        for token in 0..size {
            embedding[token * width + token] = 1.0;
            // RMS norm scales the unit vector to sqrt(width) >= 16, so the successor wins at any usual temperature.
            output[self.after(token as u32) as usize * width + token] = 4.0;
        }
        let mut add = |name: &str, dims: &[usize], values: Vec<f32>| {
            let bytes = quantize_row(Format::F32, &values);
            file.tensors
                .push(Tensor::new(name, dims, Format::F32, bytes));
        };
        add("token_embd.weight", &[width, size], embedding);
        add("output.weight", &[width, size], output);
        for name in [
            "output_norm.weight",
            "blk.0.attn_norm.weight",
            "blk.0.ffn_norm.weight",
        ] {
            add(name, &[width], vec![1.0; width]);
        }
        for (name, cols, rows) in [
            ("attn_q", width, HEAD),
            ("attn_k", width, HEAD),
            ("attn_v", width, HEAD),
            ("attn_output", HEAD, width),
            ("ffn_gate", width, FEED_FORWARD),
            ("ffn_up", width, FEED_FORWARD),
            ("ffn_down", FEED_FORWARD, width),
        ] {
            let name = format!("blk.0.{name}.weight");
            add(&name, &[cols, rows], vec![0.0; rows * cols]);
        }
        file
    }

    /// The token that follows `token`.
    fn after(&self, token: u32) -> u32 {
        let scripted = token as usize >= self.vocabulary.tokens.len() - self.script_tokens();
        match self.successors.get(&token) {
            Some(next) => *next,
            None if scripted => Vocabulary::IM_END,
            None => self.first.unwrap_or(Vocabulary::IM_END),
        }
    }

    /// Markers and chunks: the last tokens of the vocabulary.
    fn script_tokens(&self) -> usize {
        self.successors.len() + self.answers
    }

    pub fn write_gguf(&self, path: &Path) -> io::Result<()> {
        self.gguf().write(path)
    }
}
