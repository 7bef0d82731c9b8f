//! Two hundred streams at a time: as a crowd that starts at once, and side by side at the pace of a model.

use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::{task::JoinSet, time};

use super::{Numbers, Setting, latency, quantile, request};
use crate::bench::{
    http::Connection,
    plan::{Kind, Pace, Plan},
};

const STREAMS: u32 = 200;
const RATE: u32 = 50;
/// Three seconds.
const DELTAS: u32 = 150;
const BUFFER: usize = 8 << 10;

/// All ask in the same moment.
pub async fn crowd(setting: Setting<'_>) -> Result<Numbers> {
    let plan = Plan::native(Kind::Text, 1, Pace::Single);
    let address = setting.target.address;
    let request = request::stream_request(address, setting.tools, &plan);
    let mut times = Vec::new();
    // The first crowd opens connections to the upstream; the later ones find them.
    for number in 0..4 {
        let mut connections = Vec::new();
        for _ in 0..STREAMS {
            connections.push(Connection::open(address, BUFFER).await?);
        }
        let mut clients = JoinSet::new();
        for mut connection in connections {
            let request = request.clone();
            clients.spawn(async move { latency::until_first(&mut connection, &request).await });
        }
        while let Some(client) = clients.join_next().await {
            let time = client??;
            if number > 0 {
                times.push(time);
            }
        }
    }
    Ok(vec![("crowd_p99", quantile(&mut times, 0.99))])
}

/// Each gets a delta every 20 ms, spread evenly over those 20 ms.
pub async fn many_streams(setting: Setting<'_>, kind: Kind) -> Result<Numbers> {
    let plan = Plan::native(kind, DELTAS, Pace::Hertz(RATE));
    let address = setting.target.address;
    let request = request::stream_request(address, setting.tools, &plan);
    let cpu = setting.target.cpu_seconds()?;
    let began = Instant::now();
    let mut clients = JoinSet::new();
    let apart = Duration::from_secs(1) / RATE / STREAMS;
    for number in 0..STREAMS {
        let request = request.clone();
        clients.spawn(async move {
            time::sleep(apart * number).await;
            let mut connection = Connection::open(address, BUFFER).await?;
            latency::held(&mut connection, &request).await
        });
    }
    time::sleep(Duration::from_secs((DELTAS / RATE).into()) * 4 / 5).await;
    let resident = setting.target.resident_megabytes()?;
    let mut delays = Vec::new();
    while let Some(client) = clients.join_next().await {
        delays.extend(client??);
    }
    let cpu = (setting.target.cpu_seconds()? - cpu) / began.elapsed().as_secs_f64();
    let (p50, p99) = (quantile(&mut delays, 0.5), quantile(&mut delays, 0.99));
    Ok(match kind {
        Kind::Text => vec![
            ("many_text_p50", p50),
            ("many_text_p99", p99),
            ("many_cpu", cpu),
            ("many_memory", resident),
        ],
        _ => vec![("many_reasoning_p50", p50), ("many_reasoning_p99", p99)],
    })
}
