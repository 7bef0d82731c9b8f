//! The request side: what Codex sends becomes what a plain Responses server takes, and a [`Translation`] remembers how
//! to turn the answer back ([`restore`]).
//!
//! Codex declares tools a local server does not know (`custom`, `namespace`, `tool_search`, `web_search`), and replays
//! their calls in every later request. Upstream there are only functions with flat names, in `tools` and in the history
//! alike. Everything here is a pure function of its arguments: the same request gives the same bytes, so that the
//! upstream's prefix cache holds, and an appended tool renames nothing.
//!
//! ```text
//! Codex:    tools [custom apply_patch, namespace mcp__tickets{find_ticket}]   input [… custom_tool_call …]
//! upstream: tools [function apply_patch, function mcp__tickets__find_ticket]  input [… function_call …]
//! ```

mod alias;
mod catalog;
mod chat;
mod choice;
mod count;
mod declare;
mod describe;
mod error;
mod exclude;
mod fields;
mod fuzz;
mod history;
pub mod restore;
mod schema;
mod system;
mod tools;
mod web_search;

#[cfg(test)]
mod tests;

use protocol::{FieldError, Object, response::ECHOED};
use serde_json::Value;

use crate::config::Policy;

pub use catalog::{Tool, ToolCatalog};
pub use chat::refuse_chat_fields;
pub use count::Counts;
pub(crate) use count::told;
pub use error::Error;
pub use fuzz::fuzz_normalize;

/// What the upstream can do, known before the request is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    pub dialect: Dialect,
    /// Images reach the model.
    pub vision: bool,
    /// The chat template takes several calls in one assistant turn.
    pub parallel_calls: bool,
    /// Takes a custom tool's grammar in the field [`protocol::tool::GRAMMAR_FIELD`] of the function.
    pub custom_grammar: bool,
}

/// How much of the Responses API an upstream understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// llama-server: converts to chat completions, refuses most item types, ignores most fields.
    LlamaCpp,
    /// A native Responses server: gets the request with as little changed as possible.
    Responses,
}

/// A request as it goes upstream, and the way back.
#[derive(Debug, Clone)]
pub struct Normalized {
    pub body: Object,
    pub translation: Translation,
    /// The client said `generate: false`: answer with an empty completed response, ask nobody.
    pub prewarm: bool,
}

/// What the answer needs to know about the request.
#[derive(Debug, Clone, Default)]
pub struct Translation {
    pub catalog: ToolCatalog,
    /// The request's fields that a response echoes, as the client sent them.
    pub declared: Object,
    /// The client wants events.
    pub stream: bool,
    /// The client said `parallel_tool_calls: false`.
    pub single_call: bool,
    pub max_output_tokens: Option<u64>,
    /// `text.format` asks for JSON. Such an answer is never commentary: the OpenAI SDK's `.parse()` skips commentary.
    pub structured_output: bool,
    /// `Policy::repair_patch_markers`, for [`restore`].
    pub repair_patch_markers: bool,
    pub counts: Counts,
}

/// Turns Codex's `request` into the upstream's.
///
/// # Errors
/// A request that cannot mean anything to the upstream. The checks run in a fixed order: model, `stream`, the whole
/// tool list, `tool_choice`, the rest.
pub fn normalize(
    request: Object,
    policy: &Policy,
    upstream: &Capabilities,
) -> Result<Normalized, Error> {
    let model = fields::model(&request, policy)?;
    chat::refuse(&request)?;
    let stream = fields::stream(&request)?;
    let mut counts = Counts::default();
    let declarations = declare::collect(&request, policy, &mut counts)?;
    let mut offer = tools::offer(declarations, policy, upstream, &mut counts)?;
    let choice = choice::choose(request.get("tool_choice"), &offer.catalog, policy)?;
    let max_output_tokens = fields::max_output_tokens(&request, upstream.dialect)?;
    let format =
        fields::text_format(&request, upstream.dialect)?.filter(|_| !choice.forces_a_call());
    let structured_output = fields::is_structured(&request);

    let mut body = request;
    let declared = echoed(&mut body);
    let single_call = body.get("parallel_tool_calls") == Some(&Value::Bool(false));
    let prewarm = body.get("generate") == Some(&Value::Bool(false));

    counts.aliased_model = fields::set_model(&mut body, &model);
    fields::set_effort(&mut body, policy);
    let withhold = format.is_some() && upstream.dialect == Dialect::LlamaCpp;
    history::write(
        &mut body,
        &history::Rewriting {
            offer: &offer,
            policy,
            upstream,
            input_optional: prewarm,
        },
        &mut counts,
    )?;
    tools::write(
        &mut body,
        &mut offer,
        &choice,
        withhold,
        upstream,
        &mut counts,
    );
    fields::write(&mut body, format, upstream.dialect)?;

    Ok(Normalized {
        body,
        translation: Translation {
            catalog: offer.catalog,
            declared,
            stream,
            single_call,
            max_output_tokens,
            structured_output,
            repair_patch_markers: policy.repair_patch_markers,
            counts,
        },
        prewarm,
    })
}

/// The fields a response repeats. The tool list, the largest of them, leaves its place empty: it is written anew.
fn echoed(request: &mut Object) -> Object {
    ECHOED
        .iter()
        .filter_map(|key| {
            let value = match request.get_mut(*key)? {
                tools @ Value::Array(_) if *key == "tools" => tools.take(),
                value => value.clone(),
            };
            Some(((*key).to_owned(), value))
        })
        .collect()
}

/// The path of one element of a list: `tools[3]`.
fn element(list: &str, index: usize) -> String {
    format!("{list}[{index}]")
}

/// The array at `key`; `None` when it is absent. Null is not a list.
fn optional_list<'a>(
    object: &'a Object,
    key: &str,
    parent: &str,
) -> Result<Option<&'a [Value]>, FieldError> {
    match object.get(key) {
        None => Ok(None),
        Some(Value::Array(list)) => Ok(Some(list)),
        Some(other) => Err(FieldError::unexpected(
            protocol::object::join(parent, key),
            "an array",
            other,
        )),
    }
}
