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
/// Schemas inside each other, along references. The compiler's stack takes some 6 KiB for each.
pub(crate) const MAX_REFERENCE_DEPTH: usize = 8_000;
/// Schemas inside each other, along references, for the check of a finished call. It runs on threads with small stacks.
pub(crate) const MAX_CHECKED_DEPTH: usize = 200;
/// Optional properties of one object; the parser may have each of them before it at once.
pub(crate) const MAX_OPTIONAL: usize = 400;
/// Alternatives that are arrays, objects or schemas, in one place.
pub(crate) const MAX_ALTERNATIVES: usize = 1_000;
/// Patterns of a schema that one text may have to satisfy together. The states of their intersection multiply.
pub(crate) const MAX_MEETING: usize = 4;
/// Items that an array must have.
pub(crate) const MAX_LEAST_ITEMS: u64 = 10_000;
/// Values in one schema.
pub(crate) const MAX_SCHEMA_VALUES: usize = 400_000;
/// Bytes of a custom tool's grammar.
pub(crate) const MAX_GRAMMAR_BYTES: usize = 256 << 10;
/// Groups inside each other, in a custom tool's grammar.
pub(crate) const MAX_GRAMMAR_DEPTH: usize = 64;
/// Parts of a custom tool's grammar, with every name replaced by what it stands for.
pub(crate) const MAX_EXPRESSION_PARTS: usize = 100_000;
/// Groups inside each other, in a custom tool's grammar, with every name replaced by what it stands for.
pub(crate) const MAX_EXPRESSION_DEPTH: usize = 2_000;
/// The same where the grammar refers to itself, with every name replaced once.
pub(crate) const MAX_RULE_DEPTH: usize = 10_000;
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
const STACK_BYTES: usize = 256 << 20;
/// Seconds after which one of [`MAX_ABANDONED`] may have come to its end.
pub(crate) const RETRY_AFTER: u64 = 5;

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

/// Why work within a limit came to nothing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Unfinished {
    /// Nobody's fault; the same may be done later.
    Busy(String),
    Failed(String),
}

/// Runs `work` on a thread of its own for at most `time`. A panic in it is an error.
pub(crate) fn within<T: Send + 'static>(
    time: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Unfinished> {
    within_some(&ABANDONED, time, work)
}

/// [`within`], with a count of what was abandoned.
fn within_some<T: Send + 'static>(
    abandoned: &'static AtomicUsize,
    time: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Unfinished> {
    if abandoned.load(Ordering::Relaxed) >= MAX_ABANDONED {
        let problem = "earlier grammars are still being compiled".to_owned();
        return Err(Unfinished::Busy(problem));
    }
    // Without a buffer a result is either received or fails to be sent, so that no late one is counted as abandoned for ever.
    let (sender, receiver) = mpsc::sync_channel(0);
    let run = move || {
        let result = catch_unwind(AssertUnwindSafe(work));
        let failed = |_| Unfinished::Failed("the grammar compiler failed".to_owned());
        if sender.send(result.map_err(failed)).is_err() {
            abandoned.fetch_sub(1, Ordering::Relaxed);
        }
    };
    thread::Builder::new()
        .name("grammar".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(run)
        .map_err(|error| Unfinished::Busy(format!("no thread to compile the grammar: {error}")))?;
    receiver.recv_timeout(time).unwrap_or_else(|_| {
        // Counted before the receiver goes, so that the thread's failing send finds it counted.
        abandoned.fetch_add(1, Ordering::Relaxed);
        let problem = format!("took more than {} s to compile", time.as_secs());
        Err(Unfinished::Failed(problem))
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

/// One of several things that are inside each other and refer to each other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Level {
    /// Without what it refers to.
    pub(crate) depth: usize,
    /// To which of them, and at which depth.
    pub(crate) references: Vec<(usize, usize)>,
}

/// How deep something that follows all references, and follows each of them once, gets at the most. Walks without recursion.
pub(crate) fn depth(levels: &[Level]) -> usize {
    let mut users: Vec<Vec<(usize, usize)>> = vec![Vec::new(); levels.len()];
    for (user, level) in levels.iter().enumerate() {
        for &(target, depth) in &level.references {
            users[target].push((user, depth));
        }
    }
    let mut depths: Vec<usize> = levels.iter().map(|level| level.depth).collect();
    let mut open: Vec<usize> = levels.iter().map(|level| level.references.len()).collect();
    let mut done: Vec<usize> = (0..open.len()).filter(|at| open[*at] == 0).collect();
    let mut next = 0;
    while let Some(&target) = done.get(next) {
        next += 1;
        for &(user, depth) in &users[target] {
            depths[user] = depths[user].max(depth.saturating_add(depths[target]));
            open[user] -= 1;
            if open[user] == 0 {
                done.push(user);
            }
        }
    }
    let straight = done.iter().map(|at| depths[*at]).max().unwrap_or(0);
    // The rest refer to themselves, or to such; a walk comes through each of them at most once, and then to one of the others.
    let rest = (0..levels.len()).filter(|at| open[*at] > 0);
    let through = rest.map(|at| {
        let deepest = levels[at].references.iter().map(|(_, depth)| *depth).max();
        levels[at].depth.max(deepest.unwrap_or(0))
    });
    through.fold(straight, usize::saturating_add)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};

    use super::*;

    #[test]
    fn what_runs_too_long_makes_later_work_wait_until_it_ends() {
        static ABANDONED: AtomicUsize = AtomicUsize::new(0);
        let end = Arc::new(Barrier::new(MAX_ABANDONED + 1));
        for _ in 0..MAX_ABANDONED {
            let end = Arc::clone(&end);
            let work = move || {
                end.wait();
            };
            let unfinished = within_some(&ABANDONED, Duration::ZERO, work);
            assert!(matches!(unfinished, Err(Unfinished::Failed(_))));
        }
        let refused = within_some(&ABANDONED, COMPILE_TIME, || 7);
        assert!(matches!(refused, Err(Unfinished::Busy(_))), "{refused:?}");
        end.wait();
        while ABANDONED.load(Ordering::Relaxed) > 0 {
            thread::yield_now();
        }
        assert_eq!(within_some(&ABANDONED, COMPILE_TIME, || 7), Ok(7));
    }

    #[test]
    fn the_depth_is_that_of_the_longest_way_and_of_a_circle_all_of_it() {
        let level = |depth, references: &[(usize, usize)]| Level {
            depth,
            references: references.to_vec(),
        };
        assert_eq!(depth(&[]), 0);
        let straight = [
            level(3, &[(1, 2), (2, 1)]),
            level(4, &[(2, 4)]),
            level(5, &[]),
        ];
        assert_eq!(depth(&straight), 2 + 4 + 5);
        let circle = [
            level(3, &[(1, 2)]),
            level(4, &[(0, 4), (2, 1)]),
            level(5, &[]),
        ];
        assert_eq!(depth(&circle), 3 + 4 + 5);
        let long: Vec<Level> = (0..100_000)
            .map(|at| level(1, &[((at + 1) % 100_000, 1)]))
            .collect();
        assert_eq!(depth(&long), 100_000);
    }
}
