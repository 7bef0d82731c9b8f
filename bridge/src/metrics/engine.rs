//! The bundled engine's figures, read when somebody scrapes: the engine counts for itself.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};

use crate::upstream::bundled::{BackendStatus, Bundled, Condition};

/// Collects nothing until the model is loaded.
#[derive(Debug)]
pub(super) struct Figures(pub(super) Bundled);

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let up = match self.0.condition() {
            Condition::Ready { status, .. } => {
                encode(&status, &mut encoder)?;
                1
            }
            _ => 0,
        };
        gauge(
            &mut encoder,
            "engine_up",
            "1 while the bundled engine can answer",
            up,
        )
    }
}

fn encode(status: &BackendStatus, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    for (name, help, count) in [
        ("engine_queued", "Requests that wait", status.queued),
        ("engine_running", "Requests being computed", status.running),
        (
            "engine_kv_pages",
            "Pages of the KV cache",
            status.pages_total,
        ),
        (
            "engine_kv_pages_used",
            "Pages held by running requests",
            status.pages_used,
        ),
        (
            "engine_kv_pages_cached",
            "Pages held for later prompts only",
            status.pages_cached,
        ),
    ] {
        gauge(
            encoder,
            name,
            help,
            i64::try_from(count).unwrap_or(i64::MAX),
        )?;
    }
    for (name, help, count) in [
        (
            "engine_prompt_tokens",
            "Prompt tokens computed",
            status.prompt_tokens,
        ),
        (
            "engine_cached_tokens",
            "Prompt tokens found in the cache",
            status.cached_tokens,
        ),
        (
            "engine_generated_tokens",
            "Tokens generated",
            status.generated_tokens,
        ),
        (
            "engine_drafted_tokens",
            "Tokens generated without a step of their own",
            status.drafted_tokens,
        ),
        (
            "engine_responses_completed",
            "Responses that completed",
            status.responses_completed,
        ),
        (
            "engine_responses_looped",
            "Of the completed responses, those ended because they only repeated themselves",
            status.responses_looped,
        ),
        (
            "engine_responses_incomplete",
            "Responses cut by a limit",
            status.responses_incomplete,
        ),
        (
            "engine_responses_failed",
            "Responses that failed",
            status.responses_failed,
        ),
        (
            "engine_responses_cancelled",
            "Responses whose client left",
            status.responses_cancelled,
        ),
        ("engine_calls", "Tool calls made", status.calls),
        (
            "engine_invalid_calls",
            "Tool calls that did not satisfy their schema",
            status.invalid_calls,
        ),
    ] {
        let counter = ConstCounter::new(count);
        let encoder = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
        counter.encode(encoder)?;
    }
    Ok(())
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: i64) -> fmt::Result {
    let gauge = ConstGauge::new(value);
    let encoder = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
    gauge.encode(encoder)
}
