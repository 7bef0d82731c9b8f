//! A model as Codex's catalog describes it (`ModelInfo`, Codex 0.120 to 0.171): in the file that `--init` writes, and in
//! `/v1/models`.
//!
//! Without an entry Codex assumes a window of 272 000 tokens, offers images, sends a prompt of 9 000 tokens, and withholds
//! `apply_patch`. One missing required field voids the whole catalog without a word, so all of them are here: old
//! versions insist on fields that new ones ignore.

use serde_json::{Value, json};

/// One tool result may take a quarter of the window, and never more than Codex itself allows.
const LARGEST_TOOL_OUTPUT: u64 = 10_000;

/// What is known of one model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CodexModel<'a> {
    /// Exactly as the upstream calls it: Codex looks its catalog up by this name.
    pub(crate) slug: &'a str,
    /// Tokens that the server really keeps.
    pub(crate) context: Option<u64>,
    /// Takes images.
    pub(crate) vision: bool,
    /// May call several tools in one turn.
    pub(crate) parallel_calls: bool,
}

impl CodexModel<'_> {
    /// The entry; `priority` 1 stands first in Codex's picker.
    pub(crate) fn entry(self, priority: usize) -> Value {
        let modalities = if self.vision {
            json!(["text", "image"])
        } else {
            json!(["text"])
        };
        let quarter = self.context.map_or(u64::MAX, |tokens| tokens / 4);
        json!({
            "slug": self.slug,
            "display_name": self.slug,
            "description": "Served by codex-bridge",
            "visibility": "list",
            "supported_in_api": true,
            "priority": priority,
            "availability_nux": null,
            "upgrade": null,
            "context_window": self.context,
            "max_context_window": self.context,
            "auto_compact_token_limit": self.context.map(compact_at),
            "truncation_policy": { "mode": "tokens", "limit": LARGEST_TOOL_OUTPUT.min(quarter) },
            "input_modalities": modalities,
            "shell_type": "unified_exec",
            // "function" makes Codex refuse the whole catalog.
            "apply_patch_tool_type": "freeform",
            "web_search_tool_type": "text",
            "experimental_supported_tools": [],
            "supports_search_tool": false,
            "supports_parallel_tool_calls": self.parallel_calls,
            "supports_reasoning_summaries": true,
            "supported_reasoning_levels": [],
            "support_verbosity": false,
            "default_verbosity": null,
            // Sub-agents cost 2 000 tokens of tool text, and share one local model's cache.
            "multi_agent_version": "disabled",
            "base_instructions": include_str!("codex_model/instructions.md"),
        })
    }
}

/// Compaction needs room for its own answer: four fifths of the window.
pub(crate) fn compact_at(context: u64) -> u64 {
    context - context / 5
}
