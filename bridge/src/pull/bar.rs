//! How far a fetch has come, for people: one line that is drawn anew on a terminal, and now and then a line elsewhere.

use std::{
    io::{self, IsTerminal, Write},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use tracing::Level;

use super::Step;
use crate::telemetry;

const REDRAW: Duration = Duration::from_millis(100);
/// Where lines stay: in a log, in a container.
const NEW_LINE: Duration = Duration::from_secs(5);
const WIDTH: usize = 30;

/// Draws on standard error.
#[derive(Debug)]
pub struct Bar {
    terminal: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    what: String,
    began: Option<Instant>,
    shown: Option<Instant>,
    /// Bytes that were there at the beginning: they say nothing about the speed.
    first: u64,
    /// Columns of the line on the terminal.
    drawn: usize,
    complete: bool,
}

impl Bar {
    pub fn stderr() -> Self {
        Self {
            terminal: io::stderr().is_terminal() && !telemetry::is_json(),
            state: Mutex::default(),
        }
    }

    /// Shows a step, unless the last one was a moment ago.
    pub fn show(&self, step: &Step) {
        match self.draw(step, Instant::now()) {
            None => {}
            Some(line) if !self.terminal => telemetry::tell(Level::INFO, line.trim_end()),
            // If that fails, nobody reads it.
            Some(text) => drop(io::stderr().write_all(text.as_bytes())),
        }
    }

    fn draw(&self, step: &Step, now: Instant) -> Option<String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut opened = false;
        if state.what != step.what {
            // The line before was of another file and is left as it stands.
            opened = self.terminal && state.drawn > 0 && !state.complete;
            *state = State {
                what: step.what.clone(),
                began: Some(now),
                first: step.done,
                ..State::default()
            };
        }
        let complete = step.total == Some(step.done);
        let pause = if self.terminal { REDRAW } else { NEW_LINE };
        let fresh = state
            .shown
            .is_some_and(|shown| now.duration_since(shown) < pause);
        if fresh && !complete {
            return None;
        }
        state.shown = Some(now);
        let seconds = state
            .began
            .map_or(0.0, |began| now.duration_since(began).as_secs_f64());
        let line = line(
            step,
            step.done.saturating_sub(state.first),
            seconds,
            self.terminal,
        );
        if !self.terminal {
            return Some(format!("{line}\n"));
        }
        let width = line.chars().count();
        let rest = " ".repeat(state.drawn.saturating_sub(width));
        state.drawn = width;
        state.complete = complete;
        let before = if opened { "\n" } else { "\r" };
        let after = if complete { "\n" } else { "" };
        Some(format!("{before}{line}{rest}{after}"))
    }
}

fn line(step: &Step, came: u64, seconds: f64, bar: bool) -> String {
    let speed = came as f64 / seconds;
    let speed = if seconds > 0.5 {
        format!(", {}/s", bytes(speed as u64))
    } else {
        String::new()
    };
    let Some(total) = step.total.filter(|total| *total > 0) else {
        return match step.done {
            0 => format!("{}: beginning", step.what),
            done => format!("{}: {}{speed}", step.what, bytes(done)),
        };
    };
    let part = step.done.min(total) as f64 / total as f64;
    let filled = (part * WIDTH as f64) as usize;
    let bar = if bar {
        format!(" [{}{}]", "#".repeat(filled), ".".repeat(WIDTH - filled))
    } else {
        String::new()
    };
    format!(
        "{}:{bar} {:.0} % of {}{speed}",
        step.what,
        (part * 100.0).floor(),
        bytes(total)
    )
}

/// `98.4 MB`.
pub(crate) fn bytes(count: u64) -> String {
    let mut value = count as f64;
    let mut unit = "B";
    for larger in ["kB", "MB", "GB", "TB"] {
        if value < 1000.0 {
            break;
        }
        value /= 1000.0;
        unit = larger;
    }
    if unit == "B" {
        format!("{count} B")
    } else {
        format!("{value:.1} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    fn bar(terminal: bool) -> Bar {
        Bar {
            terminal,
            state: Mutex::default(),
        }
    }

    fn step(done: u64) -> Step {
        Step {
            what: "demo.gguf".to_owned(),
            done,
            total: Some(2_000_000),
        }
    }

    #[test]
    fn a_terminal_gets_one_line_drawn_anew() {
        let (bar, start) = (bar(true), Instant::now());
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        assert_eq!(
            bar.draw(&step(0), at(0)).as_deref(),
            Some("\rdemo.gguf: [..............................] 0 % of 2.0 MB")
        );
        assert_eq!(bar.draw(&step(10), at(50)), None);
        assert_eq!(
            bar.draw(&step(1_000_000), at(1000)).as_deref(),
            Some("\rdemo.gguf: [###############...............] 50 % of 2.0 MB, 1.0 MB/s")
        );
        let end = bar.draw(&step(2_000_000), at(1010)).unwrap();
        assert!(end.contains("100 %") && end.ends_with('\n'), "{end:?}");
    }

    #[test]
    fn a_log_gets_a_line_now_and_then() {
        let (bar, start) = (bar(false), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(
            bar.draw(&step(0), at(0)).as_deref(),
            Some("demo.gguf: 0 % of 2.0 MB\n")
        );
        assert_eq!(bar.draw(&step(500_000), at(4)), None);
        assert_eq!(
            bar.draw(&step(1_000_000), at(5)).as_deref(),
            Some("demo.gguf: 50 % of 2.0 MB, 200.0 kB/s\n")
        );
        assert!(bar.draw(&step(2_000_000), at(6)).is_some());
    }
}
