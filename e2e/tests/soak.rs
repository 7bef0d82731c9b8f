//! The short form of `--bin soak`: memory is not judged, since a few seconds say little about it.

use std::time::Duration;

use codex_bridge_e2e::bench::soak::{self, Settings};

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn streams_cut_on_either_side_leave_nothing_behind() -> anyhow::Result<()> {
    let settings = Settings {
        streams: 50,
        warm_up: Duration::ZERO,
        length: Duration::from_secs(5),
        seed: 1,
    };
    let report = soak::run(settings).await?;
    assert_eq!(report.leaks(), Vec::<String>::new(), "{report:#?}");
    assert!(report.ends.whole > 0 && report.ends.left > 0, "{report:#?}");
    Ok(())
}
