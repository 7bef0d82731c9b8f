//! The same scripts for the bundled engine, whose grammar writes what can only be written in one way.
//!
//! The model goes on from its last token only, so that what the grammar writes must be one token of the script. A chunk
//! therefore ends where the grammar leaves a choice: behind the marker of a call, behind `"name": "`, inside a text.

use crate::gguf::{Format, Script};

/// One command, then a closing word.
pub fn command() -> Script {
    Script::new(Format::Hermes)
        .answer(&[MARKER, NAME, COMMAND, "echo ran > ran.txt", CLOSE])
        .answer(&["The command", " has run."])
}

/// The same, in the bare form of Llama 3.1.
pub fn bare_command() -> Script {
    Script::new(Format::Llama31)
        .answer(&[
            "{\"name\": \"exec_command\"",
            ", \"parameters\": {\"cmd\": \"",
            "echo ran > ran.txt",
            "\"}}",
        ])
        .answer(&["The command", " has run."])
}

/// Thinks, says what it will do, does it, and says what it did.
pub fn thinking_command() -> Script {
    Script::new(Format::Hermes)
        .answer(&[
            "<think>\n",
            "A file",
            " is wanted.",
            "\n</think>\n\n",
            "I make",
            " it.",
            "\n",
            MARKER,
            NAME,
            COMMAND,
            "echo ran > ran.txt",
            CLOSE,
        ])
        .answer(&["The command", " has run."])
}

pub fn two_commands() -> Script {
    Script::new(Format::Hermes)
        .answer(&[
            MARKER,
            NAME,
            COMMAND,
            "echo first > first.txt",
            CLOSE,
            "\n<tool_call>\n{\"name\": \"",
            "exec_command\", \"arguments\": {\"cmd\": \"echo",
            " second > second.txt",
            "\"}",
            "}\n</tool_call>",
        ])
        .answer(&["Both", " have run."])
}

/// [`super::PATCH`] as the argument of the function that stands for Codex's custom tool.
pub fn patch() -> Script {
    Script::new(Format::Hermes)
        .answer(&[
            MARKER,
            NAME,
            "apply_patch\", \"arguments\": {\"input\": \"*** Begin Patch\\n*** ",
            "Add File: made.txt",
            "\\n+say \\\"",
            "hi\\\"\\n+back\\\\",
            "slash\\n*** End Patch",
            CLOSE,
        ])
        .answer(&["The file", " is made."])
}

/// A tool of the MCP fixture, by the name it has for the model.
pub fn mcp_echo() -> Script {
    Script::new(Format::Hermes)
        .answer(&[
            MARKER,
            NAME,
            "mcp__fixture__echo\", \"arguments\": {\"text\": \"",
            "through and through",
            CLOSE,
        ])
        .answer(&["It", " echoes."])
}

const MARKER: &str = "<tool_call>";
const NAME: &str = "\n{\"name\": \"";
const COMMAND: &str = "exec_command\", \"arguments\": {\"cmd\": \"";
const CLOSE: &str = "\"}}\n</tool_call>";
