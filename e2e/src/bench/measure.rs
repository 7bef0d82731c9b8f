//! One measurement each: a running target in, named numbers out.

mod latency;
mod many;
pub(super) mod request;
mod throughput;

use std::{future::Future, time::Duration};

use anyhow::Result;

pub use self::{
    latency::{delays, first_event, large_requests, late_done, request_rate, requests},
    many::{crowd, many_streams},
    request::Tools,
    throughput::throughput,
};
use super::{target::Target, upstream::Upstream};

/// Numbers under the keys of [`super::rows::ROWS`].
pub type Numbers = Vec<(&'static str, f64)>;

/// What every measurement needs.
#[derive(Debug, Clone, Copy)]
pub struct Setting<'a> {
    pub target: &'a Target,
    pub upstream: &'a Upstream,
    pub tools: Tools,
}

/// The value below which this share of them lies.
fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss
    )]
    let index = ((values.len() as f64 - 1.0) * share).round() as usize;
    values.get(index).copied().unwrap_or(f64::NAN)
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// On a worker of the runtime, where waking the other end costs least.
async fn on_worker<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    tokio::spawn(work).await?
}
