//! What a model file holds, without starting an engine.

use std::{fmt::Write, path::Path};

use backend::model::{
    self, Model, TokenizerSource,
    config::RopeScaling,
    plan::{self, Bytes, KvFormat, MemoryPlan, PlanOptions},
};

use super::{Fault, FaultKind};

/// What a model file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// Tokens the model was trained for.
    pub context: u64,
    /// For people, a line each.
    pub lines: Vec<String>,
}

/// Reads the head of the model at `path`, and plans the memory for a window of `context` tokens, or else of as many as
/// the model was trained for.
///
/// # Errors
/// It is no model, or none that is supported.
pub fn inspect(path: &Path, context: Option<usize>) -> Result<Inspection, Fault> {
    let model = model::open(path).map_err(|error| Fault {
        message: error.to_string(),
        kind: if path.exists() {
            FaultKind::Unusable
        } else {
            FaultKind::Missing
        },
    })?;
    let context = context.unwrap_or(model.config.context);
    let mut lines = describe(&model);
    lines.extend(describe_plans(&model, context));
    Ok(Inspection {
        context: u64::try_from(model.config.context).unwrap_or(u64::MAX),
        lines,
    })
}

fn describe(model: &Model) -> Vec<String> {
    let config = &model.config;
    let scaling = match &config.rope.scaling {
        RopeScaling::None => String::new(),
        RopeScaling::Linear { factor } => format!(", positions divided by {factor}"),
        RopeScaling::Factors(_) => ", a factor for each frequency (Llama 3)".to_owned(),
    };
    let files = match model.files.as_slice() {
        [only] => only.display().to_string(),
        [first, ..] => format!("{} and {} more", first.display(), model.files.len() - 1),
        [] => String::new(),
    };
    vec![
        row("name", &model.name),
        row("files", &files),
        row(
            "weights",
            &format!(
                "{} parameters in {}, mostly {}",
                model.parameters,
                Bytes(model.weight_bytes),
                model.format
            ),
        ),
        row(
            "shape",
            &format!(
                "llama, {} layers, width {}, {} heads of {} with {} for keys and values, feed-forward {}, vocabulary {}{}",
                config.layers,
                config.hidden,
                config.heads,
                config.head_dim,
                config.kv_heads,
                config.ffn,
                config.vocab,
                if config.tied_embeddings {
                    ", tied embeddings"
                } else {
                    ""
                }
            ),
        ),
        row(
            "context",
            &format!(
                "{} tokens trained, rope base {}{scaling}",
                config.context, config.rope.base
            ),
        ),
        row("tokenizer", &tokenizer(&model.tokenizer)),
        row(
            "template",
            &match &model.chat_template {
                Some(template) if template.contains("tools") => {
                    format!("{} bytes, knows tools", template.len())
                }
                Some(template) => format!("{} bytes, knows no tools", template.len()),
                None => "none".to_owned(),
            },
        ),
    ]
}

/// What one window takes, in each format of keys and values, against what is free.
fn describe_plans(model: &Model, context: usize) -> Vec<String> {
    let available = plan::available();
    let mut lines: Vec<String> = KvFormat::ALL
        .into_iter()
        .map(|kv| {
            let options = PlanOptions {
                context,
                kv,
                ..PlanOptions::default()
            };
            let plan = MemoryPlan::new(&model.config, model.weight_bytes, options);
            let fits = match &available {
                Some(available) if plan.check(available).is_err() => "; does not fit",
                _ => "",
            };
            row(
                "memory",
                &format!(
                    "{} for one window of {context} tokens: {} weights, {} KV cache in {kv}, {} scratch{fits}",
                    Bytes(plan.total()),
                    Bytes(plan.weights),
                    Bytes(plan.kv),
                    Bytes(plan.scratch),
                ),
            )
        })
        .collect();
    if let Some(available) = available {
        let left = format!("{} left on {}", Bytes(available.bytes), available.source);
        lines.push(row("free", &left));
    }
    lines
}

fn tokenizer(source: &TokenizerSource) -> String {
    match source {
        TokenizerSource::Gguf(vocabulary) => {
            let mut text = format!("{}, {} tokens", vocabulary.model, vocabulary.tokens.len());
            if let Some(pre) = &vocabulary.pre {
                // Writing to a string cannot fail.
                let _ = write!(text, ", split as {pre}");
            }
            text
        }
        TokenizerSource::Json { .. } => "tokenizer.json".to_owned(),
    }
}

fn row(name: &str, text: &str) -> String {
    // What a file says of itself stays on its line.
    let text: String = text
        .chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect();
    format!("{name:<10} {text}")
}
