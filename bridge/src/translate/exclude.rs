//! `excludedMcpTools`: tools the model never gets to see.
//!
//! Names are compared in their sanitised forms, and an entry may give the tool's own name or the flattened one. Flat
//! functions are covered too, because Codex up to 0.120 declares MCP tools flat; flat custom tools are not MCP tools.

use protocol::{ToolId, ToolKind};

use super::alias::sanitise;
use crate::config::{Exclusion, Policy};

pub(super) fn is_excluded(id: &ToolId, policy: &Policy) -> bool {
    policy
        .excluded_mcp_tools
        .iter()
        .any(|exclusion| matches(exclusion, id))
}

fn matches(exclusion: &Exclusion, id: &ToolId) -> bool {
    let prefix = format!("{}__", sanitise(&exclusion.namespace));
    let name = sanitise(&id.name);
    let flat = match &id.namespace {
        Some(namespace) if sanitise(namespace) == sanitise(&exclusion.namespace) => {
            format!("{prefix}{name}")
        }
        Some(_) => return false,
        None if id.kind == ToolKind::Function => name,
        None => return false,
    };
    exclusion
        .tools
        .iter()
        .map(|tool| sanitise(tool))
        .any(|tool| {
            let is_flattened = tool.starts_with(&prefix) && flat == tool;
            is_flattened || flat == format!("{prefix}{tool}")
        })
}
