//! The rows of the table: what each number is, and what it has to reach.

/// What our number is held against.
#[derive(Debug, Clone, Copy)]
pub enum Goal {
    /// At most this share of the npm bridge's.
    Share(f64),
    /// At least so many times the npm bridge's.
    Times(f64),
    /// Below this value.
    Below(f64),
    None,
}

#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub key: &'static str,
    pub title: &'static str,
    pub digits: usize,
    /// The number without a bridge is taken off before comparing.
    pub is_added: bool,
    pub is_better_higher: bool,
    pub goal: Goal,
}

const fn lower(key: &'static str, title: &'static str, digits: usize, goal: Goal) -> Row {
    Row {
        key,
        title,
        digits,
        is_added: false,
        is_better_higher: false,
        goal,
    }
}

const fn added(key: &'static str, title: &'static str, digits: usize, goal: Goal) -> Row {
    Row {
        is_added: true,
        ..lower(key, title, digits, goal)
    }
}

const fn higher(key: &'static str, title: &'static str, digits: usize, goal: Goal) -> Row {
    Row {
        is_better_higher: true,
        ..lower(key, title, digits, goal)
    }
}

use Goal::{Below, None, Share, Times};

pub const ROWS: &[Row] = &[
    added(
        "request_p50",
        "request, no stream: added p50, ms",
        3,
        Share(0.2),
    ),
    added("request_p99", "request, no stream: added p99, ms", 3, None),
    added(
        "large_p50",
        "request of 60 KB, no stream: added p50, ms",
        3,
        None,
    ),
    higher("rate", "requests/s, 16 connections", 0, None),
    added("first_p50", "first event: added p50, ms", 3, None),
    added("first_p99", "first event: added p99, ms", 3, None),
    added(
        "crowd_p99",
        "first event of 200 streams starting at once: added p99, ms",
        1,
        None,
    ),
    higher(
        "reasoning_rate",
        "20 000 reasoning deltas: thousand events/s",
        0,
        Times(5.0),
    ),
    higher(
        "text_rate",
        "20 000 text deltas: thousand events/s",
        0,
        Times(5.0),
    ),
    higher(
        "arguments_rate",
        "20 000 argument deltas: thousand events/s",
        0,
        Times(5.0),
    ),
    higher(
        "single_rate",
        "20 000 text deltas, an HTTP chunk each: thousand events/s",
        0,
        Times(5.0),
    ),
    higher(
        "llama_rate",
        "20 000 text deltas as llama-server sends them: thousand events/s",
        0,
        Times(5.0),
    ),
    lower(
        "reasoning_cpu",
        "CPU s per million events: reasoning",
        2,
        Share(0.2),
    ),
    lower("text_cpu", "CPU s per million events: text", 2, Share(0.2)),
    lower(
        "arguments_cpu",
        "CPU s per million events: arguments",
        2,
        Share(0.2),
    ),
    lower(
        "single_cpu",
        "CPU s per million events: text, an HTTP chunk each",
        2,
        Share(0.2),
    ),
    lower(
        "llama_cpu",
        "CPU s per million events: text as llama-server sends it",
        2,
        Share(0.2),
    ),
    lower(
        "reasoning_delay_p50",
        "reasoning delta at 100/s: delay p50, ms",
        2,
        None,
    ),
    lower(
        "reasoning_delay_p99",
        "reasoning delta at 100/s: delay p99, ms",
        2,
        None,
    ),
    lower(
        "text_delay_p50",
        "text delta at 100/s: delay p50, ms",
        2,
        Below(0.5),
    ),
    lower(
        "text_delay_p99",
        "text delta at 100/s: delay p99, ms",
        2,
        None,
    ),
    lower(
        "many_reasoning_p50",
        "200 streams x 50/s, reasoning: delay p50, ms",
        2,
        None,
    ),
    lower(
        "many_reasoning_p99",
        "200 streams x 50/s, reasoning: delay p99, ms",
        2,
        None,
    ),
    lower(
        "many_text_p50",
        "200 streams x 50/s, text: delay p50, ms",
        2,
        None,
    ),
    lower(
        "many_text_p99",
        "200 streams x 50/s, text: delay p99, ms",
        2,
        None,
    ),
    lower(
        "many_cpu",
        "200 streams x 50/s, text: share of a core",
        3,
        None,
    ),
    lower("idle_memory", "resident memory, idle: MB", 1, Share(0.25)),
    lower(
        "many_memory",
        "resident memory, 200 streams: MB",
        1,
        Share(1.0 / 6.0),
    ),
    lower(
        "start_up",
        "start until /health answers: ms",
        1,
        Below(20.0),
    ),
    lower(
        "late_connections",
        "upstream connections, 30 requests 20 ms apart, [DONE] 10 ms late",
        0,
        None,
    ),
];
