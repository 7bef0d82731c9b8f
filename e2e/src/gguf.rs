//! Writes a tiny model of Llama architecture that answers with exactly the text a test wants.
//!
//! Its weights are a next-token table: the embedding of token `t` is the unit vector `t`, attention and feed-forward are
//! zero so the residual stream passes untouched, and the output matrix maps each token to its successor. Every chunk of
//! an answer is one token, so it is also one streamed delta.
//!
//! Only the last token of a prompt matters, and our chat templates ([`crate::gguf::Format`]) end each prompt with a
//! marker token that counts the tool results seen so far. So the model gives its first answer to the first request,
//! the second answer after one tool result, and so on: a whole agent turn is scripted, on a real inference engine.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result, ensure};

mod container;
mod template;

use container::{Container, Tensor, Value};
pub use template::Format;

const CONTROL: i32 = 3;
const NORMAL: i32 = 1;
const USER_DEFINED: i32 = 4;

/// The first tokens of every scripted vocabulary; `END` closes an answer.
const SPECIAL: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
const END: usize = 2;

/// Keys and values of the one attention head, which adds nothing.
const HEAD: usize = 64;
const FEED_FORWARD: usize = 64;

/// Answers by number of tool results in the conversation; the last one is repeated from then on.
#[derive(Debug, Clone)]
pub struct Script {
    format: Format,
    answers: Vec<Vec<String>>,
}

impl Script {
    pub fn new(format: Format) -> Self {
        Self {
            format,
            answers: Vec::new(),
        }
    }

    /// The next answer, in the chunks it is streamed in. A chunk may occur once in a script, being a token.
    pub fn answer(mut self, chunks: &[&str]) -> Self {
        self.answers
            .push(chunks.iter().map(|chunk| (*chunk).to_owned()).collect());
        self
    }

    pub fn write(&self, path: &Path) -> Result<()> {
        let bytes = self.encode()?;
        fs::write(path, bytes).with_context(|| format!("write {}", path.display()))
    }

    fn encode(&self) -> Result<Vec<u8>> {
        ensure!(!self.answers.is_empty(), "a script needs an answer");
        let vocabulary = self.vocabulary()?;
        let size = vocabulary.tokens.len();
        let width = size.next_multiple_of(64);
        let template = self.format.template(self.answers.len());
        let mut file = Container::default();
        file.set("general.architecture", Value::text("llama"));
        file.set("general.name", Value::text("scripted"));
        file.set("llama.context_length", Value::U32(32768));
        file.set("llama.embedding_length", Value::count(width)?);
        file.set("llama.block_count", Value::U32(1));
        file.set("llama.feed_forward_length", Value::count(FEED_FORWARD)?);
        file.set("llama.attention.head_count", Value::U32(1));
        file.set("llama.attention.head_count_kv", Value::U32(1));
        file.set("llama.attention.key_length", Value::count(HEAD)?);
        file.set("llama.attention.value_length", Value::count(HEAD)?);
        file.set("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5));
        file.set("llama.rope.dimension_count", Value::count(HEAD)?);
        file.set("llama.rope.freq_base", Value::F32(10000.0));
        file.set("llama.vocab_size", Value::count(size)?);
        file.set("tokenizer.ggml.model", Value::text("gpt2"));
        file.set("tokenizer.ggml.pre", Value::text("gpt-2"));
        file.set("tokenizer.ggml.tokens", Value::Texts(vocabulary.tokens));
        file.set("tokenizer.ggml.token_type", Value::I32s(vocabulary.kinds));
        file.set(
            "tokenizer.ggml.merges",
            Value::Texts(vec!["\u{120} \u{120}".to_owned()]),
        );
        file.set("tokenizer.ggml.bos_token_id", Value::U32(1));
        file.set("tokenizer.ggml.eos_token_id", Value::count(END)?);
        file.set("tokenizer.ggml.padding_token_id", Value::U32(0));
        file.set("tokenizer.ggml.add_bos_token", Value::Bool(false));
        file.set("tokenizer.chat_template", Value::Text(template));

        let mut embedding = Tensor::zero("token_embd.weight", &[width, size]);
        let mut output = Tensor::zero("output.weight", &[width, size]);
        for token in 0..size {
            embedding.set(token, token, 1.0);
            let successor = vocabulary.successors.get(&token).copied().unwrap_or(END);
            // RMS norm scales the unit vector to sqrt(width) >= 16, so this token wins at any usual temperature.
            output.set(token, successor, 4.0);
        }
        file.tensors
            .extend([embedding, output, Tensor::ones("output_norm.weight", width)]);
        file.tensors.extend([
            Tensor::ones("blk.0.attn_norm.weight", width),
            Tensor::ones("blk.0.ffn_norm.weight", width),
        ]);
        for name in ["attn_q", "attn_k", "attn_v"] {
            file.tensors.push(Tensor::zero(
                &format!("blk.0.{name}.weight"),
                &[width, HEAD],
            ));
        }
        file.tensors
            .push(Tensor::zero("blk.0.attn_output.weight", &[HEAD, width]));
        file.tensors.push(Tensor::zero(
            "blk.0.ffn_gate.weight",
            &[width, FEED_FORWARD],
        ));
        file.tensors
            .push(Tensor::zero("blk.0.ffn_up.weight", &[width, FEED_FORWARD]));
        file.tensors.push(Tensor::zero(
            "blk.0.ffn_down.weight",
            &[FEED_FORWARD, width],
        ));
        file.encode()
    }

    fn vocabulary(&self) -> Result<Vocabulary> {
        let mut vocabulary = Vocabulary::default();
        for text in SPECIAL {
            vocabulary.push(text.to_owned(), CONTROL)?;
        }
        if self.format == Format::Llama31 {
            // The bundled engine knows the family by it.
            vocabulary.push("<|start_header_id|>".to_owned(), CONTROL)?;
        }
        for byte in 0..=u8::MAX {
            vocabulary.push(byte_token(byte).to_string(), NORMAL)?;
        }
        vocabulary.push("\u{120}\u{120}".to_owned(), NORMAL)?;
        for (index, answer) in self.answers.iter().enumerate() {
            let mut last = vocabulary.push(template::marker(index), CONTROL)?;
            for chunk in answer {
                let token = vocabulary.push(chunk.clone(), USER_DEFINED)?;
                vocabulary.successors.insert(last, token);
                last = token;
            }
        }
        Ok(vocabulary)
    }
}

#[derive(Debug, Default)]
struct Vocabulary {
    tokens: Vec<String>,
    kinds: Vec<i32>,
    /// Every token not named here is followed by the end of the answer.
    successors: BTreeMap<usize, usize>,
}

impl Vocabulary {
    fn push(&mut self, text: String, kind: i32) -> Result<usize> {
        ensure!(
            !self.tokens.contains(&text),
            "chunk {text:?} is used twice, or is a single byte"
        );
        self.tokens.push(text);
        self.kinds.push(kind);
        Ok(self.tokens.len() - 1)
    }
}

/// GPT-2's printable stand-in for a byte: itself where it prints, else the next free code point from 256.
fn byte_token(byte: u8) -> char {
    let prints = |byte: u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    if prints(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|other| !prints(*other)).count();
    u32::try_from(before)
        .ok()
        .and_then(|before| char::from_u32(256 + before))
        .unwrap_or('\u{fffd}')
}
