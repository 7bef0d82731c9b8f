//! The bundled Llama engine: a request in the Responses dialect in, native Responses events out, on this machine's own processor.
//!
//! ```text
//!            ┌ prompt    items → turns → the model's chat template → tokens          tokenizer
//! request ───┤ grammar   tools, tool_choice, text.format → what may be drawn
//! (backend)  └ respond   limits, sampling, stop strings
//!                 │ GenerateRequest
//!            ┌ engine    one thread: schedule → device.forward ‖ masks → device.sample → accept
//!            │ kv        pages, the tree of known prefixes, stable prefixes on disk
//!            └ cpu       the device: weights as in the file, keys and values in pages        model, sample
//!                 │ tokens
//!              parse     text, reasoning, calls
//!              respond   native events, phases, usage                                  ───▶ events
//! ```
//!
//! # The walk of a request
//!
//! [`backend::Backend::respond`] moves to a thread of its own, since templates, tokens and grammars take milliseconds. There the request's
//! [conversation](prompt::Conversation) is rendered by the model's own [chat template](prompt::Template); text of users never becomes a control token, and
//! the prompt of a turn begins with that of the turn before, so that the prefix cache finds it. Tools, `tool_choice` and `text.format` become a
//! [`Constraint`](engine::constraint::Constraint): it is not hoped for that a call is well-formed, nothing else can be drawn. Whatever is wrong with a
//! request is said here, before the first event.
//!
//! The [engine](engine::Engine) takes it into a bounded queue. Its thread owns the [device](device::Device) and works in steps: all sequences that decode and
//! a piece of the prompts that don't, in one forward pass, while other threads compute the token masks. Guesses from repeated text and tokens that a grammar
//! leaves no choice about are checked several at a time. What comes out is a function of the request and its seed alone, whatever else runs.
//!
//! Back in the caller's task, [`respond::Responding`] turns tokens into text on character borders, [`parse`] tells text, reasoning and calls apart as they
//! come, and the emitter makes events of them, in the order and with the fields that clients insist on. Dropping it cancels the generation.
//!
//! # Invariants
//!
//! - One thread owns the device. Every channel and every queue is bounded; a client that does not read pauses its own sequence and nobody else's.
//! - Dropping a response frees its pages at the next step; a response that is not dropped ends with exactly one terminal event, whose output is the list of
//!   the items that were streamed.
//! - Model files and requests are not trusted: every length is checked before it is used, grammars and templates have limits of size and time, and each
//!   error names the field, what came and what is allowed.
//! - Calls with and without a marker are recognised by [`grammar`] and [`parse`] at the same place; what is not a call is text, as it was written.
//! - Nothing here knows HTTP, Codex or configuration files.

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
