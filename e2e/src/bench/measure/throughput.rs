//! How many events a second one stream brings through, and what they cost.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{Numbers, Setting, on_worker, request};
use crate::bench::{frames::Counter, http::Connection, plan::Plan};

const DELTAS: u64 = 20_000;
/// CPU time comes in hundredths of a second, so one stream would say little.
const SHORTEST: Duration = Duration::from_millis(1200);
const BUFFER: usize = 256 << 10;

/// Streams of `plan`, one after the other. `keys`: thousand events a second, CPU seconds a million events.
pub async fn throughput(
    setting: Setting<'_>,
    plan: Plan,
    keys: [&'static str; 2],
) -> Result<Numbers> {
    let address = setting.target.address;
    let request = request::stream_request(address, setting.tools, &plan);
    let stream = move || {
        let request = request.clone();
        on_worker(async move {
            let mut connection = Connection::open(address, BUFFER).await?;
            let mut counter = Counter::default();
            connection.send(&request).await?;
            connection.finish(|bytes| counter.feed(bytes)).await?;
            ensure!(counter.frames >= DELTAS, "only {} events", counter.frames);
            Ok(counter.frames)
        })
    };
    stream().await?;
    let cpu = setting.target.cpu_seconds()?;
    let began = Instant::now();
    let mut events = 0;
    while began.elapsed() < SHORTEST {
        events += stream().await?;
    }
    let took = began.elapsed().as_secs_f64();
    let cpu = setting.target.cpu_seconds()? - cpu;
    #[expect(clippy::cast_precision_loss)]
    let events = events as f64;
    Ok(vec![
        (keys[0], events / took / 1e3),
        (keys[1], cpu / events * 1e6),
    ])
}
