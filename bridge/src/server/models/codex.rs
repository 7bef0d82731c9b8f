//! A model as Codex's catalog describes it (`ModelInfo`, Codex 0.120 to 0.171).
//!
//! One missing required field voids the whole catalog without a word, so all of them are here, for old and new.

use serde_json::{Value, json};

use crate::upstream::probe::{Detected, context_of, sees};

/// Codex requires instructions; those of the user's own catalog (`--init`) are better.
const INSTRUCTIONS: &str = "You are a coding agent working in the user's terminal. Use the tools to read, change and \
     run things; check your work; answer briefly.";

/// The entry for one model of the upstream's list; `None` for an entry without an id.
pub(super) fn model(entry: &Value, place: usize, detected: Option<&Detected>) -> Option<Value> {
    let slug = entry["id"].as_str()?;
    // What the server says about itself holds for its only model, not for one of many.
    let only = detected.filter(|it| it.model.is_some());
    let context = context_of(entry).or_else(|| only?.context);
    let vision = sees(entry) || only.is_some_and(|it| it.vision);
    let modalities = if vision {
        json!(["text", "image"])
    } else {
        json!(["text"])
    };
    Some(json!({
        "slug": slug,
        "display_name": slug,
        "description": "",
        "supported_reasoning_levels": [],
        "shell_type": "unified_exec",
        "visibility": "list",
        "supported_in_api": true,
        "priority": place + 1,
        "availability_nux": null,
        "upgrade": null,
        "base_instructions": INSTRUCTIONS,
        "support_verbosity": false,
        "default_verbosity": null,
        "apply_patch_tool_type": "freeform",
        "web_search_tool_type": "text",
        "truncation_policy": {"mode": "tokens", "limit": 10_000},
        "context_window": context,
        "experimental_supported_tools": [],
        "input_modalities": modalities,
        "supports_search_tool": false,
        "supports_parallel_tool_calls": detected.is_some_and(|it| it.parallel_calls),
        "supports_reasoning_summaries": true,
    }))
}
