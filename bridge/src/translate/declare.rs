//! The tool list, checked as a whole before anything is converted: [`collect`] reads `tools`, then the tools that the
//! history declares (`additional_tools` of "Responses Lite" requests, `tool_search_output`), in order of appearance.

use protocol::{
    FieldError, ItemKind, Object, ToolId, ToolKind,
    object::{as_object, join, optional_str, required_str},
};
use serde_json::Value;

use super::{Counts, Error, element, optional_list};
use crate::config::{Policy, UnknownTools};

/// One function, custom tool or tool search.
#[derive(Debug)]
pub(super) struct Declaration {
    pub(super) id: ToolId,
    /// Of the entry, e.g. `tools[1].tools[0]`.
    pub(super) path: String,
    pub(super) namespace_description: String,
    pub(super) description: String,
    pub(super) body: Body,
    /// The item of `input` that declares it; none for an entry of `tools`.
    pub(super) item: Option<usize>,
}

#[derive(Debug)]
pub(super) enum Body {
    Function(Signature),
    Custom {
        grammar: Option<Grammar>,
    },
    ToolSearch {
        signature: Signature,
        execution: Option<String>,
    },
}

#[derive(Debug)]
pub(super) struct Signature {
    pub(super) parameters: Option<Object>,
    pub(super) strict: bool,
}

/// The grammar of a custom tool's input.
#[derive(Debug)]
pub(super) struct Grammar {
    pub(super) syntax: String,
    pub(super) definition: String,
    /// The `format` it was declared with.
    pub(super) format: Object,
}

/// A hosted search, which an MCP tool must stand in for.
#[derive(Debug)]
pub(super) struct HostedSearch {
    pub(super) path: String,
    pub(super) kind: String,
}

#[derive(Debug, Default)]
pub(super) struct Declarations {
    /// The request has a tool list, were it empty.
    pub(super) listed: bool,
    pub(super) tools: Vec<Declaration>,
    pub(super) searches: Vec<HostedSearch>,
}

pub(super) fn collect(
    request: &Object,
    policy: &Policy,
    counts: &mut Counts,
) -> Result<Declarations, Error> {
    let mut reader = Reader {
        policy,
        counts,
        item: None,
        found: Declarations::default(),
    };
    if let Some(list) = optional_list(request, "tools", "")? {
        reader.found.listed = true;
        reader.list(list, "tools")?;
    }
    let items = request.get("input").and_then(Value::as_array);
    for (index, item) in items.into_iter().flatten().enumerate() {
        let Some(item) = item.as_object() else {
            continue;
        };
        let kind = ItemKind::of(item);
        if !matches!(kind, ItemKind::AdditionalTools | ItemKind::ToolSearchOutput) {
            continue;
        }
        let path = element("input", index);
        reader.item = Some(index);
        if let Some(list) = optional_list(item, "tools", &path)? {
            reader.found.listed |= kind == ItemKind::AdditionalTools || !list.is_empty();
            reader.list(list, &join(&path, "tools"))?;
        }
    }
    Ok(reader.found)
}

/// Whether the API's hosted web search goes by this type (dated variants included).
pub(super) fn is_web_search(kind: &str) -> bool {
    kind.starts_with("web_search")
}

struct Reader<'a> {
    policy: &'a Policy,
    counts: &'a mut Counts,
    item: Option<usize>,
    found: Declarations,
}

/// The namespace around an entry.
#[derive(Clone, Copy)]
struct Namespace<'a> {
    name: &'a str,
    description: &'a str,
}

impl Reader<'_> {
    fn list(&mut self, list: &[Value], path: &str) -> Result<(), Error> {
        for (index, entry) in list.iter().enumerate() {
            let path = element(path, index);
            let entry = as_object(entry, &path)?;
            let kind = required_str(entry, "type", &path)?;
            match kind {
                "namespace" => self.namespace(entry, &path)?,
                "tool_search" => self.tool_search(entry, path)?,
                kind if is_web_search(kind) => {
                    self.counts.tools_declared += 1;
                    self.found.searches.push(HostedSearch {
                        path,
                        kind: kind.to_owned(),
                    });
                }
                _ => self.tool(entry, kind, None, path)?,
            }
        }
        Ok(())
    }

    fn namespace(&mut self, entry: &Object, path: &str) -> Result<(), Error> {
        let namespace = Namespace {
            name: name(entry, path)?,
            description: optional_str(entry, "description", path)?.unwrap_or_default(),
        };
        let path = join(path, "tools");
        let list = match entry.get("tools") {
            Some(Value::Array(list)) => list,
            Some(other) => return Err(FieldError::unexpected(path, "an array", other).into()),
            None => return Err(FieldError::missing(path, "an array").into()),
        };
        for (index, tool) in list.iter().enumerate() {
            let path = element(&path, index);
            let tool = as_object(tool, &path)?;
            let kind = required_str(tool, "type", &path)?;
            self.tool(tool, kind, Some(namespace), path)?;
        }
        Ok(())
    }

    fn tool(
        &mut self,
        entry: &Object,
        kind: &str,
        namespace: Option<Namespace<'_>>,
        path: String,
    ) -> Result<(), Error> {
        let (kind, body) = match kind {
            "function" => (ToolKind::Function, Body::Function(signature(entry, &path)?)),
            "custom" => (
                ToolKind::Custom,
                Body::Custom {
                    grammar: grammar(entry, &path)?,
                },
            ),
            unknown => return self.unknown(unknown, namespace.is_some(), &path),
        };
        let id = ToolId {
            kind,
            namespace: namespace.map(|namespace| namespace.name.to_owned()),
            name: name(entry, &path)?.to_owned(),
        };
        let around = namespace.map_or("", |namespace| namespace.description);
        self.push(id, entry, around, body, path)
    }

    fn tool_search(&mut self, entry: &Object, path: String) -> Result<(), Error> {
        let execution = optional_str(entry, "execution", &path)?.map(str::to_owned);
        if execution.as_deref() == Some("server") {
            return self.unknown("tool_search", false, &path);
        }
        let body = Body::ToolSearch {
            signature: signature(entry, &path)?,
            execution,
        };
        let id = ToolId {
            kind: ToolKind::ToolSearch,
            namespace: None,
            name: "tool_search".to_owned(),
        };
        self.push(id, entry, "", body, path)
    }

    fn push(
        &mut self,
        id: ToolId,
        entry: &Object,
        namespace_description: &str,
        body: Body,
        path: String,
    ) -> Result<(), Error> {
        self.counts.tools_declared += 1;
        self.found.tools.push(Declaration {
            id,
            namespace_description: namespace_description.to_owned(),
            description: optional_str(entry, "description", &path)?
                .unwrap_or_default()
                .to_owned(),
            body,
            item: self.item,
            path,
        });
        Ok(())
    }

    fn unknown(&mut self, kind: &str, nested: bool, path: &str) -> Result<(), Error> {
        self.counts.tools_declared += 1;
        if self.policy.unknown_tools == UnknownTools::Drop {
            self.counts.drop_tool(kind);
            return Ok(());
        }
        let allowed = if nested {
            "function and custom inside a namespace"
        } else {
            "function, custom, namespace, web_search and tool_search run by the client"
        };
        Err(Error::unsupported(
            join(path, "type"),
            format!(
                "\"{kind}\" is a type of tool that is not offered here; possible are {allowed} \
                 (the bridge setting unknownTools = \"drop\" leaves others out)"
            ),
        ))
    }
}

fn name<'a>(entry: &'a Object, path: &str) -> Result<&'a str, FieldError> {
    let name = required_str(entry, "name", path)?;
    if name.trim().is_empty() {
        return Err(FieldError::new(join(path, "name"), "must not be blank"));
    }
    Ok(name)
}

fn signature(entry: &Object, path: &str) -> Result<Signature, FieldError> {
    let parameters = match entry.get("parameters") {
        None | Some(Value::Null) => None,
        Some(Value::Object(parameters)) => Some(parameters.clone()),
        Some(other) => {
            let path = join(path, "parameters");
            return Err(FieldError::unexpected(path, "an object", other));
        }
    };
    let strict = match entry.get("strict") {
        None | Some(Value::Null) => true,
        Some(Value::Bool(strict)) => *strict,
        Some(other) => {
            let path = join(path, "strict");
            return Err(FieldError::unexpected(path, "a boolean", other));
        }
    };
    Ok(Signature { parameters, strict })
}

fn grammar(entry: &Object, path: &str) -> Result<Option<Grammar>, FieldError> {
    let path = join(path, "format");
    let format = match entry.get("format") {
        None | Some(Value::Null) => return Ok(None),
        Some(format) => as_object(format, &path)?,
    };
    let syntax = optional_str(format, "syntax", &path)?.unwrap_or("given");
    let definition = optional_str(format, "definition", &path)?.unwrap_or_default();
    Ok((!definition.is_empty()).then(|| Grammar {
        syntax: syntax.to_owned(),
        definition: definition.to_owned(),
        format: format.clone(),
    }))
}
