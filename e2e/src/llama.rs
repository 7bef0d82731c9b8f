//! A real llama.cpp server in a child process, on a loopback port of its own.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;

use crate::{
    child::{self, Child},
    gguf::Script,
    install,
};

const SERVER: &str = include_str!("../python/llama_server.py");

/// Loading the 98 MB model takes under a second; the rest is room for a busy machine.
const START_LIMIT: Duration = Duration::from_secs(120);

/// What to serve, and how.
#[derive(Debug, Clone)]
pub struct Options {
    pub model: PathBuf,
    /// Tokens of context, shared evenly by the slots.
    pub context: u32,
    pub slots: u32,
    /// Replaces the model's own chat template.
    pub template: Option<String>,
    /// Tokens after which an answer ends; -1 for no limit.
    pub longest_answer: i32,
    /// Attention by blocks with a running maximum; `None` leaves it to llama.cpp.
    pub flash_attention: Option<bool>,
    /// ggml's number for the type of cached keys: 0 f32, 1 f16, 8 q8_0.
    pub cached_keys: u32,
}

impl Options {
    pub fn new(model: PathBuf) -> Self {
        Self {
            model,
            context: 8192,
            slots: 1,
            template: None,
            longest_answer: -1,
            flash_attention: None,
            cached_keys: 1,
        }
    }

    /// The small real chat model. It was trained on 8192 tokens, so more context would not help.
    pub fn smollm2() -> Result<Self> {
        Ok(Self::new(install::llama()?.smollm2))
    }
}

#[derive(Debug)]
pub struct Llama {
    child: Child,
    origin: String,
    /// Holds the file of a scripted model.
    _folder: Option<TempDir>,
}

impl Llama {
    pub async fn start(options: &Options) -> Result<Self> {
        let parts = install::llama()?;
        let arguments = json!({
            "model": options.model,
            "ctx": options.context,
            "slots": options.slots,
            "threads": 2,
            "template": options.template,
            "alias": "local-model",
            "longest_answer": options.longest_answer,
            "flash_attention": options.flash_attention,
            "cached_keys": options.cached_keys,
        });
        let mut command = Command::new(&parts.python);
        command.args(["-c", SERVER, &arguments.to_string()]);
        let child = Child::spawn("the llama.cpp server", command)?;
        let origin = child.wait_for(START_LIMIT, ready).await?;
        Ok(Self {
            child,
            origin,
            _folder: None,
        })
    }

    /// A scripted model, with room for the longest prompt Codex sends.
    pub async fn scripted(script: &Script) -> Result<Self> {
        let folder = tempfile::tempdir().context("a folder for the model")?;
        let path = folder.path().join("scripted.gguf");
        script.write(&path)?;
        let options = Options {
            context: 32_768,
            ..Options::new(path)
        };
        Ok(Self {
            _folder: Some(folder),
            ..Self::start(&options).await?
        })
    }

    /// `http://127.0.0.1:PORT/v1`
    pub fn base_url(&self) -> String {
        format!("{}/v1", self.origin)
    }

    pub fn origin(&self) -> &str {
        &self.origin
    }

    pub fn log(&self) -> String {
        self.child.log()
    }
}

fn ready(log: &str) -> Option<String> {
    let line = child::lines(log).find_map(|line| line.strip_prefix("READY "))?;
    Some(line.trim().trim_end_matches('/').to_owned())
}
