//! The bundled Llama engine: a request in the Responses dialect in, native Responses events out, on this machine's own processor.
//!
//! ```text
//! protocol request → prompt (items → chat template → tokens) → engine (schedule → device.forward → device.sample) → parse → respond → events
//!                    grammar (tools, tool_choice, text.format → Constraint) ─┘
//! ```
//!
//! Invariants: one thread owns the device; every channel is bounded; dropping a generation cancels it at the next step; nothing here knows HTTP,
//! Codex or configuration files.

pub mod backend;
pub mod call_syntax;
pub mod cpu;
pub mod device;
pub mod engine;
pub mod grammar;
mod kv;
pub mod model;
#[cfg(any(test, feature = "testing"))]
pub mod oracle;
pub mod parse;
pub mod prompt;
pub mod respond;
pub mod sample;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tokenizer;
