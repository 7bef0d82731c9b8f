//! [`ItemKind`]: the `type` of an input or output item, with everything unknown kept as [`ItemKind::Other`].

use crate::Object;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ItemKind {
    Message,
    Reasoning,
    FunctionCall,
    FunctionCallOutput,
    CustomToolCall,
    CustomToolCallOutput,
    ToolSearchCall,
    ToolSearchOutput,
    AdditionalTools,
    WebSearchCall,
    LocalShellCall,
    LocalShellCallOutput,
    ImageGenerationCall,
    Compaction,
    CompactionTrigger,
    ItemReference,
    Other,
}

impl ItemKind {
    /// The kind of `item`. An object with a `role` and no `type` is a message (the API's "easy" form).
    pub fn of(item: &Object) -> Self {
        match item.get("type").and_then(serde_json::Value::as_str) {
            Some(name) => Self::from_name(name),
            None if item.contains_key("role") => Self::Message,
            None => Self::Other,
        }
    }

    pub fn from_name(name: &str) -> Self {
        match name {
            "message" => Self::Message,
            "reasoning" => Self::Reasoning,
            "function_call" => Self::FunctionCall,
            "function_call_output" => Self::FunctionCallOutput,
            "custom_tool_call" => Self::CustomToolCall,
            "custom_tool_call_output" => Self::CustomToolCallOutput,
            "tool_search_call" => Self::ToolSearchCall,
            "tool_search_output" => Self::ToolSearchOutput,
            "additional_tools" => Self::AdditionalTools,
            "web_search_call" => Self::WebSearchCall,
            "local_shell_call" => Self::LocalShellCall,
            "local_shell_call_output" => Self::LocalShellCallOutput,
            "image_generation_call" => Self::ImageGenerationCall,
            "compaction" | "compaction_summary" => Self::Compaction,
            "compaction_trigger" => Self::CompactionTrigger,
            "item_reference" => Self::ItemReference,
            _ => Self::Other,
        }
    }

    /// Whether the item asks the client to run something. Such an item makes the text before it commentary.
    pub fn is_call(self) -> bool {
        matches!(
            self,
            Self::FunctionCall | Self::CustomToolCall | Self::ToolSearchCall | Self::LocalShellCall
        )
    }
}
