//! One clock for both ends of a bridge.

use std::{sync::OnceLock, time::Instant};

static START: OnceLock<Instant> = OnceLock::new();

/// Nanoseconds since the first call.
pub fn nanoseconds() -> u64 {
    let elapsed = START.get_or_init(Instant::now).elapsed();
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}
