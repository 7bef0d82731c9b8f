//! The rows of the table: what each number is, and what it has to reach.

use super::session::Session;

/// What our number is held against: what it must reach, and what it aims at.
#[derive(Debug, Clone, Copy)]
pub enum Goal {
    /// So many times better than llama-server on its best format.
    Times(f64, f64),
    AtLeast(f64, f64),
    AtMost(f64, f64),
    None,
}

#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub key: &'static str,
    pub session: Session,
    pub title: &'static str,
    pub digits: usize,
    pub is_better_higher: bool,
    pub goal: Goal,
    /// On the packaged file it must not be slower than llama-server on the same file.
    pub is_par: bool,
}

const fn lower(
    key: &'static str,
    session: Session,
    title: &'static str,
    digits: usize,
    goal: Goal,
) -> Row {
    Row {
        key,
        session,
        title,
        digits,
        is_better_higher: false,
        goal,
        is_par: false,
    }
}

const fn higher(
    key: &'static str,
    session: Session,
    title: &'static str,
    digits: usize,
    goal: Goal,
) -> Row {
    Row {
        is_better_higher: true,
        ..lower(key, session, title, digits, goal)
    }
}

const fn par(row: Row) -> Row {
    Row {
        is_par: true,
        ..row
    }
}

use Goal::{AtLeast, AtMost, None, Times};
use Session::{Long, Memory, Short, Start, Streams};

pub const ROWS: &[Row] = &[
    lower(
        "cold",
        Long,
        "cold prompt of 7,650 tokens: time to first token, s",
        2,
        Times(4.0, 6.0),
    ),
    lower(
        "next",
        Long,
        "the same and 200 tokens more: time to first token, s",
        3,
        Times(4.0, 6.0),
    ),
    higher(
        "deep",
        Long,
        "decode behind that, tok/s",
        1,
        Times(2.0, 3.0),
    ),
    par(higher(
        "prefill",
        Short,
        "prefill of 512 tokens, tok/s",
        0,
        Times(1.5, 2.5),
    )),
    par(higher(
        "decode",
        Short,
        "decode of 128 tokens, one stream, tok/s",
        1,
        Times(1.6, 2.0),
    )),
    higher(
        "streams",
        Streams,
        "8 streams, total tok/s",
        1,
        Times(1.5, 2.0),
    ),
    higher(
        "streams_sent",
        Streams,
        "the same, their prompts included",
        1,
        None,
    ),
    higher(
        "busy",
        Short,
        "decode beside a process that has core 0, tok/s",
        1,
        None,
    ),
    higher(
        "busy_keeps",
        Short,
        "so decode keeps, % of quiet",
        0,
        AtLeast(70.0, 85.0),
    ),
    lower(
        "rss_start",
        Memory,
        "resident memory, room for 8 conversations of 8k, MiB",
        0,
        Times(4.0, 8.0),
    ),
    lower(
        "rss_cached",
        Memory,
        "with one of 7,650 tokens cached, MiB",
        0,
        Times(3.0, 4.0),
    ),
    lower(
        "start",
        Start,
        "start to healthy, room for 8, ms",
        0,
        AtMost(300.0, 150.0),
    ),
    lower(
        "start_one",
        Start,
        "start to healthy, room for 1, ms",
        0,
        None,
    ),
];

/// What a reader needs to judge the rows, with the title it is printed under.
pub const REMARKS: &[(&str, &str, usize)] = &[
    ("cold_input", "tokens of the cold prompt", 0),
    ("next_input", "tokens of the next one", 0),
    ("next_cached", "of them cached", 0),
    ("deep_output", "tokens decoded behind it", 0),
    (
        "drafted_long",
        "tokens guessed by prompt lookup meanwhile",
        0,
    ),
    ("prefill_input", "tokens of the short prompt", 0),
    ("decode_output", "tokens decoded behind a question", 0),
    (
        "drafted_short",
        "tokens guessed by prompt lookup in all answers",
        0,
    ),
    ("streams_output", "tokens decoded by 8 streams", 0),
    (
        "drafted_streams",
        "tokens guessed by prompt lookup meanwhile",
        0,
    ),
    ("busy_share", "% of core 0 that the busy process got", 0),
    ("pss_start", "proportional memory after the start, MiB", 0),
    ("anonymous_start", "of it without a file behind, MiB", 0),
    (
        "pss_cached",
        "proportional memory with one conversation cached, MiB",
        0,
    ),
    ("anonymous_cached", "of it without a file behind, MiB", 0),
    ("others_long", "cores that others took: long prompts", 2),
    (
        "others_short",
        "cores that others took: prefill and decode of one stream",
        2,
    ),
    ("others_streams", "cores that others took: 8 streams", 2),
    ("others_memory", "cores that others took: memory", 2),
    ("others_start", "cores that others took: starts", 2),
];
