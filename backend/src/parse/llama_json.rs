//! Calls as Llama 3 writes them: behind `<|python_tag|>`, or just so.
//!
//! Without a marker a call is looked for where an answer or a line begins, outside fenced code, and only while tools are offered: `{` and a first key
//! that calls have, or `[` and the name of a tool. Anything else goes out as text as soon as it differs.

use super::ParserOptions;
use crate::call_syntax::CallSyntax;

pub(super) const TAG: &str = "<|python_tag|>";
/// Llama 4, and fine-tunes that took it over.
pub(super) const START: &str = "<|python_start|>";
pub(super) const END: &str = "<|python_end|>";

/// Looked for in text, where they come spelled out; mostly they are control tokens.
pub(super) const MARKERS: [&str; 3] = [TAG, START, END];

/// Whether `character`, the first of a line, may be the head of a call.
pub(super) fn may_open(character: char, options: &ParserOptions) -> bool {
    let llama = matches!(
        options.syntax,
        CallSyntax::LlamaJson | CallSyntax::LlamaPythonic
    );
    llama && !options.tools.is_empty() && matches!(character, '{' | '[')
}
