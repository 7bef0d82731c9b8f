//! Logging: text or JSON lines on stderr, filtered by the configured directives.

use std::io;

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
    subscriber(log, io::stderr)?.try_init()?;
    Ok(())
}

/// The subscriber `init` installs, over any writer.
///
/// # Errors
/// A filter that does not parse.
pub fn subscriber<W>(
    log: &Log,
    writer: W,
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
        LogFormat::Text => Box::new(builder.with_target(false).finish()),
        LogFormat::Json => Box::new(builder.json().flatten_event(true).finish()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_filter_is_named() {
        let log = Log {
            format: LogFormat::Text,
            filter: "codex_bridge=louder".to_owned(),
        };
        let error = subscriber(&log, io::sink).err().unwrap().to_string();
        assert!(error.contains("codex_bridge=louder"), "{error}");
    }
}
