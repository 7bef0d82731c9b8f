//! The thread that owns the device.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use super::{
    EngineOptions,
    shared::{Clock, Limits, Shared, Submitted},
};
use crate::device::Device;

#[expect(
    clippy::too_many_arguments,
    clippy::needless_pass_by_value,
    reason = "the loop follows in the next commit"
)]
pub(super) fn spawn(
    _device: Box<dyn Device>,
    _options: EngineOptions,
    _limits: Limits,
    _requests: mpsc::Receiver<Submitted>,
    shared: Arc<Shared>,
    _stop: watch::Sender<bool>,
    _clock: Clock,
) {
    shared.fail("not built yet");
}
