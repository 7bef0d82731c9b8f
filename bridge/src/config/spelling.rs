//! camelCase and snake_case of the same key, and the nearest known key to a mistyped one.

/// How a layer writes keys of two words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spelling {
    /// `maxEventBytes`, usual in JSON.
    Camel,
    /// `max_event_bytes`, usual in TOML.
    Snake,
}

impl Spelling {
    /// The camelCase path in this spelling.
    pub(super) fn of(self, path: &str) -> String {
        match self {
            Self::Camel => path.to_owned(),
            Self::Snake => snake(path),
        }
    }
}

/// `maxEventBytes` → `max_event_bytes`; snake_case stays as it is.
pub(super) fn snake(camel: &str) -> String {
    let mut snake = String::with_capacity(camel.len() + 4);
    for letter in camel.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// `max_event_bytes` → `maxEventBytes`.
pub(super) fn camel(snake: &str) -> String {
    let mut camel = String::with_capacity(snake.len());
    let mut parts = snake.split('_');
    camel.extend(parts.next());
    for part in parts {
        let mut letters = part.chars();
        camel.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        camel.push_str(letters.as_str());
    }
    camel
}

/// The candidate that differs from `word` by the fewest letters, if few enough that it was probably meant.
pub(super) fn nearest(word: &str, candidates: impl Iterator<Item = String>) -> Option<String> {
    let close_enough = (word.chars().count() / 3).clamp(1, 3);
    candidates
        .map(|candidate| {
            (
                distance(&word.to_lowercase(), &candidate.to_lowercase()),
                candidate,
            )
        })
        .filter(|(distance, _)| *distance <= close_enough)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Letters to insert, delete, replace or swap with a neighbour.
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().collect();
    let right: Vec<char> = right.chars().collect();
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for row in 1..=left.len() {
        let mut current = vec![row];
        for column in 1..=right.len() {
            let replaced = last[column - 1] + usize::from(left[row - 1] != right[column - 1]);
            let mut best = replaced.min(last[column] + 1).min(current[column - 1] + 1);
            if row > 1
                && column > 1
                && left[row - 1] == right[column - 2]
                && left[row - 2] == right[column - 1]
            {
                best = best.min(before_last[column - 2] + 1);
            }
            current.push(best);
        }
        before_last = std::mem::replace(&mut last, current);
    }
    last[right.len()]
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn snake_spelling_of_every_kind_of_path() {
        for (camel, expected) in [
            ("phase", "phase"),
            ("maxEventBytes", "max_event_bytes"),
            ("excludedMcpTools[].tools", "excluded_mcp_tools[].tools"),
            ("upstream.bundled.kvCache", "upstream.bundled.kv_cache"),
            ("max_event_bytes", "max_event_bytes"),
        ] {
            assert_eq!(snake(camel), expected);
        }
        for key in crate::config::keys::KEYS {
            assert_eq!(camel(&snake(key.path)), key.path);
        }
    }

    #[test]
    fn the_nearest_word_is_offered_only_when_it_is_near() {
        let known = || {
            ["host", "port", "webSearchTool"]
                .into_iter()
                .map(str::to_owned)
        };
        for (word, expected) in [
            ("webSearchTol", Some("webSearchTool")),
            ("WebSearchTool", Some("webSearchTool")),
            ("prot", Some("port")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known()).as_deref(), expected, "{word}");
        }
    }
}
