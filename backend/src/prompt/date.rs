//! The date that templates print. Fixed when the engine starts: a date that changes at midnight would empty the prefix cache of every conversation.

use std::time::{SystemTime, UNIX_EPOCH};

/// A day of the Gregorian calendar, in UTC.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Date {
    pub year: i32,
    /// 1 to 12.
    pub month: u8,
    /// 1 to 31.
    pub day: u8,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
];

impl Date {
    pub fn today() -> Date {
        let seconds = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |age| age.as_secs());
        Date::from_days((seconds / 86_400) as i64)
    }

    /// `days` since 1 January 1970 (Howard Hinnant, "chrono-compatible low-level date algorithms", `civil_from_days`).
    fn from_days(days: i64) -> Date {
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month = (5 * day_of_year + 2) / 153;
        let (month, next_year) = if month < 10 {
            (month + 3, 0)
        } else {
            (month - 9, 1)
        };
        Date {
            year: (year_of_era + era * 400 + next_year) as i32,
            month: month as u8,
            day: (day_of_year - (153 * ((month + 9) % 12) + 2) / 5 + 1) as u8,
        }
    }

    /// The inverse of [`Date::from_days`].
    fn days(self) -> i64 {
        let (month, day) = (i64::from(self.month), i64::from(self.day));
        let year = i64::from(self.year) - i64::from(month <= 2);
        let era = year.div_euclid(400);
        let year_of_era = year.rem_euclid(400);
        let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
        era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year
            - 719_468
    }

    /// Python's `strftime`, at midnight. A directive that is not known stands for itself.
    pub(super) fn format(self, format: &str) -> String {
        let month = MONTHS[usize::from(self.month.clamp(1, 12)) - 1];
        let weekday = DAYS[self.days().rem_euclid(7) as usize];
        let first = Date {
            month: 1,
            day: 1,
            ..self
        };
        let (year, mm, dd) = (self.year, self.month, self.day);
        let mut out = String::new();
        let mut characters = format.chars().peekable();
        while let Some(character) = characters.next() {
            if character != '%' {
                out.push(character);
                continue;
            }
            let plain = characters.next_if_eq(&'-').is_some();
            let text = match characters.next() {
                Some('Y') => year.to_string(),
                Some('y') => format!("{:02}", year.rem_euclid(100)),
                Some('m') if plain => mm.to_string(),
                Some('m') => format!("{mm:02}"),
                Some('d') if plain => dd.to_string(),
                Some('d') => format!("{dd:02}"),
                Some('e') => format!("{dd:2}"),
                Some('B') => month.to_owned(),
                Some('b' | 'h') => month[..3].to_owned(),
                Some('A') => weekday.to_owned(),
                Some('a') => weekday[..3].to_owned(),
                Some('j') => format!("{:03}", self.days() - first.days() + 1),
                Some('F') => format!("{year}-{mm:02}-{dd:02}"),
                Some('D' | 'x') => format!("{mm:02}/{dd:02}/{:02}", year.rem_euclid(100)),
                Some('H' | 'M' | 'S') if plain => "0".to_owned(),
                Some('H' | 'M' | 'S') => "00".to_owned(),
                Some('I') => "12".to_owned(),
                Some('p') => "AM".to_owned(),
                Some('T' | 'X') => "00:00:00".to_owned(),
                Some('Z') => "UTC".to_owned(),
                Some('z') => "+0000".to_owned(),
                Some('%') => "%".to_owned(),
                Some(other) => format!("%{}{other}", if plain { "-" } else { "" }),
                None => "%".to_owned(),
            };
            out.push_str(&text);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_are_each_others_inverse() {
        assert_eq!(
            Date::from_days(0),
            Date {
                year: 1970,
                month: 1,
                day: 1
            }
        );
        assert_eq!(
            Date::from_days(19_782),
            Date {
                year: 2024,
                month: 2,
                day: 29
            }
        );
        for days in -200_000..200_000 {
            assert_eq!(Date::from_days(days).days(), days);
        }
    }

    #[test]
    fn formats_are_pythons() {
        let date = Date {
            year: 2024,
            month: 7,
            day: 5,
        };
        assert_eq!(date.format("%d %b %Y"), "05 Jul 2024");
        assert_eq!(
            date.format("%A, %B %-d (%a) %j %y%% %q %"),
            "Friday, July 5 (Fri) 187 24% %q %"
        );
        assert_eq!(date.format("%Y-%m-%d %H:%M:%S"), "2024-07-05 00:00:00");
    }
}
