//! [`ToolSet`]: the functions a request offers, as far as a grammar cares: name, argument schema, and the grammar of a custom tool's input.

use std::sync::Arc;

use protocol::{
    FieldError, Object,
    object::{as_object, join, optional_str, required_str},
    tool::GRAMMAR_FIELD,
};
use serde_json::{Value, json};

use super::{GrammarError, limits};

/// The functions of a request, in order; names are distinct.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolSet {
    tools: Vec<Tool>,
}

/// One function.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    pub name: String,
    pub input: Input,
    /// JSON path of the tool in the request, `tools[3]`.
    pub path: String,
}

/// What a call's arguments must be.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Arguments that satisfy a JSON Schema.
    Arguments(Arc<Value>),
    /// `{"input": text}`, the text in the language of a grammar: a custom tool.
    Text { syntax: Syntax, definition: String },
}

/// How a custom tool's grammar is written.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Syntax {
    Lark,
    /// One regular expression for the whole text.
    Regex,
}

impl ToolSet {
    /// Reads `tools` of a request in the Responses dialect, function tools only.
    ///
    /// # Errors
    /// A field of the wrong type, another kind of tool, a name that came before, an unknown grammar syntax.
    pub fn from_request(tools: &[Value]) -> Result<Self, GrammarError> {
        let mut set = ToolSet::default();
        for (index, tool) in tools.iter().enumerate() {
            let tool = read(tool, format!("tools[{index}]"))?;
            if let Some(other) = set.get(&tool.name) {
                let problem = format!("\"{}\" is also the name of {}", tool.name, other.path);
                return Err(FieldError::new(join(&tool.path, "name"), problem).into());
            }
            set.tools.push(tool);
        }
        Ok(set)
    }

    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Tool> {
        self.tools.iter()
    }

    pub fn get(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// The tools whose names `keep` likes, in order.
    pub(crate) fn filtered(&self, keep: impl Fn(&str) -> bool) -> Self {
        let tools = self.tools.iter().filter(|tool| keep(&tool.name));
        ToolSet {
            tools: tools.cloned().collect(),
        }
    }
}

impl Tool {
    /// The schema of the arguments as JSON.
    pub fn schema(&self) -> Arc<Value> {
        match &self.input {
            Input::Arguments(schema) => Arc::clone(schema),
            Input::Text { .. } => Arc::new(json!({
                "type": "object",
                "properties": {"input": {"type": "string"}},
                "required": ["input"],
                "additionalProperties": false,
            })),
        }
    }
}

fn read(tool: &Value, path: String) -> Result<Tool, FieldError> {
    let tool = as_object(tool, &path)?;
    match required_str(tool, "type", &path)? {
        "function" => {}
        other => {
            let problem = format!("must be \"function\", but \"{other}\" came");
            return Err(FieldError::new(join(&path, "type"), problem));
        }
    }
    let name = required_str(tool, "name", &path)?.to_owned();
    if name.is_empty() {
        return Err(FieldError::new(join(&path, "name"), "must not be empty"));
    }
    let input = match tool.get(GRAMMAR_FIELD) {
        None | Some(Value::Null) => Input::Arguments(parameters(tool, &name, &path)?),
        Some(format) => text(format, &join(&path, GRAMMAR_FIELD))?,
    };
    Ok(Tool { name, input, path })
}

fn parameters(tool: &Object, name: &str, path: &str) -> Result<Arc<Value>, FieldError> {
    match tool.get("parameters") {
        // A function declared without parameters takes none.
        None | Some(Value::Null) => Ok(Arc::new(json!({"type": "object", "properties": {}}))),
        Some(schema @ Value::Object(_)) => {
            // Before anything recurses into it, and be it to copy it.
            limits::measure(schema).map_err(|problem| {
                let problem = format!("tool \"{name}\": the schema {problem}");
                FieldError::new(join(path, "parameters"), problem)
            })?;
            Ok(Arc::new(schema.clone()))
        }
        Some(other) => Err(FieldError::unexpected(
            join(path, "parameters"),
            "an object",
            other,
        )),
    }
}

fn text(format: &Value, path: &str) -> Result<Input, FieldError> {
    let format = as_object(format, path)?;
    let definition = required_str(format, "definition", path)?.to_owned();
    let syntax = match optional_str(format, "syntax", path)? {
        Some("lark") => Syntax::Lark,
        Some("regex") => Syntax::Regex,
        other => {
            let came = other.map_or("nothing".to_owned(), |other| format!("\"{other}\""));
            let problem = format!("must be \"lark\" or \"regex\", but {came} came");
            return Err(FieldError::new(join(path, "syntax"), problem));
        }
    };
    Ok(Input::Text { syntax, definition })
}
