//! What a model file holds, for people: the text of `codex-bridge inspect FILE`.

use std::{
    fmt::{self, Formatter},
    fs,
    path::PathBuf,
};

use serde_json::Value;

use super::{
    GgufVocabulary, Model, TokenizerSource,
    config::{LlamaConfig, RopeScaling},
    error::OneLine,
    plan::{Available, Bytes, MemoryPlan, splits},
    template,
    weights::Format,
};
use crate::sample::SamplingParams;

/// Everything worth knowing before a model is run.
#[derive(Clone, Debug)]
pub struct Inspection {
    pub name: String,
    pub config: LlamaConfig,
    pub parameters: u64,
    pub weight_bytes: u64,
    /// Formats with tensors and bytes, most bytes first.
    pub formats: Vec<(Format, usize, u64)>,
    pub tokenizer: Tokenizer,
    pub template: Option<Template>,
    pub sampling: SamplingParams,
    pub files: Vec<(PathBuf, u64)>,
    pub fingerprint: String,
    pub plan: MemoryPlan,
    /// Memory that is left; `None` where the system does not say.
    pub available: Option<Available>,
}

/// What the file says of its tokenizer.
#[derive(Clone, Debug, PartialEq)]
pub struct Tokenizer {
    /// `gpt2`, `llama`, …, or `tokenizer.json`.
    pub kind: String,
    pub pre: Option<String>,
    pub vocab: usize,
    /// Control tokens in the vocabulary, where it tells.
    pub control: Option<usize>,
    /// What each special token is for, its id where it is known, its text.
    pub special: Vec<(&'static str, Option<u32>, String)>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Template {
    pub bytes: usize,
    pub knows_tools: bool,
}

impl Inspection {
    pub fn new(model: &Model, plan: MemoryPlan, available: Option<Available>) -> Inspection {
        Inspection {
            name: model.name.clone(),
            config: model.config.clone(),
            parameters: model.parameters,
            weight_bytes: model.weight_bytes,
            formats: model.weights.formats(),
            tokenizer: Tokenizer::new(&model.tokenizer, model.config.vocab),
            template: model.chat_template.as_deref().map(|source| Template {
                bytes: source.len(),
                knows_tools: template::knows_tools(source),
            }),
            sampling: model.generation.sampling.clone(),
            files: model
                .files
                .iter()
                .map(|path| {
                    let bytes = fs::metadata(path).map_or(0, |metadata| metadata.len());
                    (path.clone(), bytes)
                })
                .collect(),
            fingerprint: model.fingerprint.clone(),
            plan,
            available,
        }
    }
}

impl Tokenizer {
    fn new(source: &TokenizerSource, vocab: usize) -> Tokenizer {
        match source {
            TokenizerSource::Gguf(vocabulary) => Tokenizer::gguf(vocabulary),
            TokenizerSource::Json { config, .. } => Tokenizer {
                kind: "tokenizer.json".to_owned(),
                pre: None,
                vocab,
                control: None,
                special: [
                    ("bos", "bos_token"),
                    ("eos", "eos_token"),
                    ("padding", "pad_token"),
                ]
                .into_iter()
                .filter_map(|(role, key)| Some((role, None, token_text(config.get(key)?)?)))
                .collect(),
            },
        }
    }

    fn gguf(vocabulary: &GgufVocabulary) -> Tokenizer {
        const CONTROL: i32 = 3;
        let types = &vocabulary.token_types;
        let control = types.iter().filter(|kind| **kind == CONTROL).count();
        Tokenizer {
            kind: vocabulary.model.clone(),
            pre: vocabulary.pre.clone(),
            vocab: vocabulary.tokens.len(),
            control: (!types.is_empty()).then_some(control),
            special: [
                ("bos", vocabulary.bos),
                ("eos", vocabulary.eos),
                ("eot", vocabulary.eot),
                ("eom", vocabulary.eom),
                ("unknown", vocabulary.unknown),
                ("padding", vocabulary.padding),
            ]
            .into_iter()
            .filter_map(|(role, id)| {
                let text = vocabulary.tokens.get(id? as usize)?;
                Some((role, id, text.clone()))
            })
            .collect(),
        }
    }
}

/// A text, or an object with `content`.
fn token_text(value: &Value) -> Option<String> {
    let text = value.as_str().or_else(|| value.get("content")?.as_str())?;
    Some(text.to_owned())
}

/// Name on the left, text beside it.
fn line(f: &mut Formatter<'_>, name: &str, text: impl fmt::Display) -> fmt::Result {
    writeln!(f, "{name:<14}  {text}")
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let config = &self.config;
        line(f, "name", OneLine(&self.name, 200))?;
        let (parameters, bytes) = (Count(self.parameters), Bytes(self.weight_bytes));
        line(
            f,
            "architecture",
            format_args!("llama, {parameters} parameters, {bytes} of weights"),
        )?;
        line(
            f,
            "layers",
            format_args!(
                "{}, {} wide, feed-forward {} wide",
                config.layers, config.hidden, config.ffn
            ),
        )?;
        line(
            f,
            "heads",
            format_args!(
                "{} for queries, {} for keys and values, {} wide",
                config.heads, config.kv_heads, config.head_dim
            ),
        )?;
        line(f, "context", format_args!("{} tokens", config.context))?;
        let scaling = match &config.rope.scaling {
            RopeScaling::None => "not scaled".to_owned(),
            RopeScaling::Linear { factor } => format!("scaled linearly by {factor}"),
            RopeScaling::Factors(_) => "scaled frequency by frequency".to_owned(),
        };
        line(
            f,
            "rope",
            format_args!("base {}, {scaling}", config.rope.base),
        )?;
        let output = if config.tied_embeddings {
            "the embedding"
        } else {
            "its own matrix"
        };
        line(f, "output", output)?;
        self.tokenizer.fmt(f)?;
        match self.template {
            Some(template) => line(
                f,
                "chat template",
                format_args!(
                    "{} bytes, {}",
                    template.bytes,
                    if template.knows_tools {
                        "knows tools"
                    } else {
                        "knows no tools"
                    }
                ),
            ),
            None => line(f, "chat template", "none"),
        }?;
        let sampling = &self.sampling;
        line(
            f,
            "sampling",
            format_args!(
                "temperature {}, top_p {}, top_k {}, min_p {}, repetition penalty {}",
                sampling.temperature,
                sampling.top_p,
                sampling.top_k,
                sampling.min_p,
                sampling.repetition_penalty
            ),
        )?;
        for (index, (format, tensors, bytes)) in self.formats.iter().enumerate() {
            let name = if index == 0 { "tensors" } else { "" };
            line(
                f,
                name,
                format_args!("{format:<5} {tensors:>5}  {:>10}", Bytes(*bytes)),
            )?;
        }
        for (index, (path, bytes)) in self.files.iter().enumerate() {
            let name = if index == 0 { "files" } else { "" };
            let path = path.display().to_string();
            line(
                f,
                name,
                format_args!("{}  {}", OneLine(&path, 1000), Bytes(*bytes)),
            )?;
        }
        line(f, "fingerprint", &self.fingerprint)?;
        self.memory(f)
    }
}

impl fmt::Display for Tokenizer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut text = OneLine(&self.kind, 60).to_string();
        if let Some(pre) = &self.pre {
            text += &format!(", {}", OneLine(pre, 60));
        }
        text += &format!(", {} tokens", self.vocab);
        if let Some(control) = self.control {
            text += &format!(", {control} of them control tokens");
        }
        line(f, "tokenizer", text)?;
        let special: Vec<String> = self
            .special
            .iter()
            .map(|(role, id, text)| match id {
                Some(id) => format!("{role} {} ({id})", OneLine(text, 60)),
                None => format!("{role} {}", OneLine(text, 60)),
            })
            .collect();
        line(f, "special tokens", special.join(", "))
    }
}

impl Inspection {
    fn memory(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (plan, options) = (&self.plan, &self.plan.options);
        line(
            f,
            "memory",
            format_args!(
                "{} = {} weights + {} KV cache + {} scratch",
                Bytes(plan.total()),
                Bytes(plan.weights),
                Bytes(plan.kv),
                Bytes(plan.scratch)
            ),
        )?;
        line(
            f,
            "",
            format_args!(
                "for {} × {} tokens of keys and values in {}, steps of {} tokens",
                options.sequences, options.context, options.kv, options.batch_tokens
            ),
        )?;
        let splits = splits(&self.config, plan);
        if !splits.is_empty() {
            let each = splits
                .iter()
                .map(|split| format!("{} on each of {}", Bytes(split.each.total()), split.devices));
            let each: Vec<String> = each.collect();
            line(
                f,
                "several GPUs",
                format_args!("would take {}; not in this release", each.join(", ")),
            )?;
        }
        let Some(available) = self.available else {
            return line(f, "", "how much memory is left is not known here");
        };
        let left = Bytes(available.bytes);
        let source = available.source;
        match plan.check(&available) {
            Ok(()) => line(f, "", format_args!("fits: {source} has {left} left")),
            Err(_) => line(
                f,
                "",
                format_args!("does not fit: {source} has {left} left"),
            ),
        }
    }
}

/// `134.5 M`
struct Count(u64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let count = self.0 as f64;
        match self.0 {
            0..1_000_000 => write!(f, "{}", self.0),
            1_000_000..1_000_000_000 => write!(f, "{:.1} M", count / 1e6),
            _ => write!(f, "{:.2} G", count / 1e9),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cpu::Cpu, model::plan::PlanOptions, testing::TinyLlama};

    #[test]
    fn inspection_tells_what_a_file_holds_and_whether_it_fits() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tiny.gguf");
        let tiny = TinyLlama {
            chat_template: Some("{{ tools }}".to_owned()),
            format: Format::Q4_1,
            ..TinyLlama::default()
        };
        tiny.write_gguf(&path).unwrap();
        let model = crate::model::open(&path).unwrap();
        let available = Available {
            bytes: 1 << 30,
            source: "this machine",
        };
        let plan = Cpu::plan(&model, PlanOptions::default());
        let inspection = Inspection::new(&model, plan, Some(available));
        let text = inspection
            .to_string()
            .replace(&path.display().to_string(), "tiny.gguf")
            .replace(&model.fingerprint, "FINGERPRINT");
        let expected = "\
name            tiny
architecture    llama, 109248 parameters, 183.8 KiB of weights
layers          2, 64 wide, feed-forward 128 wide
heads           4 for queries, 2 for keys and values, 16 wide
context         512 tokens
rope            base 10000, not scaled
output          its own matrix
tokenizer       gpt2, gpt-2, 275 tokens, 3 of them control tokens
special tokens  bos <|im_start|> (1), eos <|im_end|> (2), padding <|endoftext|> (0)
chat template   11 bytes, knows tools
sampling        temperature 0.6, top_p 0.9, top_k 0, min_p 0, repetition penalty 1
tensors         F32       7   138.8 KiB
                Q4_1     14    45.0 KiB
files           tiny.gguf  189.9 KiB
fingerprint     FINGERPRINT
";
        let (head, memory) = text.split_at(text.find("memory").unwrap());
        pretty_assertions::assert_eq!(head, expected);
        assert!(memory.contains("for 1 × 8192 tokens of keys and values in f16"));
        assert!(memory.ends_with("fits: this machine has 1.00 GiB left\n"));
    }

    #[test]
    fn texts_from_files_cannot_steer_the_terminal() {
        let tokenizer = Tokenizer {
            kind: "gpt2\u{1b}[31m".to_owned(),
            pre: None,
            vocab: 3,
            control: None,
            special: vec![("bos", Some(0), "\n\u{7}".to_owned())],
        };
        let text = tokenizer.to_string();
        assert!(text.lines().count() == 2 && !text.contains(['\u{1b}', '\u{7}']));
    }
}
