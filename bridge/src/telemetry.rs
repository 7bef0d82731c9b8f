//! Logging: text or JSON lines on stderr, filtered by the configured directives.

use std::io::{self, IsTerminal};

use tracing::Subscriber;
use tracing_subscriber::{EnvFilter, filter, fmt, fmt::MakeWriter, util::TryInitError};

use crate::config::{Log, LogFormat};

#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("log.filter {filter:?} is not a filter: {source}")]
    Filter {
        filter: String,
        source: filter::ParseError,
    },
    #[error("logging was set up already: {0}")]
    Twice(#[from] TryInitError),
}

/// Sends the log of the whole process to stderr.
///
/// # Errors
/// A filter that does not parse, or a second call.
pub fn init(log: &Log) -> Result<(), TelemetryError> {
    use tracing_subscriber::util::SubscriberInitExt;
    subscriber(log, io::stderr, io::stderr().is_terminal())?.try_init()?;
    Ok(())
}

/// The subscriber `init` installs, over any writer; `colour` is for terminals, a file or a journal would keep the codes.
///
/// # Errors
/// A filter that does not parse.
pub fn subscriber<W>(
    log: &Log,
    writer: W,
    colour: bool,
) -> Result<Box<dyn Subscriber + Send + Sync>, TelemetryError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter = EnvFilter::try_new(&log.filter).map_err(|source| TelemetryError::Filter {
        filter: log.filter.clone(),
        source,
    })?;
    let builder = fmt().with_env_filter(filter).with_writer(writer);
    Ok(match log.format {
        LogFormat::Text => Box::new(builder.with_target(false).with_ansi(colour).finish()),
        LogFormat::Json => Box::new(builder.json().flatten_event(true).finish()),
    })
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Seek},
        sync::Arc,
    };

    use super::*;

    #[test]
    fn a_log_that_is_no_terminal_has_no_colour_codes() {
        let mut file = tempfile::tempfile().unwrap();
        let writer = Arc::new(file.try_clone().unwrap());
        let log = Log {
            format: LogFormat::Text,
            filter: "info".to_owned(),
        };
        let subscriber = subscriber(&log, writer, false).unwrap();
        tracing::subscriber::with_default(subscriber, || tracing::info!(id = 7, "request"));
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        assert!(text.contains("request id=7"), "{text:?}");
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }

    #[test]
    fn a_bad_filter_is_named() {
        let log = Log {
            format: LogFormat::Text,
            filter: "codex_bridge=louder".to_owned(),
        };
        let error = subscriber(&log, io::sink, false).err().unwrap().to_string();
        assert!(error.contains("codex_bridge=louder"), "{error}");
    }
}
