//! The scripted models that scenarios run on the real llama.cpp server; [`bundled`] has those for the bundled engine.
//!
//! A chunk is one token and may occur only once in a model, hence the small differences between similar calls. No chunk
//! is just the opening of a call: llama.cpp refuses a template whose trigger word is an ordinary token.

use crate::gguf::{Format, Script};

pub mod bundled;

/// A patch whose text needs every kind of JSON escape.
pub const PATCH: &str =
    "*** Begin Patch\n*** Add File: made.txt\n+say \"hi\"\n+back\\slash\n*** End Patch";

pub fn text() -> Script {
    Script::new(Format::Hermes).answer(&["Plain", " words", " only."])
}

/// One command, then a closing word.
pub fn command() -> Script {
    Script::new(Format::Hermes)
        .answer(&[CALL, COMMAND, " ran > ran.txt", "\"}}\n", CLOSE])
        .answer(&["The command", " has run."])
}

/// The same, in the bare form of Llama 3.1.
pub fn bare_command() -> Script {
    Script::new(Format::Llama31)
        .answer(&[
            "{\"name\": \"exec_command\"",
            ", \"parameters\": {\"cmd\": \"echo",
            " ran > ran.txt",
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
            "\n<tool_call>\n",
            "{\"name\": \"exec_command\"",
            COMMAND,
            " ran > ran.txt",
            "\"}}\n",
            CLOSE,
        ])
        .answer(&["The command", " has run."])
}

pub fn two_commands() -> Script {
    Script::new(Format::Hermes)
        .answer(&[
            CALL,
            COMMAND,
            " first > first.txt",
            "\"}}\n",
            "</tool_call>\n<tool_call>\n",
            "{\"name\": \"exec_command\", ",
            "\"arguments\": {\"cmd\": \"echo",
            " second > second.txt",
            "\"}}\n\n",
            CLOSE,
        ])
        .answer(&["Both", " have run."])
}

/// [`PATCH`] as the argument of the function that stands for Codex's custom tool.
pub fn patch() -> Script {
    Script::new(Format::Hermes)
        .answer(&[
            "<tool_call>\n{\"name\": \"apply_patch\"",
            ", \"arguments\": {\"input\": \"*** Begin",
            " Patch\\n*** Add File",
            ": made.txt\\n+say \\\"",
            "hi\\\"\\n+back\\\\",
            "slash\\n*** End Patch",
            "\"}}\n",
            CLOSE,
        ])
        .answer(&["The file", " is made."])
}

const CALL: &str = "<tool_call>\n{\"name\": \"exec_command\"";
const COMMAND: &str = ", \"arguments\": {\"cmd\": \"echo";
const CLOSE: &str = "</tool_call>";
