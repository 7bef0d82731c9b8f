//! The function tools of a request, and how much of them the prompt shows.

use protocol::Object;
use serde_json::Value;

use super::PromptError;

/// How tools are shown to the model.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum ToolsMode {
    /// `Compact` for small models, and where the schemas would fill more than a quarter of the context; else `Full`.
    #[default]
    Auto,
    /// Whole JSON schemas.
    Full,
    /// One signature line a tool.
    Compact,
    /// Not at all.
    Off,
}

/// The function tools of a request, in its order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tools {
    pub list: Vec<Tool>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    pub name: String,
    pub description: String,
    /// JSON schema of the arguments; `{"type": "object", "properties": {}}` where the request has none.
    pub parameters: Value,
    pub strict: bool,
}

impl Tools {
    /// Reads `tools`. Anything but a function is an error that names its place.
    pub fn from_request(request: &Object) -> Result<Tools, PromptError> {
        todo!()
    }
}
