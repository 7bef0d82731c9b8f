//! `tools`: every declaration as a function the upstream takes, under its wire name.

use std::collections::{HashMap, HashSet};

use protocol::{Object, tool::GRAMMAR_FIELD};
use serde_json::{Value, json};

use super::{
    Capabilities, Counts, Dialect, Error, Tool, ToolCatalog, catalog,
    choice::Choice,
    declare::{Body, Declaration, Declarations, Signature},
    describe, exclude, schema, web_search,
};
use crate::config::Policy;

/// What the model is offered.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) catalog: ToolCatalog,
    /// In the order of the catalog.
    pub(super) functions: Vec<Object>,
    /// Wire names of the tools each item of `input` declares.
    pub(super) found: HashMap<usize, Vec<String>>,
    listed: bool,
}

impl Offer {
    pub(super) fn function(&self, wire_name: &str) -> Option<&Object> {
        self.functions
            .iter()
            .find(|function| function.get("name").and_then(Value::as_str) == Some(wire_name))
    }
}

pub(super) fn offer(
    declarations: Declarations,
    policy: &Policy,
    upstream: &Capabilities,
    counts: &mut Counts,
) -> Result<Offer, Error> {
    let mut offer = Offer {
        catalog: ToolCatalog::default(),
        functions: Vec::new(),
        found: HashMap::new(),
        listed: declarations.listed,
    };
    for declaration in declarations.tools {
        if exclude::is_excluded(&declaration.id, policy) {
            counts.tools_excluded += 1;
            continue;
        }
        let mut tool = Tool::new(declaration.id.clone());
        let wire_name = tool.wire_name.clone();
        let (path, item) = (declaration.path.clone(), declaration.item);
        let id = declaration.id.clone();
        let function = function(declaration, &mut tool, upstream);
        if offer.catalog.insert(tool, &path)? {
            offer.functions.push(function);
        } else if item.is_none() {
            // The same tool twice in one list is a fault; found again in the history it is not.
            let twice = Tool::new(id);
            return Err(catalog::collision(&twice, &twice, &path));
        }
        if let Some(item) = item {
            offer.found.entry(item).or_default().push(wire_name);
        }
    }
    web_search::check(&declarations.searches, &offer.catalog, policy, counts)?;
    Ok(offer)
}

/// Puts `tools` and `tool_choice` into the body; `offer` has given its functions away then.
pub(super) fn write(
    body: &mut Object,
    offer: &mut Offer,
    choice: &Choice,
    withhold: bool,
    upstream: &Capabilities,
    counts: &mut Counts,
) {
    if withhold {
        // llama-server cannot hold the answer to a schema and parse calls at once; the schema is what was asked for.
        counts.tools_withheld = offer.functions.len();
        body.shift_remove("tools");
        body.shift_remove("tool_choice");
        return;
    }
    let allowed: Option<HashSet<&str>> = match upstream.dialect {
        Dialect::LlamaCpp => choice.wire_names().map(|names| names.into_iter().collect()),
        Dialect::Responses => None,
    };
    let functions: Vec<Value> = offer
        .catalog
        .tools()
        .iter()
        .zip(std::mem::take(&mut offer.functions))
        .filter(|(tool, _)| {
            allowed
                .as_ref()
                .is_none_or(|names| names.contains(tool.wire_name.as_str()))
        })
        .map(|(_, function)| function.into())
        .collect();
    counts.tools_sent = functions.len();
    if offer.listed {
        body.insert("tools".into(), functions.into());
    }
    match choice.value(upstream.dialect) {
        Some(value) => {
            body.insert("tool_choice".into(), value);
        }
        // `null` is none either.
        None => {
            body.shift_remove("tool_choice");
        }
    }
}

fn function(declaration: Declaration, tool: &mut Tool, upstream: &Capabilities) -> Object {
    let description = describe::describe(&declaration);
    let mut grammar = None;
    let (parameters, strict) = match declaration.body {
        Body::Function(signature) => {
            let strict = signature.strict;
            (parameters(signature, tool), strict)
        }
        Body::ToolSearch {
            signature,
            execution,
        } => {
            tool.execution = execution;
            let strict = signature.strict;
            (parameters(signature, tool), strict)
        }
        Body::Custom { grammar: declared } => {
            grammar = declared.filter(|_| upstream.custom_grammar);
            (text_input(&description), true)
        }
    };
    let mut function = Object::new();
    function.insert("type".into(), "function".into());
    function.insert("name".into(), tool.wire_name.as_str().into());
    function.insert("description".into(), description.into());
    function.insert("parameters".into(), parameters);
    function.insert("strict".into(), strict.into());
    if let Some(grammar) = grammar {
        function.insert(GRAMMAR_FIELD.into(), grammar.format.into());
    }
    function
}

fn parameters(signature: Signature, tool: &mut Tool) -> Value {
    let Some(mut parameters) = signature.parameters else {
        return schema::open();
    };
    tool.encrypted = schema::strip_encrypted(&mut parameters);
    parameters.into()
}

/// A custom tool's input as the one argument of a function.
fn text_input(description: &str) -> Value {
    json!({
        "type": "object",
        "properties": {"input": {"type": "string", "description": description}},
        "required": ["input"],
        "additionalProperties": false,
    })
}
