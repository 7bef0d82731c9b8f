//! From options to a running engine, cheapest checks first.

use std::{
    io,
    panic::resume_unwind,
    path::Path,
    sync::{Arc, atomic::AtomicBool},
    thread::{self, ScopedJoinHandle},
};

use super::{
    BackendOptions, DeviceChoice, Inner, LoadError, ModelInfo, cores, language::Language, memory,
    pool::Pool, prepare::Desk, trial,
};
use crate::{
    call_syntax::CallSyntax,
    cpu::{Cpu, CpuOptions},
    device::Device,
    engine::{self, Engine, EngineOptions},
    model::{
        self, Model, TokenizerSource,
        plan::{self, MemoryPlan},
    },
    prompt::Template,
    respond::counters::Counters,
    tokenizer::Tokenizer,
};

/// Shortest prefix that is worth a file.
const WARM_START_TOKENS: usize = 256;
/// Tokens of the first request of a Codex session with a model it does not know, rounded: 8 704 with Codex 0.160, 8 997 with 0.171, 9 950 with 0.146.
const CODEX_FIRST_REQUEST: usize = 9_000;
/// A window below this cannot hold that request and an answer to it.
const CODEX_WINDOW: usize = CODEX_FIRST_REQUEST + 3_000;
/// Threads that prepare requests.
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
    let plan = memory::plan(&model, options, plan::available())?;
    let threads = options.threads.unwrap_or_else(cores::physical);
    // Text is seen to beside the weights: both take about as long.
    let (language, device) = thread::scope(|scope| {
        let text = thread::Builder::new().name("engine-text".to_owned());
        let language = text.spawn_scoped(scope, || {
            Language::new(&model, options, plan.options.context)
        });
        let device = cpu(&model, &plan, threads);
        (language.map(ScopedJoinHandle::join), device)
    });
    let Language {
        tokenizer,
        template,
        grammars,
    } = match language {
        Ok(Ok(language)) => language?,
        Ok(Err(panic)) => resume_unwind(panic),
        Err(error) => return Err(no_thread(&error)),
    };
    let mut device = device?;
    trial::run(
        device.as_mut(),
        tokenizer.bos(),
        &options.model.display().to_string(),
    )?;
    let pool = Pool::new(WORKERS, options.max_queue + options.max_batch)
        .map_err(|error| no_thread(&error))?;
    let info = info(
        &model,
        &plan,
        device.as_ref(),
        threads,
        &template,
        &tokenizer,
    );
    let engine = engine(device, &model, &plan, options);
    // A request with tools that comes meanwhile waits for it, any other does not. Were there no room for it here, that request would do it.
    let prepared = grammars.clone();
    let _ = pool.start(move || prepared.prepare());
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
        end_loops: options.end_loops,
        stopped: AtomicBool::new(false),
    })
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
        warm_start,
        ..EngineOptions::default()
    };
    Engine::start(device, options)
}

fn no_thread(error: &io::Error) -> LoadError {
    LoadError::Device {
        asked: "cpu".to_owned(),
        problem: format!("no thread could be started: {error}"),
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
            "the window has {context} tokens; the first request of a Codex session alone can have {CODEX_FIRST_REQUEST}, so give Codex the small configuration \
             that `codex-bridge --init` writes, or take a model with a larger window"
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
        template_knows_tools: model
            .chat_template
            .as_deref()
            .is_some_and(model::template::knows_tools),
        call_syntax: match template.syntax() {
            CallSyntax::LlamaJson => "llama_json",
            CallSyntax::LlamaPythonic => "llama_pythonic",
            CallSyntax::Hermes => "hermes",
            CallSyntax::SmolLm2 => "smollm2",
        },
        warnings,
    }
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
