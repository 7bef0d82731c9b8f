//! Medians and spreads over the rounds as Markdown tables, and every number as JSON.

use std::{collections::BTreeMap, fmt::Write as _};

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde_json::{Value, json};

use super::{
    contestant::{Contestant, Extra, Format, THREADS},
    rows::{Goal, REMARKS, ROWS, Row},
    session::{Numbers, Session},
};
use crate::bench::report::machine;

/// Everything measured, a list of rounds for each contestant and key.
#[derive(Debug, Default)]
pub struct Results {
    numbers: BTreeMap<(Contestant, String), Vec<f64>>,
    /// Bytes a second that two threads read, a list of rounds.
    bandwidth: Vec<f64>,
    extra: Extra,
}

/// Ours against theirs, as the goals name them.
const PAIRS: [(Contestant, Contestant); 3] = [
    (Contestant::OursQ4_1, Contestant::LlamaQ4_0),
    (Contestant::OursQ4_0, Contestant::LlamaQ4_0),
    (Contestant::OursQ4_1, Contestant::LlamaQ4_1),
];

/// The last pair, which has the same file on both sides.
const PAR: usize = 2;

impl Results {
    pub fn new(extra: Extra) -> Self {
        Self {
            extra,
            ..Self::default()
        }
    }

    pub fn extra(&self) -> &Extra {
        &self.extra
    }

    pub fn add(&mut self, contestant: Contestant, numbers: Numbers) {
        for (key, number) in numbers {
            let rounds = self.numbers.entry((contestant, key.to_owned()));
            rounds.or_default().push(number);
        }
    }

    /// Rounds of a session so far.
    pub fn taken(&self, session: Session) -> usize {
        let keys = ROWS.iter().filter(|row| row.session == session);
        let rounds = keys.flat_map(|row| Contestant::ALL.map(|it| self.rounds(it, row.key)));
        rounds.flatten().map(<[f64]>::len).max().unwrap_or(0)
    }

    pub fn add_bandwidth(&mut self, bandwidth: f64) {
        self.bandwidth.push(bandwidth);
    }

    fn rounds(&self, contestant: Contestant, key: &str) -> Option<&[f64]> {
        let rounds = self.numbers.get(&(contestant, key.to_owned()))?;
        Some(rounds.as_slice())
    }

    fn median(&self, contestant: Contestant, key: &str) -> Option<f64> {
        self.rounds(contestant, key).map(median)
    }

    pub fn markdown(&self) -> String {
        let mut text = format!(
            "{}, {THREADS} threads, alternating runs, median [least..most].",
            machine()
        );
        let Extra { engine, llama } = &self.extra;
        for (name, extra) in [("the bundled engine", engine), ("llama-server", llama)] {
            if !extra.is_empty() {
                let _ = write!(text, " Extra for {name}: {}.", extra.join(" "));
            }
        }
        text.push_str("\n\n");
        self.write_race(&mut text);
        self.write_remarks(&mut text);
        self.write_limits(&mut text);
        text
    }

    fn write_race(&self, text: &mut String) {
        text.push_str("| measure |");
        for contestant in Contestant::ALL {
            let _ = write!(text, " {} |", contestant.title());
        }
        for (ours, theirs) in PAIRS {
            let _ = write!(text, " {ours} : {theirs} |");
        }
        text.push_str(" must | aim | rounds |\n| --- |");
        text.push_str(&" ---: |".repeat(Contestant::ALL.len() + PAIRS.len() + 3));
        text.push('\n');
        for row in ROWS {
            self.write_row(text, row);
        }
    }

    fn write_row(&self, text: &mut String, row: &Row) {
        let all = Contestant::ALL.map(|it| self.rounds(it, row.key));
        let Some(rounds) = all.iter().flatten().map(|rounds| rounds.len()).min() else {
            return;
        };
        let _ = write!(text, "| {} |", row.title);
        for rounds in all {
            let _ = write!(text, " {} |", spread(rounds, row.digits));
        }
        for (index, (ours, theirs)) in PAIRS.into_iter().enumerate() {
            let _ = write!(text, " {} |", self.ratio(row, ours, theirs, index == PAR));
        }
        let (must, aim) = match row.goal {
            Goal::Times(must, aim) => (format!("{must}x"), format!("{aim}x")),
            Goal::AtLeast(must, aim) => (format!("≥ {must}"), format!("≥ {aim}")),
            Goal::AtMost(must, aim) => (format!("≤ {must}"), format!("≤ {aim}")),
            Goal::None => (String::new(), String::new()),
        };
        let _ = writeln!(text, " {must} | {aim} | {rounds} |");
    }

    /// How many times better, and what that reaches.
    fn ratio(&self, row: &Row, ours: Contestant, theirs: Contestant, is_par: bool) -> String {
        let ours = self.median(ours, row.key);
        let Some((ours, theirs)) = ours.zip(self.median(theirs, row.key)) else {
            return "—".to_owned();
        };
        let times = match row.is_better_higher {
            true => ours / theirs,
            false => theirs / ours,
        };
        let reached = |number: f64, must: f64, aim: f64| match number {
            _ if number >= aim => "aim",
            _ if number >= must => "must",
            _ => "**missed**",
        };
        let word = match row.goal {
            _ if is_par && !row.is_par => "",
            _ if is_par => reached(times, 1.0, f64::INFINITY),
            Goal::Times(must, aim) => reached(times, must, aim),
            Goal::AtLeast(must, aim) => reached(ours, must, aim),
            Goal::AtMost(must, aim) => reached(-ours, -must, -aim),
            Goal::None => "",
        };
        format!("{times:.2}x {word}").trim_end().to_owned()
    }

    fn write_remarks(&self, text: &mut String) {
        text.push_str("\n| beside it |");
        for contestant in Contestant::ALL {
            let _ = write!(text, " {} |", contestant.title());
        }
        text.push_str("\n| --- |");
        text.push_str(&" ---: |".repeat(Contestant::ALL.len()));
        text.push('\n');
        for (key, title, digits) in REMARKS {
            let all = Contestant::ALL.map(|it| self.rounds(it, key));
            if all.iter().all(Option::is_none) {
                continue;
            }
            let _ = write!(text, "| {title} |");
            for rounds in all {
                let _ = write!(text, " {} |", spread(rounds, *digits));
            }
            text.push('\n');
        }
    }

    /// What decode could reach if nothing but reading memory took time.
    fn write_limits(&self, text: &mut String) {
        if self.bandwidth.is_empty() {
            return;
        }
        let gigabytes: Vec<f64> = self.bandwidth.iter().map(|bytes| bytes / 1e9).collect();
        let _ = writeln!(
            text,
            "\n{THREADS} threads read 512 MiB at {} GB/s in the same run. Decode reads every weight once a token, and the keys \
             and values before it (llama-server's in half precision, ours as the engine keeps them); its limit is how often as \
             many bytes are read, from memory or cache. Drafts verify several tokens in one reading:\n\n\
             | decode | limit, tok/s | reached |\n| --- | ---: | ---: |",
            spread(Some(&gigabytes), 1)
        );
        for contestant in Contestant::ALL {
            let ours = match contestant.format() {
                Format::Q4_1 => Contestant::OursQ4_1,
                Format::Q4_0 => Contestant::OursQ4_0,
            };
            for (key, limit, half, title) in [
                ("decode", "decode_limit", "decode_limit_half", "short"),
                ("deep", "deep_limit", "deep_limit_half", "7.9k"),
            ] {
                let limit = if contestant.is_ours() { limit } else { half };
                let limit = self.rounds(ours, limit);
                let Some((rate, limits)) = self.median(contestant, key).zip(limit) else {
                    continue;
                };
                let share = 100.0 * rate / median(limits);
                let (name, limit) = (contestant.title(), spread(Some(limits), 0));
                let _ = writeln!(text, "| {name}, {title} | {limit} | {share:.0} % |");
            }
        }
    }

    pub fn json(&self) -> Value {
        let mut contestants = serde_json::Map::new();
        for ((contestant, key), rounds) in &self.numbers {
            let entry = contestants.entry(contestant.to_string());
            entry.or_insert_with(|| json!({}))[key] = json!(rounds);
        }
        json!({
            "machine": machine(),
            "extra": {"engine": self.extra.engine, "llama": self.extra.llama},
            "bandwidth": self.bandwidth,
            "rounds": contestants,
        })
    }

    /// The results that [`Results::json`] wrote.
    pub fn read(text: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(text)?;
        let mut results = Self {
            bandwidth: floats(&value["bandwidth"])?,
            extra: Extra {
                engine: texts(&value["extra"]["engine"])?,
                llama: texts(&value["extra"]["llama"])?,
            },
            ..Self::default()
        };
        let contestants = value["rounds"].as_object().context("no rounds")?;
        for (name, keys) in contestants {
            let contestant = Contestant::from_str(name, false)
                .map_err(|problem| anyhow::anyhow!("{name:?}: {problem}"))?;
            for (key, rounds) in keys.as_object().context("no keys")? {
                let rounds = floats(rounds).with_context(|| format!("{name}, {key}"))?;
                results.numbers.insert((contestant, key.clone()), rounds);
            }
        }
        Ok(results)
    }
}

fn texts(value: &Value) -> Result<Vec<String>> {
    Ok(serde_json::from_value(value.clone())?)
}

fn floats(value: &Value) -> Result<Vec<f64>> {
    let list = value.as_array().context("a list of numbers is missing")?;
    list.iter()
        .map(|number| number.as_f64().context("not a number"))
        .collect()
}

/// The middle value, or the mean of the middle two; NaN of none.
pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => values[length / 2],
        length => f64::midpoint(values[length / 2 - 1], values[length / 2]),
    }
}

fn spread(rounds: Option<&[f64]>, digits: usize) -> String {
    let Some(rounds) = rounds.filter(|rounds| !rounds.is_empty()) else {
        return "—".to_owned();
    };
    let least = rounds.iter().copied().fold(f64::INFINITY, f64::min);
    let most = rounds.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let middle = median(rounds);
    if least.to_bits() == most.to_bits() {
        return format!("{middle:.digits$}");
    }
    format!("{middle:.digits$} [{least:.digits$}..{most:.digits$}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results() -> Results {
        let mut results = Results::default();
        for (cold, decode) in [(60.0, 100.0), (50.0, 150.0), (40.0, 120.0)] {
            results.add(
                Contestant::LlamaQ4_0,
                vec![("cold", cold), ("decode", decode)],
            );
        }
        results.add(
            Contestant::OursQ4_1,
            vec![
                ("cold", 10.0),
                ("decode", 180.0),
                ("decode_limit", 360.0),
                ("decode_limit_half", 240.0),
            ],
        );
        results.add(Contestant::LlamaQ4_1, vec![("decode", 60.0)]);
        results.add_bandwidth(4e10);
        results
    }

    #[test]
    fn a_row_shows_spread_and_ratio_and_what_was_reached() {
        let table = results().markdown();
        let line = |title: &str| table.lines().find(|line| line.contains(title)).unwrap();
        let cold = line("cold prompt");
        assert!(cold.contains(" 50.00 [40.00..60.00] "), "{cold}");
        assert!(
            cold.contains(" 5.00x must | — | — | 4x | 6x | 1 |"),
            "{cold}"
        );
        let decode = line("one stream");
        assert!(decode.contains(" 1.50x **missed** "), "{decode}");
        assert!(
            table.contains("| ours, Q4_1, short | 360 | 50 % |"),
            "{table}"
        );
        assert!(
            table.contains("| llama-server, Q4_1, short | 240 | 25 % |"),
            "{table}"
        );
    }

    #[test]
    fn numbers_go_through_json() {
        let before = results();
        let after = Results::read(&before.json().to_string()).unwrap();
        assert_eq!(before.markdown(), after.markdown());
    }
}
