//! The command line: what the user asked for. What the program will do is a [`crate::config::Config`].

use std::path::PathBuf;

use clap::{Parser, value_parser};

use crate::config::{Environment, Flags, Sources};

/// Runs OpenAI's Codex CLI on a model you own.
///
/// Sits between Codex and a local model server that speaks the Responses API, such as llama.cpp's llama-server.
#[derive(Debug, Parser)]
#[command(name = "codex-bridge", version, after_help = EXIT_STATUS)]
pub struct Args {
    /// Configuration file, JSON or TOML; otherwise the one named in CODEX_BRIDGE_CONFIG
    #[arg(value_name = "CONFIG")]
    pub config: Option<PathBuf>,

    /// Address to listen on
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub listen: Option<(String, u16)>,

    /// Base URL of the model server, e.g. http://127.0.0.1:8080/v1, or "bundled"
    #[arg(long, value_name = "URL")]
    pub upstream: Option<String>,

    /// Write a bridge configuration, a Codex configuration and a model catalog to DIR, and exit
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = ".", group = "action")]
    pub init: Option<PathBuf>,

    /// With --init: replace files that exist
    #[arg(long, requires = "init")]
    pub force: bool,

    /// With --init: the model's name, instead of asking the model server
    #[arg(long, value_name = "NAME", requires = "init", value_parser = model_name)]
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

/// Codex's own preamble does not fit into less.
const MIN_CONTEXT: u64 = 2048;
/// TOML, in which Codex is told, has no larger number.
pub(crate) const MAX_CONTEXT: u64 = i64::MAX as u64;

const EXIT_STATUS: &str = "\
Exit status: 0 done, 1 unhealthy (--health) or nothing written (--init), 2 wrong usage, 69 cannot start, \
78 wrong configuration";

impl Args {
    /// The layers these arguments name.
    pub fn sources(&self, environment: Environment) -> Sources {
        Sources {
            path: self.config.clone(),
            environment,
            flags: Flags {
                listen: self.listen.clone(),
                upstream: self.upstream.clone(),
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
