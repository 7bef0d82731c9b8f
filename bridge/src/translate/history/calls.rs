//! Calls and outputs of every declared kind as `function_call` and `function_call_output`, under the wire name the
//! tool has in `tools`. A tool that is no longer declared keeps the name it would have.

use protocol::{Object, object::str_or_empty};
use serde_json::{Value, json};

use super::super::{Counts, alias::wire_name, tools::Offer};
use super::object;

pub(super) fn function_call(mut call: Object) -> Object {
    rename(&mut call);
    // Our own note to Codex (`restore`), and no business of the upstream.
    call.shift_remove("encrypted_function_args");
    call
}

pub(super) fn custom_call(mut call: Object) -> Object {
    rename(&mut call);
    let input = call.shift_remove("input").unwrap_or_else(|| "".into());
    object([
        ("type", Some("function_call".into())),
        ("id", call.shift_remove("id")),
        ("call_id", call.shift_remove("call_id")),
        ("name", call.shift_remove("name")),
        (
            "arguments",
            Some(json!({ "input": input }).to_string().into()),
        ),
        ("status", call.shift_remove("status")),
    ])
}

pub(super) fn custom_output(mut output: Object) -> Object {
    output.insert("type".into(), "function_call_output".into());
    output
}

/// A search for deferred tools. One without `call_id` was run by a hosted server and has no place in a history of calls.
pub(super) fn search_call(mut call: Object, counts: &mut Counts) -> Option<Object> {
    if !call.get("call_id").is_some_and(Value::is_string) {
        counts.drop_item("tool_search_call");
        return None;
    }
    let arguments = match call.shift_remove("arguments") {
        None | Some(Value::Null) => "{}".to_owned(),
        Some(Value::String(text)) => text,
        Some(arguments) => arguments.to_string(),
    };
    Some(object([
        ("type", Some("function_call".into())),
        ("id", call.shift_remove("id")),
        ("call_id", call.shift_remove("call_id")),
        ("name", Some("tool_search".into())),
        ("arguments", Some(arguments.into())),
        ("status", call.shift_remove("status")),
    ]))
}

/// What a search found, as the functions the model can call from now on.
pub(super) fn search_output(
    mut output: Object,
    index: usize,
    offer: &Offer,
    counts: &mut Counts,
) -> Option<Object> {
    if !output.get("call_id").is_some_and(Value::is_string) {
        counts.drop_item("tool_search_output");
        return None;
    }
    let found: Vec<Value> = offer
        .found
        .get(&index)
        .into_iter()
        .flatten()
        .filter_map(|wire_name| offer.function(wire_name))
        .map(|function| {
            json!({
                "name": function.get("name"),
                "description": function.get("description"),
                "parameters": function.get("parameters"),
            })
        })
        .collect();
    Some(object([
        ("type", Some("function_call_output".into())),
        ("id", output.shift_remove("id")),
        ("call_id", output.shift_remove("call_id")),
        ("output", Some(Value::from(found).to_string().into())),
        ("status", output.shift_remove("status")),
    ]))
}

/// Replaces name and namespace by the wire name.
fn rename(call: &mut Object) {
    let namespace = call.shift_remove("namespace");
    let namespace = namespace.as_ref().and_then(Value::as_str);
    let name = str_or_empty(call, "name");
    if !name.is_empty() {
        let wire_name = wire_name(namespace.filter(|name| !name.is_empty()), name);
        call.insert("name".into(), wire_name.into());
    }
}
