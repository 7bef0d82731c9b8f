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
