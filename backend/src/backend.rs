//! [`Backend`], the door to the engine: a request in the Responses dialect in, native Responses events out.
//!
//! ```text
//! respond(request) → own thread: checks → prompt → grammar → engine queue → Responding: tokens → segments → events
//! ```
//!
//! Invariants: everything that can be wrong with a request is said by [`Backend::respond`], before the first event; work that takes milliseconds
//! (template, tokens, grammar) never runs on the caller's executor; dropping a [`Responding`] cancels its generation at the engine's next step.

mod cores;
pub mod error;
mod language;
mod load;
mod memory;
pub mod options;
mod pool;
mod prepare;
mod trial;

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hasher, RandomState},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use protocol::{Ids, Object};

pub use self::{
    error::{LoadError, Refusal, RespondError},
    options::{BackendOptions, DeviceChoice, KvCache, ToolsMode, WarmStart},
};
pub use crate::respond::Responding;

use self::{
    pool::{Pool, PoolError},
    prepare::Desk,
};
use crate::{
    engine::Engine,
    grammar::{Checked, Checker, ToolSet},
    respond::{
        self, Check, Script,
        counters::{Counters, count},
    },
};

/// A model, loaded, and the engine that runs it. Clones share both.
#[derive(Clone, Debug)]
pub struct Backend {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    desk: Arc<Desk>,
    engine: Engine,
    pool: Arc<Pool>,
    counters: Arc<Counters>,
    info: ModelInfo,
    /// [`BackendOptions::end_loops`]
    end_loops: bool,
    /// [`Backend::shutdown`] was called.
    stopped: AtomicBool,
}

impl Backend {
    /// Opens the model, checks that it fits into memory, and starts the engine. Blocks for as long as reading and repacking the weights takes.
    ///
    /// # Errors
    /// The model cannot be read or is of a kind that is not supported, the memory plan does not fit, or the device is not there.
    pub fn load(options: &BackendOptions) -> Result<Backend, LoadError> {
        Ok(Backend {
            inner: Arc::new(load::load(options)?),
        })
    }

    /// Takes a request in the Responses dialect, function tools only. Returns when it has been accepted into the engine's queue; the model may not have
    /// started on it. `stream` is not read: [`Responding`] can be read either way.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] for what the client must change, [`Refusal::Busy`] when the queue is full, [`Refusal::Down`] when the engine has stopped.
    pub async fn respond(&self, request: Object) -> Result<Responding, RespondError> {
        let inner = &*self.inner;
        let (desk, engine) = (Arc::clone(&inner.desk), inner.engine.clone());
        let end_loops = inner.end_loops;
        let seed = RandomState::new().build_hasher().finish();
        let accepted = inner.pool.run(move || {
            let prepared = desk
                .prepare(&request, seed)
                .inspect_err(|error| end_with(&engine, error))?;
            let prompt_tokens = prepared.generate.prompt.len();
            let generation = engine.submit(prepared.generate)?;
            let script = Script {
                check: None,
                settings: prepared.settings,
                parser: prepared.parser,
                only_answers: prepared.only_answers,
                end_loops,
                prompt_tokens,
                relaxed: prepared.relaxed,
                ids: Ids::random(),
                clock: respond::now,
            };
            Ok::<_, RespondError>((request, generation, script, prepared.tools))
        });
        let (request, generation, mut script, tools) = self.settled(accepted.await)??;
        script.check = Some(self.check(&tools));
        Ok(Responding::new(
            Box::new(generation),
            &request,
            &inner.info.id,
            &inner.desk.tokenizer,
            Arc::clone(&inner.counters),
            script,
        ))
    }

    /// Tokens of the prompt that [`Backend::respond`] would make of `request`, were they more than fit.
    ///
    /// # Errors
    /// As [`Backend::respond`], the queue and the window apart.
    pub async fn input_tokens(&self, request: Object) -> Result<usize, RespondError> {
        let (desk, engine) = (Arc::clone(&self.inner.desk), self.inner.engine.clone());
        let counted = self.inner.pool.run(move || {
            desk.count(&request)
                .inspect_err(|error| end_with(&engine, error))
        });
        self.settled(counted.await)?
    }

    pub fn info(&self) -> &ModelInfo {
        &self.inner.info
    }

    /// A snapshot; cheap.
    pub fn status(&self) -> BackendStatus {
        let engine = self.inner.engine.status();
        let counters = &*self.inner.counters;
        BackendStatus {
            healthy: engine.healthy && !self.inner.stopped.load(Ordering::Acquire),
            failure: engine.failure,
            queued: engine.queued,
            running: engine.running,
            pages_total: engine.pages_total,
            pages_used: engine.pages_used,
            pages_cached: engine.pages_cached,
            prompt_tokens: engine.prompt_tokens,
            cached_tokens: engine.cached_tokens,
            generated_tokens: engine.generated_tokens,
            drafted_tokens: engine.accepted_tokens + engine.forced_tokens,
            responses_completed: counters.completed.load(Ordering::Relaxed),
            responses_looped: counters.looped.load(Ordering::Relaxed),
            responses_incomplete: counters.incomplete.load(Ordering::Relaxed),
            responses_failed: counters.failed.load(Ordering::Relaxed),
            responses_cancelled: counters.cancelled.load(Ordering::Relaxed),
            calls: counters.calls.load(Ordering::Relaxed),
            invalid_calls: counters.invalid_calls.load(Ordering::Relaxed),
        }
    }

    /// Ends every open response with `response.failed`, and waits until the engine's thread has put everything away. Blocks. Later requests are refused
    /// with [`Refusal::Down`].
    pub fn shutdown(&self) {
        self.inner.stopped.store(true, Ordering::Release);
        self.inner.engine.shutdown();
        wait(self.inner.engine.stopped());
    }

    fn settled<T>(&self, result: Result<T, PoolError>) -> Result<T, RespondError> {
        result.map_err(|error| match error {
            PoolError::Full => RespondError::busy(
                "too many requests wait to be read; try again in 1s".to_owned(),
                1,
            ),
            // A 400 though it is our fault: what made it panic would do so again, and clients repeat a 5xx.
            PoolError::Panicked => RespondError::invalid(
                None,
                "the engine failed on this request; its log says more".to_owned(),
            ),
        })
    }

    /// Checks finished calls on the pool, so that a client's schema keeps no stream waiting; when the pool is busy, a call goes unchecked.
    fn check(&self, tools: &ToolSet) -> Check {
        let checkers: HashMap<String, Arc<Checker>> = tools
            .iter()
            .map(|tool| (tool.name.clone(), Arc::new(Checker::new(tool))))
            .collect();
        let (pool, counters) = (
            Arc::clone(&self.inner.pool),
            Arc::clone(&self.inner.counters),
        );
        Box::new(move |name, arguments| {
            let Some(checker) = checkers.get(name).cloned() else {
                return;
            };
            let (name, arguments) = (name.to_owned(), arguments.to_owned());
            let counters = Arc::clone(&counters);
            let started = pool.start(move || match checker.check(&arguments) {
                Checked::Valid => {}
                Checked::Invalid(problem) => {
                    count(&counters.invalid_calls);
                    tracing::warn!(tool = name, %problem, "a call does not satisfy its tool's schema");
                }
                Checked::Unknown(problem) => {
                    tracing::debug!(tool = name, %problem, "a call could not be checked");
                }
            });
            if started.is_err() {
                tracing::debug!("a call was not checked: too much else to do");
            }
        })
    }
}

/// The engine ends with a template that does not, whether or not the client that brought it about is still there.
fn end_with(engine: &Engine, error: &RespondError) {
    if error.refusal == Refusal::Down {
        engine.fail(&error.error.message);
    }
}

/// Waits on this thread, without a runtime.
fn wait(future: impl Future<Output = ()>) {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    while future.as_mut().poll(&mut context) == Poll::Pending {
        thread::park();
    }
}

/// What is being served. Fixed once loaded.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ModelInfo {
    /// The model's name as its file gives it, else the file's own name.
    pub id: String,
    /// Of the weights: `Q4_1`, `BF16`.
    pub format: String,
    /// Tokens of the running window: prompt and answer together.
    pub context: usize,
    /// Tokens the model was trained for.
    pub trained_context: usize,
    pub parameters: u64,
    pub weight_bytes: u64,
    /// Bytes of the KV cache.
    pub kv_bytes: u64,
    /// `cpu (avx512-vnni, 2 threads)`.
    pub device: String,
    pub threads: usize,
    /// `gpt2 (smollm)`: kind of tokenizer and of its pre-tokenizer.
    pub tokenizer: String,
    pub vocab: usize,
    /// The model's own template knows tools; otherwise they are shown in the family's format.
    pub template_knows_tools: bool,
    /// How the model is told to write calls: `llama_json`, `llama_pythonic`, `hermes`, `smollm2`.
    pub call_syntax: &'static str,
    /// Something worth one line at start-up, such as a window too small for Codex.
    pub warnings: Vec<String>,
}

/// How the engine is doing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackendStatus {
    /// `false` once the device failed or the engine was shut down; it does not come back.
    pub healthy: bool,
    /// How the device failed.
    pub failure: Option<String>,
    /// Requests accepted and not yet running.
    pub queued: usize,
    pub running: usize,
    /// KV pages of 16 tokens.
    pub pages_total: usize,
    /// Held by running sequences.
    pub pages_used: usize,
    /// Held by the prefix cache only, free to be taken.
    pub pages_cached: usize,
    /// Since the start, all responses: prompt tokens computed.
    pub prompt_tokens: u64,
    /// Prompt tokens found in the cache.
    pub cached_tokens: u64,
    pub generated_tokens: u64,
    /// Of `generated_tokens`, drafted or forced by a grammar.
    pub drafted_tokens: u64,
    pub responses_completed: u64,
    /// Of `responses_completed`, those that were ended because their text only repeated itself.
    pub responses_looped: u64,
    pub responses_incomplete: u64,
    pub responses_failed: u64,
    pub responses_cancelled: u64,
    pub calls: u64,
    /// Finished calls whose arguments did not satisfy the tool's schema.
    pub invalid_calls: u64,
}
