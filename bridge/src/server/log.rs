//! The one line a request leaves in the log, and the counters that go with it.
//!
//! The line is filled while the request is served and written when the last byte of the answer is gone, or when the
//! client is: [`Entry`] rides inside the response body, so whichever way the body ends, it is dropped exactly once.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use http::{Method, StatusCode};

use crate::metrics::{Metrics, RequestLabels};

/// A handle to the line being filled. Cheap to clone.
#[derive(Clone)]
pub struct RequestLog(Arc<Shared>);

struct Shared {
    started: Instant,
    bytes_in: AtomicU64,
    record: Mutex<Record>,
}

/// What the handlers add to the line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    pub route: &'static str,
    pub model_asked: Option<String>,
    pub model_served: Option<String>,
    pub upstream_status: Option<u16>,
    /// Type of the event that ended the stream, e.g. `response.completed`.
    pub terminal_event: Option<String>,
    /// Tools sent upstream.
    pub tools: Option<usize>,
    /// Tool calls in the answer.
    pub calls: Option<usize>,
    pub changes: Changes,
    /// From the request head to the first event of the answer.
    pub first_event: Option<Duration>,
    /// Why the request failed, where it did.
    pub failure: Option<String>,
}

/// What the bridge left out or mended on the way; `None` where there was nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// By the configuration's `excludedMcpTools`.
    pub tools_excluded: Option<usize>,
    /// Because the answer must match a JSON schema and the upstream cannot do both.
    pub tools_withheld: Option<usize>,
    /// By type.
    pub dropped_tools: Option<String>,
    /// Of the input, by type.
    pub dropped_items: Option<String>,
    /// Of the input, by fault.
    pub mended_items: Option<String>,
    /// Calls of the model beyond the one the client allows.
    pub dropped_calls: Option<u64>,
    pub mended_patches: Option<u64>,
    /// Bad UTF-8 of the upstream.
    pub replaced_sequences: Option<u64>,
}

impl RequestLog {
    pub(super) fn begin() -> Self {
        Self(Arc::new(Shared {
            started: Instant::now(),
            bytes_in: AtomicU64::new(0),
            record: Mutex::new(Record {
                route: "none",
                ..Record::default()
            }),
        }))
    }

    pub fn update(&self, change: impl FnOnce(&mut Record)) {
        change(&mut self.0.record.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Notes that the first event left now; later calls change nothing.
    pub fn first_event(&self) {
        let elapsed = self.elapsed();
        self.update(|record| {
            record.first_event.get_or_insert(elapsed);
        });
    }

    pub fn elapsed(&self) -> Duration {
        self.0.started.elapsed()
    }

    pub(super) fn add_bytes_in(&self, count: usize) {
        self.0.bytes_in.fetch_add(count as u64, Ordering::Relaxed);
    }

    fn bytes_in(&self) -> u64 {
        self.0.bytes_in.load(Ordering::Relaxed)
    }

    fn record(&self) -> Record {
        self.0
            .record
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl fmt::Debug for RequestLog {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("RequestLog")
            .field(&self.record())
            .finish()
    }
}

/// Writes the line when dropped.
pub(super) struct Entry {
    pub(super) log: RequestLog,
    pub(super) id: String,
    pub(super) method: Method,
    pub(super) metrics: Metrics,
    /// `None` until the handler has answered.
    pub(super) status: Option<StatusCode>,
    pub(super) bytes_out: u64,
    pub(super) first_byte: Option<Duration>,
    /// The whole answer was handed to the connection.
    pub(super) complete: bool,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let record = self.log.record();
        let changes = record.changes;
        let duration = self.log.elapsed();
        let status = self.status.map_or(0, |status| status.as_u16());
        let end = if self.complete { "complete" } else { "cut" };
        if !self.complete {
            self.metrics.disconnects.inc();
        }
        self.metrics.request_seconds.observe(duration.as_secs_f64());
        let labels = RequestLabels {
            route: record.route,
            status,
        };
        self.metrics.requests.get_or_create(&labels).inc();
        // Health checks and scrapes come every few seconds and say nothing new.
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
                    id = self.id,
                    method = %self.method,
                    route = record.route,
                    status,
                    end,
                    bytes_in = self.log.bytes_in(),
                    bytes_out = self.bytes_out,
                    ttfb_ms = self.first_byte.map(millis),
                    duration_ms = millis(duration),
                    first_event_ms = record.first_event.map(millis),
                    model_asked = record.model_asked,
                    model_served = record.model_served,
                    upstream_status = record.upstream_status,
                    terminal_event = record.terminal_event,
                    tools = record.tools,
                    calls = record.calls,
                    tools_excluded = changes.tools_excluded,
                    tools_withheld = changes.tools_withheld,
                    dropped_tools = changes.dropped_tools,
                    dropped_items = changes.dropped_items,
                    mended_items = changes.mended_items,
                    dropped_calls = changes.dropped_calls,
                    mended_patches = changes.mended_patches,
                    replaced_sequences = changes.replaced_sequences,
                    failure = record.failure,
                    "request"
                )
            };
        }
        if matches!(record.route, "health" | "metrics") {
            line!(debug);
        } else {
            line!(info);
        }
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}
