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
pub const REMARKS: &[(&str, &str)] = &[
    ("cold_input", "tokens of the cold prompt"),
    ("next_input", "tokens of the next one"),
    ("next_cached", "of them cached"),
    ("deep_output", "tokens decoded behind it"),
    ("deep_step", "tokens a delta there (above 1: drafts)"),
    ("prefill_input", "tokens of the short prompt"),
    ("decode_output", "tokens decoded behind a question"),
    ("decode_step", "tokens a delta there"),
    ("streams_output", "tokens decoded by 8 streams"),
    ("streams_step", "tokens a delta there"),
    ("busy_share", "% of core 0 that the busy process got"),
    ("pss_start", "proportional memory after the start, MiB"),
    ("anonymous_start", "of it without a file behind, MiB"),
    ("pss_cached", "proportional memory with one cached, MiB"),
    ("anonymous_cached", "of it without a file behind, MiB"),
];
