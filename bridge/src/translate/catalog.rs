//! [`ToolCatalog`]: the two-way map between what Codex calls a tool and what the upstream calls it.

use std::collections::HashMap;

use protocol::{ToolId, ToolKind};

use super::{Error, alias};

/// One tool the model may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    pub id: ToolId,
    pub wire_name: String,
    /// Who runs a `tool_search` call, as it was declared.
    pub execution: Option<String>,
    /// Its schema marks an argument as encrypted, so Codex must be told that our arguments are plain text.
    pub encrypted: bool,
}

impl Tool {
    /// The freeform `apply_patch`, whose input is a patch.
    pub fn is_apply_patch(&self) -> bool {
        self.id.kind == ToolKind::Custom && self.id.name == "apply_patch"
    }
}

/// Every tool of one request. Wire names are unique in it.
#[derive(Debug, Clone, Default)]
pub struct ToolCatalog {
    tools: Vec<Tool>,
    by_wire_name: HashMap<String, usize>,
}

impl ToolCatalog {
    /// The tool the upstream means.
    pub fn resolve(&self, wire_name: &str) -> Option<&Tool> {
        Some(&self.tools[*self.by_wire_name.get(wire_name)?])
    }

    pub fn tools(&self) -> &[Tool] {
        &self.tools
    }

    /// The tool with exactly these names.
    pub(super) fn find(
        &self,
        kind: ToolKind,
        namespace: Option<&str>,
        name: &str,
    ) -> Option<&Tool> {
        self.tools.iter().find(|tool| {
            tool.id.kind == kind
                && tool.id.namespace.as_deref() == namespace
                && tool.id.name == name
        })
    }

    /// Adds `tool`; false when this very tool is there already.
    pub(super) fn insert(&mut self, tool: Tool, path: &str) -> Result<bool, Error> {
        if let Some(index) = self.by_wire_name.get(&tool.wire_name) {
            let first = &self.tools[*index];
            if first.id == tool.id {
                return Ok(false);
            }
            return Err(collision(first, &tool, path));
        }
        self.by_wire_name
            .insert(tool.wire_name.clone(), self.tools.len());
        self.tools.push(tool);
        Ok(true)
    }
}

/// `first` and `second` would share a wire name.
pub(super) fn collision(first: &Tool, second: &Tool, path: &str) -> Error {
    Error::Collision {
        param: format!("{path}.name"),
        first: Box::new(first.id.clone()),
        second: Box::new(second.id.clone()),
        wire: second.wire_name.clone(),
    }
}

impl Tool {
    pub(super) fn new(id: ToolId) -> Self {
        Self {
            wire_name: alias::wire_name(id.namespace.as_deref(), &id.name),
            id,
            execution: None,
            encrypted: false,
        }
    }
}
