//! [`Counts`]: what one request held and what became of it, for the log line of that request.

use std::collections::BTreeMap;

/// How often each named thing happened.
type Tally = BTreeMap<String, usize>;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Entries of the tool list, those of namespaces and of the history included.
    pub tools_declared: usize,
    pub tools_sent: usize,
    /// Tools left out because the configuration excludes them.
    pub tools_excluded: usize,
    /// Tools left out because the answer must match a JSON schema and the upstream cannot do both.
    pub tools_withheld: usize,
    /// Tools left out because their type is unknown, by type.
    pub dropped_tools: Tally,
    /// Items of `input` as the client sent it.
    pub items: usize,
    /// Items left out, by type.
    pub dropped_items: Tally,
    /// History that was changed so that the upstream takes it, by what was wrong with it.
    pub mended_items: Tally,
    /// The name that was asked for, when another was sent.
    pub aliased_model: Option<String>,
    /// Bytes of `instructions` and of the developer and system messages that open the input.
    pub instruction_bytes: usize,
    /// Bytes of `tools` as sent; whoever prints the request notes this and the next.
    pub tool_bytes: usize,
    /// Bytes of `input` as sent, instructions merged into it included.
    pub input_bytes: usize,
}

/// Kinds that a line names one by one: a client may invent any number of them.
const MOST_NAMED: usize = 8;
/// Characters shown of each.
const LONGEST_NAME: usize = 64;

/// A tally as a log line shows it, such as `reasoning 2, novelty 1`; `None` when it is empty.
pub(crate) fn told(tally: &Tally) -> Option<String> {
    let mut line: Vec<String> = tally
        .iter()
        .take(MOST_NAMED)
        .map(|(name, count)| {
            let end = name.char_indices().nth(LONGEST_NAME);
            let name = end.map_or(name.as_str(), |(end, _)| &name[..end]);
            format!("{name} {count}")
        })
        .collect();
    let others: usize = tally.values().skip(MOST_NAMED).sum();
    if others > 0 {
        line.push(format!("others {others}"));
    }
    (!line.is_empty()).then(|| line.join(", "))
}

impl Counts {
    pub(super) fn drop_tool(&mut self, kind: &str) {
        *self.dropped_tools.entry(kind.to_owned()).or_default() += 1;
    }

    pub(super) fn drop_item(&mut self, kind: &str) {
        *self.dropped_items.entry(kind.to_owned()).or_default() += 1;
    }

    pub(super) fn mend(&mut self, fault: &str) {
        *self.mended_items.entry(fault.to_owned()).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_few_kinds_and_counts_all() {
        let tally = |names: &[(&str, usize)]| {
            let named = names
                .iter()
                .map(|(name, count)| ((*name).to_owned(), *count));
            told(&named.collect())
        };
        assert_eq!(tally(&[]), None);
        assert_eq!(tally(&[("b", 1), ("a", 2)]).unwrap(), "a 2, b 1");
        let many: Vec<String> = (0..20).map(|number| format!("{number:0>100}")).collect();
        let many: Vec<(&str, usize)> = many.iter().map(|name| (name.as_str(), 3)).collect();
        let line = tally(&many).unwrap();
        assert!(line.ends_with(", others 36") && line.len() < 600, "{line}");
    }
}
