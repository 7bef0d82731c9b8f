//! Every counter of the bridge in one value, handed down rather than global, so that tests run side by side.

use std::{fmt, sync::Arc};

mod engine;

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, text},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

use self::engine::Figures;
use crate::upstream::Bundled;

pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Debug, Clone)]
pub struct Metrics {
    /// Answered requests, by route and status.
    pub requests: Family<RequestLabels, Counter>,
    /// From the request head to the end of the answer.
    pub request_seconds: Histogram,
    /// SSE events by what was done with them.
    pub events: Family<EventLabels, Counter>,
    /// Bytes of events and item state that open streams hold right now.
    pub held_bytes: Gauge,
    /// Clients that left before their answer ended.
    pub disconnects: Counter,
    /// Sequences of upstream streams that were not UTF-8, each replaced by U+FFFD.
    pub replaced_sequences: Counter,
    /// Fields of requests that are not known here.
    pub unknown_fields: Counter,
    /// Open client connections.
    pub connections: Gauge,
    registry: Arc<Registry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequestLabels {
    pub route: &'static str,
    pub status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct EventLabels {
    pub action: Action,
}

/// What the rewriter did with an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    Verbatim,
    Rewritten,
}

impl EncodeLabelValue for Action {
    fn encode(
        &self,
        encoder: &mut prometheus_client::encoding::LabelValueEncoder<'_>,
    ) -> Result<(), fmt::Error> {
        let word = match self {
            Self::Verbatim => "verbatim",
            Self::Rewritten => "rewritten",
        };
        word.encode(encoder)
    }
}

impl Metrics {
    pub fn new() -> Self {
        Self::registered(|_| {})
    }

    /// With what the bundled engine tells of itself whenever it is asked.
    pub fn with_engine(engine: Bundled) -> Self {
        Self::registered(|registry| registry.register_collector(Box::new(Figures(engine))))
    }

    fn registered(more: impl FnOnce(&mut Registry)) -> Self {
        // 1 ms to 17 min: a relayed model list at one end, a CPU prefill at the other.
        let seconds = || Histogram::new(exponential_buckets(0.001, 4.0, 11));
        let mut registry = Registry::with_prefix("codex_bridge");
        let metrics = Self {
            requests: Family::default(),
            request_seconds: seconds(),
            events: Family::default(),
            held_bytes: Gauge::default(),
            disconnects: Counter::default(),
            replaced_sequences: Counter::default(),
            unknown_fields: Counter::default(),
            connections: Gauge::default(),
            registry: Arc::default(),
        };
        registry.register("requests", "Answered requests", metrics.requests.clone());
        registry.register(
            "request_seconds",
            "Request head to end of answer",
            metrics.request_seconds.clone(),
        );
        registry.register("events", "Events by treatment", metrics.events.clone());
        registry.register(
            "held_bytes",
            "Bytes of events held back now",
            metrics.held_bytes.clone(),
        );
        registry.register(
            "disconnects",
            "Clients that left before the end of their answer",
            metrics.disconnects.clone(),
        );
        registry.register(
            "replaced_sequences",
            "Upstream sequences that were not UTF-8",
            metrics.replaced_sequences.clone(),
        );
        registry.register(
            "unknown_fields",
            "Request fields that are not known here",
            metrics.unknown_fields.clone(),
        );
        registry.register(
            "connections",
            "Open client connections",
            metrics.connections.clone(),
        );
        more(&mut registry);
        Self {
            registry: Arc::new(registry),
            ..metrics
        }
    }

    /// The OpenMetrics text of `GET /metrics`.
    ///
    /// # Errors
    /// Never in practice: formatting into a string.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_show_under_their_documented_names() {
        let metrics = Metrics::new();
        let labels = RequestLabels {
            route: "responses",
            status: 200,
        };
        metrics.requests.get_or_create(&labels).inc();
        let action = EventLabels {
            action: Action::Verbatim,
        };
        metrics.events.get_or_create(&action).inc_by(3);
        let text = metrics.encode().unwrap();
        for line in [
            r#"codex_bridge_requests_total{route="responses",status="200"} 1"#,
            r#"codex_bridge_events_total{action="verbatim"} 3"#,
            "codex_bridge_held_bytes 0",
            "codex_bridge_disconnects_total 0",
            "codex_bridge_unknown_fields_total 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
