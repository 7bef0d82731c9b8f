//! What Codex calls a tool: [`ToolId`]. What an upstream calls it, a flat name, is the bridge's business.

/// Private field of a function tool that stands for a custom tool: the `format` object the custom tool was declared with,
/// `{"type":"grammar","syntax":"lark"|"regex","definition":…}`. The function's one argument `input` must decode to a text of that grammar.
/// Never sent to a server that is not ours.
pub const GRAMMAR_FIELD: &str = "x_grammar";

/// How a tool is declared, and so which item its call must come back as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ToolKind {
    /// `function` → `function_call`.
    Function,
    /// `custom` (free-form text input) → `custom_tool_call`.
    Custom,
    /// `tool_search` run by the client → `tool_search_call`.
    ToolSearch,
}

/// One tool as the client declared it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ToolId {
    pub kind: ToolKind,
    pub namespace: Option<String>,
    pub name: String,
}

impl std::fmt::Display for ToolId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(formatter, "\"{}\" in namespace \"{namespace}\"", self.name),
            None => write!(formatter, "\"{}\"", self.name),
        }
    }
}
