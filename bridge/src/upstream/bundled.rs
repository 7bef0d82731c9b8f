//! The engine inside this program: the only module that knows its crate.
//!
//! ```text
//! run:      Fetching ─► Loading ─► Ready ─► (Failed)        waits for nobody; whoever needs the engine waits for the stage
//! respond:  request ─► Backend::respond ─► native events ─► text of an event stream ─► the same rewriter as for a server
//! ```
//!
//! Invariants: reading and repacking weights happens on a thread of its own, never on the runtime's; a request that comes
//! before the model is ready waits or is told so, and is never lost; dropping an answer cancels it.

mod events;
mod model;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use backend::backend::{
    Backend, BackendOptions, DeviceChoice, KvCache, LoadError, Refusal, RespondError, ToolsMode,
    WarmStart,
};
pub use backend::backend::{BackendStatus, ModelInfo};
use http::{HeaderValue, StatusCode};
use protocol::Object;
use tokio::sync::{oneshot, watch};

pub use self::model::{Inspection, inspect};
use super::SendError;
use crate::{
    config::{self, BundledUpstream},
    pull::{self, Bar, Step},
    stream::Body,
    translate::{Capabilities, Dialect},
};

/// A failed device is noticed at the latest after this time; its streams have ended before.
const LOOK: Duration = Duration::from_millis(500);
/// Relaxed schemas that are remembered as logged.
const MOST_RELAXED: usize = 1000;

/// The setting that a model can refuse.
pub const CONTEXT_LENGTH: &str = "upstream.bundled.contextLength";

/// What the engine takes: everything but images.
pub const CAPABILITIES: Capabilities = Capabilities {
    dialect: Dialect::Responses,
    vision: false,
    parallel_calls: true,
    custom_grammar: true,
};

/// The engine, from before its model is there until after it has stopped. Clones share it.
#[derive(Debug, Clone)]
pub struct Bundled(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    settings: BundledUpstream,
    /// The one model name it answers to.
    name: String,
    stage: watch::Sender<Stage>,
    /// What was relaxed and is in the log already.
    relaxed: Mutex<BTreeSet<String>>,
}

#[derive(Debug, Clone)]
enum Stage {
    Fetching(Step),
    Loading,
    Ready(Backend),
    Failed(Fault),
    Stopped,
}

/// How far the engine has come.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "made to answer one question and dropped"
)]
pub enum Condition {
    Fetching(Step),
    Loading,
    Ready {
        model: ModelInfo,
        status: BackendStatus,
    },
    /// It could not start, or its device failed; it does not come back.
    Failed(String),
    Stopped,
}

/// Why there is no engine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    pub message: String,
    pub kind: FaultKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The model named is not there.
    Missing,
    /// It is there and cannot be used.
    Unusable,
    /// The setting of this name, in camelCase, does not suit the model.
    Setting(&'static str),
    /// The machine or the network stands in the way.
    Unavailable,
    /// It ran, and failed.
    Failed,
}

/// A response on its way.
pub struct Answer {
    pub body: Body,
    /// What of the tools' schemas could not be enforced, a sentence each.
    pub relaxed: Vec<String>,
}

impl Bundled {
    /// Nothing happens before [`Bundled::run`].
    pub fn new(settings: BundledUpstream) -> Self {
        Self(Arc::new(Shared {
            name: pull::name(&settings.model),
            settings,
            stage: watch::Sender::new(Stage::Loading),
            relaxed: Mutex::default(),
        }))
    }

    pub fn settings(&self) -> &BundledUpstream {
        &self.0.settings
    }

    /// The model's name for clients.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub fn condition(&self) -> Condition {
        match &*self.0.stage.borrow() {
            Stage::Fetching(step) => Condition::Fetching(step.clone()),
            Stage::Loading => Condition::Loading,
            Stage::Ready(backend) => {
                let status = backend.status();
                if status.healthy {
                    Condition::Ready {
                        model: backend.info().clone(),
                        status,
                    }
                } else {
                    Condition::Failed(failed(status.failure).message)
                }
            }
            Stage::Failed(fault) => Condition::Failed(fault.message.clone()),
            Stage::Stopped => Condition::Stopped,
        }
    }

    /// Fetches the model if need be, loads it, says so by `ready`, and stays until the engine fails.
    pub async fn run(&self, ready: impl FnOnce(&ModelInfo)) -> Fault {
        match self.start().await {
            Ok(backend) => {
                ready(backend.info());
                let last = loop {
                    let status = backend.status();
                    if !status.healthy {
                        break status;
                    }
                    tokio::time::sleep(LOOK).await;
                };
                self.fail(failed(last.failure))
            }
            Err(fault) => self.fail(fault),
        }
    }

    /// Ends every open response, keeps what is worth keeping on disk, and waits for that.
    pub async fn shutdown(&self) {
        let before = self.0.stage.send_replace(Stage::Stopped);
        let Stage::Ready(backend) = before else {
            return;
        };
        let (done, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name("engine-stop".to_owned());
        let stopping = backend.clone();
        let spawned = thread.spawn(move || {
            stopping.shutdown();
            let _ = done.send(());
        });
        match spawned {
            Ok(_) => {
                // An error means that the thread is gone, which is what is waited for.
                let _ = ended.await;
            }
            Err(error) => {
                tracing::warn!(%error, "no thread to stop the engine on; everything else waits for it");
                backend.shutdown();
            }
        }
    }

    /// Gives `request` to the engine, if it is ready.
    ///
    /// # Errors
    /// It is not ready, or does not take the request.
    pub async fn respond(&self, request: Object) -> Result<Answer, SendError> {
        let backend = self.backend()?;
        let responding = backend.respond(request).await.map_err(refused)?;
        let relaxed = responding.relaxed().to_vec();
        self.log_relaxed(&relaxed);
        Ok(Answer {
            body: events::body(responding),
            relaxed,
        })
    }

    /// Waits until the engine can take a request.
    ///
    /// # Errors
    /// It never will, or not within `patience`.
    pub async fn ready(&self, patience: Duration) -> Result<(), SendError> {
        let mut stage = self.0.stage.subscribe();
        let settled = stage.wait_for(|stage| !matches!(stage, Stage::Fetching(_) | Stage::Loading));
        // Either way the stage now says what to tell.
        let _ = tokio::time::timeout(patience, settled).await;
        self.backend().map(drop)
    }

    fn backend(&self) -> Result<Backend, SendError> {
        let starting = |message: String| Err(SendError::Starting { message });
        match &*self.0.stage.borrow() {
            Stage::Ready(backend) => Ok(backend.clone()),
            Stage::Fetching(step) => starting(match step.total {
                Some(total) => format!(
                    "it is being fetched: {} of {} bytes of {}",
                    step.done, total, step.what
                ),
                None => format!("it is being fetched: {} bytes of {}", step.done, step.what),
            }),
            Stage::Loading => starting("it is being loaded".to_owned()),
            Stage::Failed(fault) => Err(SendError::Stopped {
                message: fault.message.clone(),
            }),
            Stage::Stopped => Err(SendError::Stopped {
                message: "it was stopped".to_owned(),
            }),
        }
    }

    async fn start(&self) -> Result<Backend, Fault> {
        let settings = &self.0.settings;
        let bar = Bar::stderr();
        let stage = self.0.stage.clone();
        let report = move |step: &Step| {
            bar.show(step);
            stage.send_replace(Stage::Fetching(step.clone()));
        };
        let path = pull::pull(&settings.model, &settings.places, &report)
            .await
            .map_err(|error| Fault::from(&error))?;
        self.0.stage.send_replace(Stage::Loading);
        let options = options(settings, path);
        let (done, loaded) = oneshot::channel();
        // A thread of its own and not the runtime's: a stop signal must not wait for it.
        std::thread::Builder::new()
            .name("engine-load".to_owned())
            .spawn(move || {
                // Nobody waits any more when the program is being stopped.
                let _ = done.send(Backend::load(&options));
            })
            .map_err(|error| Fault::unavailable(format!("no thread to load the model: {error}")))?;
        let backend = loaded
            .await
            .map_err(|_| Fault::failed("the engine panicked while it loaded the model"))?
            .map_err(|error| Fault::from(&error))?;
        self.0.stage.send_replace(Stage::Ready(backend.clone()));
        Ok(backend)
    }

    fn fail(&self, fault: Fault) -> Fault {
        self.0.stage.send_modify(|stage| {
            if !matches!(stage, Stage::Stopped) {
                *stage = Stage::Failed(fault.clone());
            }
        });
        fault
    }

    fn log_relaxed(&self, relaxed: &[String]) {
        let mut known = self
            .0
            .relaxed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for sentence in relaxed {
            if known.len() < MOST_RELAXED && known.insert(sentence.clone()) {
                tracing::warn!("a tool's schema is enforced in part only: {sentence}");
            }
        }
    }
}

/// `why`: in the device's words; none when the engine was only told to stop.
fn failed(why: Option<String>) -> Fault {
    Fault::failed(&match why {
        Some(why) => format!("the engine failed: {why}"),
        None => "the engine was stopped".to_owned(),
    })
}

impl Fault {
    fn failed(message: &str) -> Self {
        Self {
            message: message.to_owned(),
            kind: FaultKind::Failed,
        }
    }

    /// `problem`: what came, and what is allowed.
    pub fn setting(key: &'static str, problem: &str) -> Self {
        Self {
            message: format!("{key}: {problem}"),
            kind: FaultKind::Setting(key),
        }
    }

    fn unavailable(message: String) -> Self {
        Self {
            message,
            kind: FaultKind::Unavailable,
        }
    }
}

impl From<&pull::Error> for Fault {
    fn from(error: &pull::Error) -> Self {
        Self {
            message: error.to_string(),
            kind: if error.is_missing() {
                FaultKind::Missing
            } else {
                FaultKind::Unavailable
            },
        }
    }
}

impl From<&LoadError> for Fault {
    fn from(error: &LoadError) -> Self {
        if let LoadError::Option { option, problem } = error {
            let key = match *option {
                "context length" => CONTEXT_LENGTH,
                "max batch" => "upstream.bundled.maxBatch",
                "threads" => "upstream.bundled.threads",
                _ => "upstream.bundled",
            };
            return Self::setting(key, problem.strip_prefix("is ").unwrap_or(problem));
        }
        Self {
            message: error.to_string(),
            kind: match error {
                LoadError::Model(_) | LoadError::Tokenizer(_) | LoadError::Template(_) => {
                    FaultKind::Unusable
                }
                _ => FaultKind::Unavailable,
            },
        }
    }
}

fn options(settings: &BundledUpstream, model: std::path::PathBuf) -> BackendOptions {
    BackendOptions {
        device: match settings.device {
            config::Device::Auto => DeviceChoice::Auto,
            config::Device::Cpu => DeviceChoice::Cpu,
        },
        context_length: settings.context_length,
        max_batch: settings.max_batch,
        max_queue: settings.max_queue,
        threads: settings.threads,
        kv_cache: match settings.kv_cache {
            config::KvCache::Auto => KvCache::Auto,
            config::KvCache::F32 => KvCache::F32,
            config::KvCache::F16 => KvCache::F16,
            config::KvCache::Bf16 => KvCache::Bf16,
            config::KvCache::Q8 => KvCache::Q8,
        },
        tools: match settings.tools {
            config::ToolsMode::Auto => ToolsMode::Auto,
            config::ToolsMode::Full => ToolsMode::Full,
            config::ToolsMode::Compact => ToolsMode::Compact,
            config::ToolsMode::Off => ToolsMode::Off,
        },
        end_loops: settings.end_loops,
        warm_start: settings.warm_start.as_ref().map(|warm| WarmStart {
            dir: warm.folder.clone(),
            max_bytes: warm.max_bytes,
        }),
        ..BackendOptions::new(model)
    }
}

fn refused(refusal: RespondError) -> SendError {
    let error = refusal.error;
    let (status, retry_after) = match refusal.refusal {
        Refusal::Invalid => (StatusCode::BAD_REQUEST, None),
        Refusal::Busy { retry_after } => (
            StatusCode::TOO_MANY_REQUESTS,
            Some(HeaderValue::from(retry_after)),
        ),
        Refusal::Down => (StatusCode::SERVICE_UNAVAILABLE, None),
    };
    SendError::Refused {
        status,
        error,
        retry_after,
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Answer")
            .field("relaxed", &self.relaxed)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_engine_says_how_it_failed() {
        let why = Some("cpu: a row of logits holds a NaN".to_owned());
        assert_eq!(
            failed(why),
            Fault {
                message: "the engine failed: cpu: a row of logits holds a NaN".to_owned(),
                kind: FaultKind::Failed,
            }
        );
        assert_eq!(failed(None).message, "the engine was stopped");
    }
}
