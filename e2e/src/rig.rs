//! The usual arrangement: Codex, the bridge, and a scripted upstream behind it.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{
    bridge::Bridge,
    codex::Codex,
    install, invariants,
    script::{Answer, Asked, Upstream},
};

#[derive(Debug)]
pub struct Rig {
    pub upstream: Upstream,
    pub bridge: Bridge,
}

impl Rig {
    /// Answers in this order, with the bridge as it comes.
    pub async fn in_order(answers: Vec<Answer>) -> Result<Self> {
        Self::new(Upstream::in_order(answers).await?, json!({})).await
    }

    /// With keys of the bridge's configuration beside `upstream`.
    pub async fn new(upstream: Upstream, config: Value) -> Result<Self> {
        let bridge = Bridge::start(&upstream.base_url(), config).await?;
        Ok(Self { upstream, bridge })
    }

    pub fn codex(&self) -> Result<Codex> {
        Codex::new(install::CODEX, &self.bridge.base_url())
    }

    /// What the upstream was asked: exactly `count` requests, each of which a plain Responses server can take.
    pub fn asked(&self, count: usize) -> Result<Vec<Asked>> {
        let asked = self.upstream.asked();
        ensure!(
            asked.len() == count,
            "the upstream was asked {} times, not {count}",
            asked.len()
        );
        for (index, asked) in asked.iter().enumerate() {
            invariants::check(&asked.body)
                .with_context(|| format!("request {index}: {:#}", asked.body))?;
        }
        Ok(asked)
    }
}
