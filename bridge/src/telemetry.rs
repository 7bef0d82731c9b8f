//! Logging: text or JSON lines on stderr, filtered by the configured directives. What people and programs are told beside it (the ready line, the last
//! words) comes in the same form, so that a reader of JSON finds nothing else. Nobody may be reading: that is no reason to stop.

use std::{
    io::{self, IsTerminal, Write},
    panic,
    sync::OnceLock,
};

use serde_json::json;
use tracing::{Level, Subscriber};
use tracing_subscriber::{
    EnvFilter, filter, fmt,
    fmt::{
        MakeWriter,
        format::Writer,
        time::{FormatTime, SystemTime},
    },
    util::TryInitError,
};

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
    let format = *FORMAT.get_or_init(|| log.format);
    if format == LogFormat::Json {
        panic::set_hook(Box::new(|panic| {
            tell(Level::ERROR, &panic.to_string());
        }));
    }
    Ok(())
}

/// Set when the log is; before, everything is text.
static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// Is stderr a stream of JSON lines?
pub fn is_json() -> bool {
    FORMAT.get() == Some(&LogFormat::Json)
}

/// One line on stderr that no filter holds back; `level` is for readers of JSON.
pub fn tell(level: Level, line: &str) {
    let line = match is_json() {
        true => as_json(level, line),
        false => format!("{line}\n"),
    };
    // There is no third place to say that nobody listens.
    let _ = io::stderr().write_all(line.as_bytes());
}

/// As the log writes an event without fields.
fn as_json(level: Level, line: &str) -> String {
    let mut timestamp = String::new();
    // Writing to a string cannot fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut timestamp));
    let line = json!({
        "timestamp": timestamp,
        "level": level.as_str(),
        "message": line,
        "target": env!("CARGO_CRATE_NAME"),
    });
    format!("{line}\n")
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
    // An error of the log would be told on stderr, in a way that panics when that is what is broken.
    let builder = fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .log_internal_errors(false);
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

    use serde_json::Value;

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
    fn what_is_told_is_a_line_like_the_logs_own() {
        let line = as_json(Level::INFO, "ready \"now\"");
        assert!(line.ends_with('\n') && line.matches('\n').count() == 1);
        let told: Value = serde_json::from_str(&line).unwrap();
        let logged = {
            let mut file = tempfile::tempfile().unwrap();
            let writer = Arc::new(file.try_clone().unwrap());
            let log = Log {
                format: LogFormat::Json,
                filter: "info".to_owned(),
            };
            let subscriber = subscriber(&log, writer, false).unwrap();
            tracing::subscriber::with_default(subscriber, || tracing::info!("ready \"now\""));
            file.rewind().unwrap();
            serde_json::from_reader::<_, Value>(file).unwrap()
        };
        let keys = |line: &Value| {
            line.as_object()
                .unwrap()
                .keys()
                .cloned()
                .collect::<Vec<_>>()
        };
        assert_eq!(keys(&told), keys(&logged));
        assert_eq!(told["message"], logged["message"]);
        assert_eq!(told["level"], "INFO");
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
