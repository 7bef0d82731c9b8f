//! `model-catalog.json`: the one entry that keeps Codex from guessing what it talks to.
//!
//! Without it Codex assumes a window of 272 000 tokens, offers images, sends a prompt of 9 000 tokens, and withholds
//! `apply_patch`. The entry loads in Codex 0.120 to 0.171: old ones insist on fields that new ones ignore.

use serde_json::json;

use super::model::Model;

/// One tool result may take a quarter of the window, and never more than Codex itself allows.
const LARGEST_TOOL_OUTPUT: u64 = 10_000;

pub(super) fn render(model: &Model) -> String {
    let modalities = if model.vision {
        json!(["text", "image"])
    } else {
        json!(["text"])
    };
    let catalog = json!({ "models": [{
        "slug": model.name,
        "display_name": model.name,
        "description": "Served by codex-bridge",
        "visibility": "list",
        "supported_in_api": true,
        "priority": 1,
        "availability_nux": null,
        "upgrade": null,
        "context_window": model.context,
        "max_context_window": model.context,
        "auto_compact_token_limit": compact_at(model.context),
        "truncation_policy": { "mode": "tokens", "limit": LARGEST_TOOL_OUTPUT.min(model.context / 4) },
        "input_modalities": modalities,
        "shell_type": "unified_exec",
        // "function" makes Codex refuse the whole catalog.
        "apply_patch_tool_type": "freeform",
        "web_search_tool_type": "text",
        "experimental_supported_tools": [],
        "supports_search_tool": false,
        "supports_parallel_tool_calls": true,
        "supports_reasoning_summaries": true,
        "supported_reasoning_levels": [],
        "support_verbosity": false,
        "default_verbosity": null,
        // Sub-agents cost 2 000 tokens of tool text, and share one local model's cache.
        "multi_agent_version": "disabled",
        "base_instructions": include_str!("instructions.md"),
    }]});
    format!("{catalog:#}\n")
}

/// Compaction needs room for its own answer: four fifths of the window.
pub(super) fn compact_at(context: u64) -> u64 {
    context - context / 5
}
