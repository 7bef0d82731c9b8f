//! Where requests go. A stub until the real one arrives.

pub mod client;
pub mod probe;

use crate::config::UpstreamConfig;

#[derive(Debug)]
pub struct Upstream;

impl Upstream {
    pub fn new(_config: &UpstreamConfig, _client: reqwest::Client) -> Self {
        Self
    }
}
