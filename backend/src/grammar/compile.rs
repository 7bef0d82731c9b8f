//! From a request to a [`Plan`]: normalise each tool's schema, compile everything as one grammar, and when that fails find out which tool is to blame.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, OnceLock},
    time::Instant,
};

use llguidance::{
    Matcher, ParserFactory,
    api::TopLevelGrammar,
    toktrie::{ApproximateTokEnv, InferenceCapabilities},
};
use protocol::{FieldError, Object};
use serde_json::{Value, json};

use super::{
    Choice, GrammarError, Input, Relaxed, TextFormat, Tool, ToolSet,
    calls::{self, Body, Callable, Shape},
    custom::{self, Fault},
    lazy::WatchFor,
    limits::{self, Unfinished},
    relax::{self, first_line},
    schema::{self, Loose, Normal},
    vocabulary::Vocabulary,
    walk::Plan,
};
use crate::call_syntax::CallSyntax;

/// What a request wants of its grammar.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) tools: ToolSet,
    pub(crate) choice: Choice,
    pub(crate) parallel: bool,
    pub(crate) format: TextFormat,
    pub(crate) syntax: CallSyntax,
}

/// A compiled request.
#[derive(Clone, Debug)]
pub(crate) struct Compiled {
    pub(crate) plan: Arc<Plan>,
    pub(crate) relaxed: Arc<[Relaxed]>,
}

/// What compiles for one model.
pub(crate) struct Compiler {
    vocabulary: Arc<Vocabulary>,
    digits: Arc<[u32]>,
    /// Made behind the start: it takes longer than all else that has to do with text, and no answer without tools needs it.
    factories: OnceLock<Result<Factories, String>>,
}

pub(crate) struct Factories {
    /// Of the model's vocabulary.
    model: ParserFactory,
    /// Compiles for a vocabulary of single bytes, which is quicker where only the outcome counts.
    probe: ParserFactory,
}

/// The last compiled requests: a session sends the same tools with every turn.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    /// The latest used last.
    entries: VecDeque<(u128, Compiled)>,
}

const MOST_CACHED: usize = 16;

impl Cache {
    pub(crate) fn get(&mut self, key: u128) -> Option<Compiled> {
        let index = self.entries.iter().position(|(other, _)| *other == key)?;
        let entry = self.entries.remove(index)?;
        let compiled = entry.1.clone();
        self.entries.push_back(entry);
        Some(compiled)
    }

    pub(crate) fn put(&mut self, key: u128, compiled: Compiled) {
        if self.entries.len() == MOST_CACHED {
            self.entries.pop_front();
        }
        self.entries.push_back((key, compiled));
    }
}

impl Order {
    pub(crate) fn check_limits(&self) -> Result<(), GrammarError> {
        if self.tools.iter().len() > limits::MAX_TOOLS {
            let problem = format!(
                "has {} tools, more than the {} allowed",
                self.tools.iter().len(),
                limits::MAX_TOOLS
            );
            return Err(FieldError::new("tools", problem).into());
        }
        let mut bytes = 0;
        for tool in self.tools.iter() {
            if let Input::Arguments(schema) = &tool.input {
                bytes += limits::measure(schema)
                    .map_err(|problem| fault(tool, "parameters", &problem))?;
            }
            if bytes > limits::MAX_SCHEMA_BYTES {
                let problem = format!(
                    "with this tool the schemas have more than the {} bytes allowed",
                    limits::MAX_SCHEMA_BYTES
                );
                return Err(fault(tool, "parameters", &problem));
            }
        }
        if let TextFormat::JsonSchema(schema) = &self.format {
            limits::measure(schema).map_err(|problem| answer_fault(&problem))?;
        }
        Ok(())
    }

    /// Is there nothing to hold the answer to?
    pub(crate) fn is_free(&self) -> bool {
        self.tools.is_empty() && self.format == TextFormat::Text
    }

    /// Equal orders have equal keys; others, with all the certainty of 128 bits, have not.
    pub(crate) fn key(&self) -> u128 {
        let mut hasher = xxhash_rust::xxh3::Xxh3::new();
        let mut add = |text: &str| {
            hasher.update(&text.len().to_le_bytes());
            hasher.update(text.as_bytes());
        };
        add(&format!(
            "{:?} {:?} {}",
            self.syntax, self.choice, self.parallel
        ));
        match &self.format {
            TextFormat::Text => add("text"),
            TextFormat::JsonObject => add("object"),
            TextFormat::JsonSchema(schema) => add(&schema.to_string()),
        }
        for tool in self.tools.iter() {
            add(&tool.name);
            add(&tool.path);
            match &tool.input {
                Input::Arguments(schema) => add(&schema.to_string()),
                Input::Text { syntax, definition } => {
                    add(&format!("{syntax:?}"));
                    add(definition);
                }
            }
        }
        hasher.digest128()
    }
}

impl Compiler {
    pub(crate) fn new(vocabulary: Vocabulary) -> Result<Self, String> {
        vocabulary.check()?;
        Ok(Compiler {
            digits: vocabulary.digits(),
            vocabulary: Arc::new(vocabulary),
            factories: OnceLock::new(),
        })
    }

    /// Makes what all compilations share, or waits for who is at it.
    pub(crate) fn factories(&self) -> Result<&Factories, GrammarError> {
        self.factories
            .get_or_init(|| Factories::new(&self.vocabulary))
            .as_ref()
            .map_err(|problem| FieldError::new("tokenizer", problem).into())
    }

    /// Compiles on a thread that is waited for only so long.
    pub(crate) fn run(compiler: &Arc<Self>, order: Order) -> Result<Compiled, GrammarError> {
        // First, as it has nothing to do with how long the order takes.
        compiler.factories()?;
        let compiler = Arc::clone(compiler);
        let param = match order.tools.is_empty() {
            true => "text.format.schema",
            false => "tools",
        };
        let result = limits::within(limits::COMPILE_TIME, move || compiler.compile(&order));
        result.unwrap_or_else(|unfinished| match unfinished {
            Unfinished::Failed(problem) => Err(FieldError::new(param, problem).into()),
            Unfinished::Busy(problem) => Err(GrammarError::busy(param, &problem)),
        })
    }

    fn compile(&self, order: &Order) -> Result<Compiled, GrammarError> {
        let factories = self.factories()?;
        let answer = self.answer(&order.format)?;
        let lazy = answer.is_none() && !order.choice.is_forced();
        let callable = order.tools.filtered(|name| order.choice.allows(name));
        let watch = lazy.then(|| {
            WatchFor::new(
                order.syntax,
                &order.tools,
                |name| order.choice.allows(name),
                &self.vocabulary,
            )
        });
        let shape = Shape {
            syntax: order.syntax,
            parallel: order.parallel,
            after_marker: lazy,
            // Where an answer is owed, no call is none.
            may_be_empty: lazy,
        };
        // A forced call leaves no room for an answer beside it.
        let answer = answer.filter(|_| !order.choice.is_forced());
        let mut tools = Tools::read(&callable)?;
        let start = if callable.is_empty() && answer.is_none() {
            None
        } else {
            Some(Mutex::new(self.matcher(
                &mut tools,
                shape,
                answer.as_ref(),
            )?))
        };
        let plan = Plan {
            vocabulary: Arc::clone(&self.vocabulary),
            env: factories.model.tok_env().clone(),
            digits: Arc::clone(&self.digits),
            watch,
            start,
        };
        Ok(Compiled {
            plan: Arc::new(plan),
            relaxed: tools.relaxed().into(),
        })
    }

    /// The schema of the answer, which is compiled whole or not at all.
    fn answer(&self, format: &TextFormat) -> Result<Option<Value>, GrammarError> {
        let schema = match format {
            TextFormat::Text => return Ok(None),
            TextFormat::JsonObject => return Ok(Some(json!({"type": "object"}))),
            TextFormat::JsonSchema(schema) => schema,
        };
        let mut normal = schema::normalize(schema);
        if normal.loose.is_empty() {
            relax::relax(&mut normal, &|schema| self.probe_schema(schema));
        }
        match normal.loose.first().or(normal.odd.first()) {
            None => Ok(Some(normal.schema)),
            Some(Loose {
                path,
                keyword,
                reason,
            }) => Err(answer_fault(&format!(
                "cannot be enforced: {keyword} at \"{path}\": {reason}"
            ))),
        }
    }

    /// Compiles all tools as one; when that fails, takes out what each tool alone cannot have, and then the largest of them.
    fn matcher(
        &self,
        tools: &mut Tools<'_>,
        shape: Shape,
        answer: Option<&Value>,
    ) -> Result<Matcher, GrammarError> {
        let factories = self.factories()?;
        let attempt = |tools: &Tools<'_>| {
            let grammar = calls::grammar(&tools.callable(), shape, answer, &self.vocabulary);
            build(&factories.model, grammar)
        };
        if let Ok(matcher) = attempt(tools) {
            return Ok(matcher);
        }
        let started = Instant::now();
        for entry in &mut tools.entries {
            match &mut entry.kind {
                Kind::Schema(normal) if started.elapsed() > limits::TRIAL_TIME => {
                    relax::give_up(normal, "the tools together take too long to compile");
                }
                Kind::Schema(normal) => {
                    relax::relax(normal, &|schema| self.probe_schema(schema));
                }
                Kind::Text(lark) => self
                    .probe_text(lark)
                    .map_err(|problem| text_fault(entry.tool, &problem))?,
            }
        }
        loop {
            let problem = match attempt(tools) {
                Ok(matcher) => return Ok(matcher),
                Err(problem) => problem,
            };
            let Some(largest) = tools.largest() else {
                return Err(FieldError::new("tools", first_line(&problem)).into());
            };
            let reason = format!("the tools together are too large: {}", first_line(&problem));
            relax::give_up(largest, &reason);
            if started.elapsed() > limits::TRIAL_TIME {
                // No time for one after the other.
                while let Some(largest) = tools.largest() {
                    relax::give_up(largest, &reason);
                }
            }
        }
    }

    fn probe_schema(&self, schema: &Value) -> Result<(), String> {
        let grammar = TopLevelGrammar {
            grammars: vec![calls::json_grammar("schema", schema)],
            max_tokens: None,
        };
        self.probe(grammar)
    }

    fn probe_text(&self, lark: &str) -> Result<(), String> {
        self.probe(TopLevelGrammar::from_lark(lark.to_owned()))
    }

    fn probe(&self, grammar: TopLevelGrammar) -> Result<(), String> {
        let factories = self.factories().map_err(|error| error.to_string())?;
        build(&factories.probe, grammar).map(drop)
    }
}

impl Factories {
    fn new(vocabulary: &Vocabulary) -> Result<Factories, String> {
        let env = vocabulary.token_env()?;
        let capabilities = InferenceCapabilities {
            ff_tokens: true,
            ..InferenceCapabilities::default()
        };
        let slices = llguidance::earley::SlicedBiasComputer::general_slices();
        let bytes = ApproximateTokEnv::single_byte_env();
        let mut factories = Factories {
            model: ParserFactory::new(&env, capabilities, &slices)
                .map_err(|error| first_line(&error.to_string()))?,
            probe: ParserFactory::new_simple(&bytes)
                .map_err(|error| first_line(&error.to_string()))?,
        };
        for factory in [&mut factories.model, &mut factories.probe] {
            factory.quiet();
            *factory.limits_mut() = limits::parser_limits();
        }
        Ok(factories)
    }
}

/// Compiles, and asks for the first mask: some limits are only met then.
fn build(factory: &ParserFactory, grammar: TopLevelGrammar) -> Result<Matcher, String> {
    let parser = factory.create_parser(grammar);
    let mut matcher = Matcher::new(parser);
    if let Some(problem) = matcher.get_error() {
        return Err(problem);
    }
    match matcher.compute_mask_or_eos() {
        Ok(_) => Ok(matcher),
        Err(error) => Err(error.to_string()),
    }
}

/// The tools of a request on their way to the compiler.
struct Tools<'a> {
    entries: Vec<Entry<'a>>,
}

struct Entry<'a> {
    tool: &'a Tool,
    kind: Kind,
    loose: Vec<Loose>,
}

enum Kind {
    Schema(Normal),
    Text(String),
}

impl<'a> Tools<'a> {
    fn read(tools: &'a ToolSet) -> Result<Self, GrammarError> {
        let entries = tools.iter().map(|tool| {
            let mut loose = Vec::new();
            let kind = match &tool.input {
                Input::Arguments(schema) => Kind::Schema(arguments(schema)),
                Input::Text { syntax, definition } => {
                    match custom::escaped_grammar(*syntax, definition) {
                        Ok(lark) => Kind::Text(lark),
                        Err(Fault::Malformed(problem)) => return Err(text_fault(tool, &problem)),
                        Err(Fault::Unsupported(reason)) => {
                            loose.push(Loose {
                                path: "/properties/input".to_owned(),
                                keyword: "format".to_owned(),
                                reason,
                            });
                            Kind::Schema(arguments(&tool.schema()))
                        }
                    }
                }
            };
            Ok(Entry { tool, kind, loose })
        });
        Ok(Tools {
            entries: entries.collect::<Result<_, _>>()?,
        })
    }

    fn callable(&self) -> Vec<Callable> {
        let callable = self.entries.iter().map(|entry| Callable {
            name: entry.tool.name.clone(),
            body: match &entry.kind {
                Kind::Schema(normal) => Body::Schema(normal.schema.clone()),
                Kind::Text(lark) => Body::Text(lark.clone()),
            },
        });
        callable.collect()
    }

    /// The largest schema that still says something.
    fn largest(&mut self) -> Option<&mut Normal> {
        let schemas = self
            .entries
            .iter_mut()
            .filter_map(|entry| match &mut entry.kind {
                Kind::Schema(normal) if normal.schema.as_object()?.len() > 1 => Some(normal),
                _ => None,
            });
        schemas.max_by_key(|normal| normal.schema.to_string().len())
    }

    fn relaxed(&self) -> Vec<Relaxed> {
        let mut all = Vec::new();
        for entry in &self.entries {
            let schema = match &entry.kind {
                Kind::Schema(normal) => &normal.loose[..],
                Kind::Text(_) => &[],
            };
            all.extend(schema.iter().chain(&entry.loose).map(|loose| Relaxed {
                tool: entry.tool.name.clone(),
                path: loose.path.clone(),
                keyword: loose.keyword.clone(),
                reason: loose.reason.clone(),
            }));
        }
        all
    }
}

/// A tool's schema for the compiler: of an object, whatever else it says.
fn arguments(schema: &Value) -> Normal {
    let mut normal = schema::normalize(schema);
    let Value::Object(root) = &mut normal.schema else {
        normal.schema = json!({"type": "object"});
        return normal;
    };
    match root.get("type") {
        // No more than that: what refers to itself cannot say more.
        None if is_object(root) => {}
        Some(Value::String(only)) if only == "object" => {}
        Some(Value::String(_)) => {
            let loose = Loose {
                path: String::new(),
                keyword: "type".to_owned(),
                reason: "arguments are an object".to_owned(),
            };
            normal.schema = json!({"type": "object"});
            normal.loose.push(loose);
        }
        None | Some(_) => {
            root.insert("type".to_owned(), "object".into());
        }
    }
    normal
}

/// Does a schema of ours say by its type, or by that of what it refers to, that it is of an object?
fn is_object(root: &Object) -> bool {
    let definitions = root.get("$defs").and_then(Value::as_object);
    let (mut at, mut seen) = (root, 0);
    while at.get("type").is_none() && seen <= definitions.map_or(0, Object::len) {
        let reference = at.get("$ref").and_then(Value::as_str).unwrap_or_default();
        let name = reference.strip_prefix("#/$defs/");
        let target = name.and_then(|name| definitions?.get(name)?.as_object());
        let Some(target) = target else {
            return false;
        };
        (at, seen) = (target, seen + 1);
    }
    at.get("type").is_some_and(|only| only == "object")
}

fn fault(tool: &Tool, field: &str, problem: &str) -> GrammarError {
    let param = protocol::object::join(&tool.path, field);
    FieldError::new(param, format!("tool \"{}\": {problem}", tool.name)).into()
}

fn text_fault(tool: &Tool, problem: &str) -> GrammarError {
    let field = format!("{}.definition", protocol::tool::GRAMMAR_FIELD);
    fault(
        tool,
        &field,
        &format!("the grammar {}", first_line(problem)),
    )
}

fn answer_fault(problem: &str) -> GrammarError {
    FieldError::new("text.format.schema", problem).into()
}

impl fmt::Debug for Compiler {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("Compiler")
            .field(&self.vocabulary)
            .finish()
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Plan")
            .field("watch", &self.watch.is_some())
            .field("grammar", &self.start.is_some())
            .finish_non_exhaustive()
    }
}
