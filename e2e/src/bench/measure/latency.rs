//! How long one request, one first event and one delta take.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::{task::JoinSet, time};

use super::{Numbers, Setting, milliseconds, on_worker, quantile, request};
use crate::bench::{
    clock,
    frames::{self, Frames},
    http::Connection,
    plan::{Ending, Kind, Pace, Plan},
};

const WARM_UP: usize = 300;
const REQUESTS: usize = 2000;
const LARGE_REQUESTS: usize = 300;
const STREAMS: usize = 500;
const CONNECTIONS: usize = 16;
const RATE_TIME: Duration = Duration::from_millis(1500);
const LATE_REQUESTS: usize = 30;
const APART: Duration = Duration::from_millis(20);
const BUFFER: usize = 64 << 10;

/// One after the other over one connection.
pub async fn requests(setting: Setting<'_>) -> Result<Numbers> {
    let address = setting.target.address;
    let request = request::json_request(address, setting.tools);
    let mut times = timed(setting, request, REQUESTS).await?;
    Ok(vec![
        ("request_p50", quantile(&mut times, 0.5)),
        ("request_p99", quantile(&mut times, 0.99)),
    ])
}

pub async fn large_requests(setting: Setting<'_>) -> Result<Numbers> {
    let address = setting.target.address;
    let request = request::large_request(address, setting.tools);
    let mut times = timed(setting, request, LARGE_REQUESTS).await?;
    Ok(vec![("large_p50", quantile(&mut times, 0.5))])
}

async fn timed(setting: Setting<'_>, request: Vec<u8>, count: usize) -> Result<Vec<f64>> {
    let address = setting.target.address;
    on_worker(async move {
        let mut connection = Connection::open(address, BUFFER).await?;
        let mut times = Vec::with_capacity(count);
        for number in 0..WARM_UP + count {
            let began = Instant::now();
            connection.send(&request).await?;
            connection.finish(|_| {}).await?;
            if number >= WARM_UP {
                times.push(milliseconds(began.elapsed()));
            }
        }
        Ok(times)
    })
    .await
}

/// From sixteen connections, each sending again as soon as it is answered.
pub async fn request_rate(setting: Setting<'_>) -> Result<Numbers> {
    let address = setting.target.address;
    let request = request::json_request(address, setting.tools);
    let began = Instant::now();
    let mut clients = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let request = request.clone();
        clients.spawn(async move {
            let mut connection = Connection::open(address, BUFFER).await?;
            let mut answered = 0_u32;
            while began.elapsed() < RATE_TIME {
                connection.send(&request).await?;
                connection.finish(|_| {}).await?;
                answered += 1;
            }
            Ok::<_, anyhow::Error>(answered)
        });
    }
    let mut answered = 0.0;
    while let Some(client) = clients.join_next().await {
        answered += f64::from(client??);
    }
    Ok(vec![("rate", answered / began.elapsed().as_secs_f64())])
}

/// From the request to the end of the first frame.
pub async fn first_event(setting: Setting<'_>) -> Result<Numbers> {
    let plan = Plan::native(Kind::Text, 1, Pace::Single);
    let address = setting.target.address;
    let request = request::stream_request(address, setting.tools, &plan);
    let mut times = on_worker(async move {
        let mut connection = Connection::open(address, BUFFER).await?;
        let mut times = Vec::with_capacity(STREAMS);
        for number in 0..STREAMS + WARM_UP {
            let time = until_first(&mut connection, &request).await?;
            if number >= WARM_UP {
                times.push(time);
            }
        }
        Ok(times)
    })
    .await?;
    Ok(vec![
        ("first_p50", quantile(&mut times, 0.5)),
        ("first_p99", quantile(&mut times, 0.99)),
    ])
}

/// Sends, reads the answer to its end, and tells when its first frame was there, in milliseconds.
pub(super) async fn until_first(connection: &mut Connection, request: &[u8]) -> Result<f64> {
    let began = Instant::now();
    let mut frames = Frames::default();
    let mut first = None;
    connection.send(request).await?;
    connection
        .finish(|bytes| {
            frames.feed(bytes, |_| {
                first.get_or_insert_with(|| milliseconds(began.elapsed()));
            });
        })
        .await?;
    first.context("a stream without an event")
}

/// One stream of a hundred deltas a second, each of which bears the moment it left.
pub async fn delays(setting: Setting<'_>, kind: Kind) -> Result<Numbers> {
    let plan = Plan::native(kind, 200, Pace::Hertz(100));
    let address = setting.target.address;
    let request = request::stream_request(address, setting.tools, &plan);
    let mut delays = on_worker(async move {
        let mut connection = Connection::open(address, BUFFER).await?;
        held(&mut connection, &request).await
    })
    .await?;
    let keys = match kind {
        Kind::Text => ["text_delay_p50", "text_delay_p99"],
        _ => ["reasoning_delay_p50", "reasoning_delay_p99"],
    };
    Ok(vec![
        (keys[0], quantile(&mut delays, 0.5)),
        (keys[1], quantile(&mut delays, 0.99)),
    ])
}

/// The delay of every delta of one stream, in milliseconds.
pub(super) async fn held(connection: &mut Connection, request: &[u8]) -> Result<Vec<f64>> {
    let mut frames = Frames::default();
    let mut delays = Vec::new();
    connection.send(request).await?;
    connection
        .finish(|bytes| {
            let now = clock::nanoseconds();
            frames.feed(bytes, |frame| {
                if let Some(left) = frames::stamp_of(frame) {
                    delays.push(milliseconds(Duration::from_nanos(now.saturating_sub(left))));
                }
            });
        })
        .await?;
    Ok(delays)
}

/// Upstream connections for requests one after the other whose `[DONE]` comes after the terminal event.
pub async fn late_done(setting: Setting<'_>) -> Result<Numbers> {
    let plan = Plan::native(Kind::Text, 5, Pace::Single).ending(Ending::LateDone);
    let address = setting.target.address;
    let request = request::stream_request(address, setting.tools, &plan);
    on_worker(async move {
        let mut connection = Connection::open(address, BUFFER).await?;
        for _ in 0..LATE_REQUESTS {
            connection.send(&request).await?;
            connection.finish(|_| {}).await?;
            // A bridge quicker than the upstream's `[DONE]` would need another connection in any case.
            time::sleep(APART).await;
        }
        Ok(())
    })
    .await?;
    #[expect(clippy::cast_precision_loss)]
    Ok(vec![("late_connections", setting.upstream.asked() as f64)])
}
