//! What a client's schema or grammar may cost. Sizes and depths are checked before anything is compiled; the compiler counts its own steps; and
//! whatever is left runs on a thread of its own that is waited for only so long.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use llguidance::api::ParserLimits;
use serde_json::Value;

/// Bytes of all schemas of a request, as JSON.
pub(crate) const MAX_SCHEMA_BYTES: usize = 8 << 20;
/// Arrays and objects inside each other, in a schema.
pub(crate) const MAX_SCHEMA_DEPTH: usize = 200;
/// Values in one schema.
pub(crate) const MAX_SCHEMA_VALUES: usize = 400_000;
/// Bytes of a custom tool's grammar.
pub(crate) const MAX_GRAMMAR_BYTES: usize = 256 << 10;
/// Groups inside each other, in a custom tool's grammar.
pub(crate) const MAX_GRAMMAR_DEPTH: usize = 64;
/// Parts of a custom tool's grammar, with every name replaced by what it stands for.
pub(crate) const MAX_EXPRESSION_PARTS: usize = 100_000;
/// Characters of a custom tool's grammar that refers to itself. Each is a symbol of a slower kind of parser.
pub(crate) const MAX_RULE_PARTS: usize = 20_000;
/// Characters that a regular expression needs at the least. No model's answer is that long, and the compiler may not live to see it.
pub(crate) const MAX_LEAST_LENGTH: usize = 100_000;
/// Largest bound of a repetition in a custom tool's grammar.
pub(crate) const MAX_REPEAT: u32 = 10_000;
/// Tools of one request.
pub(crate) const MAX_TOOLS: usize = 2_000;
/// For all of a request's compilation.
pub(crate) const COMPILE_TIME: Duration = Duration::from_secs(4);
/// After this, tools whose schemas have not been tried yet are given up without a trial.
pub(crate) const TRIAL_TIME: Duration = Duration::from_millis(1_500);
/// For finding what of one tool's schema does not compile.
pub(crate) const RELAX_TIME: Duration = Duration::from_millis(800);
/// Compilations that ran out of time and have not come to an end yet. Each holds a thread until it does.
const MAX_ABANDONED: usize = 4;
/// The schema compiler recurses; reserved, not used up.
const STACK_BYTES: usize = 64 << 20;

static ABANDONED: AtomicUsize = AtomicUsize::new(0);

/// The compiler's own limits. Errors without the parser's state: they go to clients.
pub(crate) fn parser_limits() -> ParserLimits {
    ParserLimits {
        // Some kilobytes each, for every answer; a tool list needs hundreds, an odd pattern thousands.
        max_lexer_states: 50_000,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

/// Runs `work` on a thread of its own for at most `time`. A panic in it is an error.
pub(crate) fn within<T: Send + 'static>(
    time: Duration,
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    if ABANDONED.load(Ordering::Relaxed) >= MAX_ABANDONED {
        return Err("earlier grammars are still being compiled".to_owned());
    }
    // Without a buffer a result is either received or fails to be sent, so that no late one is counted as abandoned for ever.
    let (sender, receiver) = mpsc::sync_channel(0);
    let run = move || {
        let result = catch_unwind(AssertUnwindSafe(work));
        let result = result.unwrap_or_else(|_| Err("the grammar compiler failed".to_owned()));
        if sender.send(result).is_err() {
            ABANDONED.fetch_sub(1, Ordering::Relaxed);
        }
    };
    thread::Builder::new()
        .name("grammar".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(run)
        .map_err(|error| format!("no thread to compile the grammar: {error}"))?;
    receiver.recv_timeout(time).unwrap_or_else(|_| {
        // Counted before the receiver goes, so that the thread's failing send finds it counted.
        ABANDONED.fetch_add(1, Ordering::Relaxed);
        Err(format!("took more than {} s to compile", time.as_secs()))
    })
}

/// Bytes, about, and depth of a value; `None` beyond the limits. Walks without recursion: depth is what is being found out.
pub(crate) fn measure(value: &Value) -> Result<usize, String> {
    let mut bytes = 0;
    let mut values = 0;
    let mut open = vec![(value, 1)];
    while let Some((value, depth)) = open.pop() {
        values += 1;
        if depth > MAX_SCHEMA_DEPTH {
            return Err(format!(
                "is nested deeper than the {MAX_SCHEMA_DEPTH} levels allowed"
            ));
        }
        match value {
            Value::Null | Value::Bool(_) => bytes += 4,
            Value::Number(number) => bytes += number.as_str().len(),
            Value::String(text) => bytes += text.len() + 2,
            Value::Array(list) => {
                bytes += 2 + list.len();
                open.extend(list.iter().map(|value| (value, depth + 1)));
            }
            Value::Object(object) => {
                bytes += 2 + object.keys().map(|key| key.len() + 4).sum::<usize>();
                open.extend(object.values().map(|value| (value, depth + 1)));
            }
        }
        if bytes > MAX_SCHEMA_BYTES || values + open.len() > MAX_SCHEMA_VALUES {
            return Err(format!(
                "is larger than the {MAX_SCHEMA_BYTES} bytes or {MAX_SCHEMA_VALUES} values allowed"
            ));
        }
    }
    Ok(bytes)
}
