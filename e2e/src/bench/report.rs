//! The medians over the rounds as one Markdown table, and every number as JSON.

use std::{collections::BTreeMap, fmt::Write as _, fs};

use serde_json::{Value, json};

use super::{
    measure::Numbers,
    rows::{Goal, ROWS, Row},
    target::Name,
};

/// Everything measured, a list of rounds for each target and key.
#[derive(Debug, Default)]
pub struct Results(BTreeMap<(Name, &'static str), Vec<f64>>);

/// A checked number beside its goal.
struct Verdict {
    text: String,
    is_reached: bool,
}

impl Results {
    pub fn add(&mut self, name: Name, numbers: Numbers) {
        for (key, number) in numbers {
            self.0.entry((name, key)).or_default().push(number);
        }
    }

    fn median(&self, name: Name, key: &'static str) -> Option<f64> {
        let mut values = self.0.get(&(name, key))?.clone();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        Some(if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        })
    }

    /// As the row compares it: the load generator's own share taken off where the row says so.
    fn value(&self, name: Name, row: &Row) -> Option<f64> {
        let value = self.median(name, row.key)?;
        if !row.is_added || name == Name::Direct {
            return Some(value);
        }
        Some((value - self.median(Name::Direct, row.key)?).max(0.0))
    }

    pub fn markdown(&self, rounds: usize) -> String {
        let mut text = format!("{}, {rounds} alternating rounds, medians.\n\n", machine());
        let mut head = String::from("| measure |");
        let mut rule = String::from("| --- |");
        for name in Name::ALL {
            let _ = write!(head, " {} |", name.title());
            rule += " ---: |";
        }
        let _ = writeln!(text, "{head} npm / ours | goal | beside the gateway |");
        let _ = writeln!(text, "{rule} ---: | --- | --- |");
        for row in ROWS {
            text += &self.line(row);
        }
        text
    }

    fn line(&self, row: &Row) -> String {
        let show = |value: Option<f64>| {
            value.map_or_else(|| "—".to_owned(), |value| format!("{value:.*}", row.digits))
        };
        let mut line = format!("| {} |", row.title);
        for name in Name::ALL {
            let has_process = name != Name::Direct
                || row.is_added
                || row.is_better_higher
                || row.key.contains("delay")
                || row.key.starts_with("many_t")
                || row.key.starts_with("many_r");
            let value = self.value(name, row).filter(|_| has_process);
            let _ = write!(line, " {} |", show(value));
        }
        let ours = self.value(Name::Ours, row);
        let npm = self.value(Name::Npm, row);
        let gateway = self.value(Name::Gateway, row);
        let ratio = match (npm, ours) {
            (Some(npm), Some(ours)) if ours > 0.0 && npm > 0.0 => {
                let ratio = if row.is_better_higher {
                    ours / npm
                } else {
                    npm / ours
                };
                format!("{ratio:.1}x")
            }
            _ => "—".to_owned(),
        };
        let goal = verdict(row.goal, npm, ours).map_or_else(String::new, |verdict| verdict.show());
        let beside = beside(row, gateway, ours).map_or_else(String::new, |verdict| verdict.show());
        let _ = writeln!(line, " {ratio} | {goal} | {beside} |");
        line
    }

    /// Goals missed, in words.
    pub fn misses(&self) -> Vec<String> {
        let mut misses = Vec::new();
        for row in ROWS {
            let ours = self.value(Name::Ours, row);
            let goal = verdict(row.goal, self.value(Name::Npm, row), ours);
            let beside = beside(row, self.value(Name::Gateway, row), ours);
            for verdict in [goal, beside].into_iter().flatten() {
                if !verdict.is_reached {
                    misses.push(format!("{}: {}", row.title, verdict.text));
                }
            }
        }
        misses
    }

    pub fn json(&self) -> Value {
        let mut targets = serde_json::Map::new();
        for ((name, key), values) in &self.0 {
            let target = targets.entry(name.title()).or_insert_with(|| json!({}));
            target[*key] = json!(values);
        }
        json!({"machine": machine(), "rounds": targets})
    }
}

impl Verdict {
    fn show(&self) -> String {
        let word = if self.is_reached { "pass" } else { "**FAIL**" };
        format!("{word} ({})", self.text)
    }
}

fn verdict(goal: Goal, npm: Option<f64>, ours: Option<f64>) -> Option<Verdict> {
    let ours = ours?;
    let (text, is_reached) = match goal {
        Goal::None => return None,
        Goal::Share(share) => (
            format!("at most 1/{:.0} of npm's", 1.0 / share),
            ours <= npm? * share,
        ),
        Goal::Times(times) => (format!("at least {times}x npm's"), ours >= npm? * times),
        Goal::Below(limit) => (format!("below {limit}"), ours < limit),
    };
    Some(Verdict { text, is_reached })
}

fn beside(row: &Row, gateway: Option<f64>, ours: Option<f64>) -> Option<Verdict> {
    let (gateway, ours) = (gateway?, ours?);
    let is_reached = if row.is_better_higher {
        ours >= gateway
    } else {
        ours <= gateway
    };
    let text = if is_reached { "ahead" } else { "behind" };
    Some(Verdict {
        text: text.to_owned(),
        is_reached,
    })
}

/// Processor, cores and day.
pub fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or(std::env::consts::ARCH, |line| {
            line.trim_start_matches([' ', '\t', ':'])
        });
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{model}, {cores} cores, {}", today())
}

/// Days to a date of the Gregorian calendar (Howard Hinnant's `civil_from_days`).
fn today() -> String {
    let seconds = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let days = seconds / 86_400 + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}
