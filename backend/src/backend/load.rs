//! From options to a running engine, cheapest checks first.

use std::{
    path::Path,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use super::{
    BackendOptions, DeviceChoice, Inner, KvCache, LoadError, ModelInfo, cores, pool::Pool,
    prepare::Desk,
};
use crate::{
    call_syntax::CallSyntax,
    cpu::{Cpu, CpuOptions},
    device::{Device, PAGE_TOKENS},
    engine::{self, Engine, EngineOptions},
    grammar::{Grammars, Vocabulary},
    model::{
        self, Model, TokenizerSource,
        plan::{self, Available, KvFormat, MemoryPlan, PlanOptions},
    },
    prompt::{Template, TemplateOptions},
    respond::counters::Counters,
    tokenizer::Tokenizer,
};

/// Most tokens of a forward pass.
const BATCH_TOKENS: usize = 512;
/// Shortest prefix that is worth a file.
const WARM_START_TOKENS: usize = 256;
/// A window below this cannot hold the first request of a Codex session and an answer to it.
const CODEX_WINDOW: usize = 12_000;
/// A window that was not asked for is a multiple of this.
const CONTEXT_STEP: usize = 1024;
/// Threads that prepare requests, and requests that may wait for them.
const WORKERS: usize = 2;

pub(super) fn load(options: &BackendOptions) -> Result<Inner, LoadError> {
    if let DeviceChoice::Cuda(number) = options.device {
        return Err(LoadError::Device {
            asked: format!("cuda:{number}"),
            problem: "this build has no CUDA device; cpu and auto are there".to_owned(),
        });
    }
    for (option, value) in [
        ("context length", options.context_length),
        ("max batch", Some(options.max_batch)),
        ("threads", options.threads),
    ] {
        if value == Some(0) {
            let problem = "is 0; at least 1 is allowed".to_owned();
            return Err(LoadError::Option { option, problem });
        }
    }
    let model = model::open(&options.model).map_err(|error| LoadError::Model(error.to_string()))?;
    let plan = plan(&model, options)?;
    let tokenizer = Tokenizer::new(&model.tokenizer)
        .map_err(|error| LoadError::Tokenizer(error.to_string()))?
        .with_end_tokens(&model.generation.end_tokens);
    let template = TemplateOptions {
        tools: options.tools,
        context: plan.options.context,
        parameters: model.parameters,
        ..TemplateOptions::default()
    };
    let template = Template::new(model.chat_template.as_deref(), &tokenizer, template)
        .map_err(|error| LoadError::Template(error.to_string()))?;
    let grammars = Grammars::new(vocabulary(&tokenizer))
        .map_err(|error| LoadError::Grammar(error.to_string()))?;
    let pool = Pool::new(WORKERS, options.max_queue + options.max_batch).map_err(|error| {
        let problem = format!("no thread could be started: {error}");
        LoadError::Device {
            asked: "cpu".to_owned(),
            problem,
        }
    })?;
    let threads = options.threads.unwrap_or_else(cores::physical);
    let device = cpu(&model, &plan, threads)?;
    let info = info(
        &model,
        &plan,
        device.as_ref(),
        threads,
        &template,
        &tokenizer,
    );
    let engine = engine(device, &model, &plan, options);
    Ok(Inner {
        desk: Arc::new(Desk {
            context: engine.context(),
            tokenizer,
            template,
            grammars,
            defaults: model.generation.sampling,
            tools: options.tools,
        }),
        engine,
        pool: Arc::new(pool),
        counters: Arc::new(Counters::default()),
        info,
        stopped: AtomicBool::new(false),
    })
}

/// The window and the pool of pages. What was asked for must fit; what was not is chosen so that it does: the whole window once at least, and as often as
/// sequences may run as long as that is no more than half of what is left.
fn plan(model: &Model, options: &BackendOptions) -> Result<MemoryPlan, LoadError> {
    let available = plan::available();
    let trained = model.config.context;
    let context = options.context_length.unwrap_or(trained).min(trained);
    let once = PlanOptions {
        context,
        sequences: 1,
        kv: format(options.kv_cache),
        batch_tokens: BATCH_TOKENS,
        rows: rows(options.max_batch),
    };
    let with = |options| MemoryPlan::new(&model.config, model.weight_bytes, options);
    let Some(available) = available else {
        return Ok(with(once));
    };
    let mut plan = with(once);
    if options.context_length.is_none() && plan.check(&available).is_err() {
        let most = plan.most_pages(available.bytes) as usize * PAGE_TOKENS;
        let context = most / CONTEXT_STEP * CONTEXT_STEP;
        plan = with(PlanOptions {
            context: context.max(CONTEXT_STEP),
            ..once
        });
    }
    plan.check(&available)
        .map_err(|error| LoadError::Memory(error.to_string()))?;
    Ok(with(PlanOptions {
        sequences: sequences(&plan, &available, options.max_batch),
        ..plan.options
    }))
}

fn sequences(once: &MemoryPlan, available: &Available, most: usize) -> usize {
    let half = Available {
        bytes: available.bytes / 2,
        ..*available
    };
    let fit = once.most_pages(half.bytes) / once.pages.max(1);
    (fit as usize).clamp(1, most)
}

/// Rows of logits of a step: each sequence may have a draft to check.
fn rows(max_batch: usize) -> usize {
    (4 * max_batch).max(32)
}

/// Half precision loses nothing that could be measured, and halves what attention reads.
fn format(kv: KvCache) -> KvFormat {
    match kv {
        KvCache::Auto | KvCache::F16 => KvFormat::F16,
        KvCache::F32 => KvFormat::F32,
        KvCache::Bf16 => KvFormat::Bf16,
        KvCache::Q8 => KvFormat::Q8_0,
    }
}

fn cpu(model: &Model, plan: &MemoryPlan, threads: usize) -> Result<Box<dyn Device>, LoadError> {
    let options = CpuOptions {
        threads,
        pages: plan.pages as usize,
        kv: plan.options.kv,
        max_batch_tokens: plan.options.batch_tokens,
        max_rows: plan.options.rows,
        force: None,
    };
    match Cpu::new(model, &options) {
        Ok(cpu) => Ok(Box::new(cpu)),
        Err(error) => Err(LoadError::Device {
            asked: "cpu".to_owned(),
            problem: error.to_string(),
        }),
    }
}

fn engine(
    device: Box<dyn Device>,
    model: &Model,
    plan: &MemoryPlan,
    options: &BackendOptions,
) -> Engine {
    let warm_start = options.warm_start.as_ref().map(|warm| engine::WarmStart {
        dir: warm.dir.clone(),
        max_bytes: warm.max_bytes,
        model: model.fingerprint.clone(),
        min_tokens: WARM_START_TOKENS,
    });
    let options = EngineOptions {
        context: plan.options.context,
        max_running: options.max_batch,
        max_queued: options.max_queue,
        step_target: Duration::from_millis(250),
        warm_start,
        ..EngineOptions::default()
    };
    Engine::start(device, options)
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

fn info(
    model: &Model,
    plan: &MemoryPlan,
    device: &dyn Device,
    threads: usize,
    template: &Template,
    tokenizer: &Tokenizer,
) -> ModelInfo {
    let context = plan.options.context;
    let mut warnings = Vec::new();
    if context < CODEX_WINDOW {
        warnings.push(format!(
            "the window has {context} tokens; the first request of a Codex session alone can have 9000, so give Codex the small configuration \
             or take a model with a larger window"
        ));
    }
    if context < model.config.context {
        let trained = model.config.context;
        warnings.push(format!(
            "the window has {context} of the {trained} tokens that the model was trained for"
        ));
    }
    ModelInfo {
        id: model.name.clone(),
        format: model.format.clone(),
        context,
        trained_context: model.config.context,
        parameters: model.parameters,
        weight_bytes: model.weight_bytes,
        kv_bytes: plan.kv,
        device: device.caps().name.clone(),
        threads,
        tokenizer: tokenizer_kind(&model.tokenizer),
        vocab: tokenizer.vocab_len(),
        template_knows_tools: mentions_tools(model),
        call_syntax: match template.syntax() {
            CallSyntax::LlamaJson => "llama_json",
            CallSyntax::LlamaPythonic => "llama_pythonic",
            CallSyntax::Hermes => "hermes",
            CallSyntax::SmolLm2 => "smollm2",
        },
        warnings,
    }
}

/// Whether the model's own template has a place for tools. Otherwise they are shown the way its family was taught.
fn mentions_tools(model: &Model) -> bool {
    let template = model.chat_template.as_deref();
    template.is_some_and(|source| source.contains("tools"))
}

fn tokenizer_kind(source: &TokenizerSource) -> String {
    match source {
        TokenizerSource::Gguf(vocabulary) => match &vocabulary.pre {
            Some(pre) => format!("{} ({pre})", vocabulary.model),
            None => vocabulary.model.clone(),
        },
        TokenizerSource::Json { tokenizer_json, .. } => tokenizer_json
            .file_name()
            .unwrap_or_else(|| Path::new("tokenizer.json").as_os_str())
            .to_string_lossy()
            .into_owned(),
    }
}
