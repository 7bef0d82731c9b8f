//! Jinja as `transformers` sets it up for chat templates: `trim_blocks`, `lstrip_blocks`, loop controls, Python's methods, `tojson`, `raise_exception` and
//! `strftime_now`. A template comes with a model file and is not trusted: it is compiled if it is of a size that cannot overflow the stack, and can use up
//! its fuel and nothing else. What minijinja 3.1 does without charging for it (`list + list` beyond 32 levels, comparing long lists) ends with the patience
//! of `super::probation`, and with it the template.

use std::{
    borrow::Cow,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior, Value,
    syntax::SyntaxConfig,
    value::{Kwargs, ValueKind},
};

use super::{
    PromptError,
    date::Date,
    probation::within,
    python::{self, Paper},
};

const NAME: &str = "chat_template";
/// Instructions and 64-byte units of text that any template gets; more with the conversation it is given, up to [`MOST_FUEL`].
const FUEL: u64 = 500_000;
const MOST_FUEL: u64 = 1_000_000;
/// Bytes of a conversation that may itself be why the fuel does not last: tens of thousands of tokens.
const LONG: usize = 256 << 10;
/// Words and signs of a template, text included. The compiler recurses over chains like `a.b.c`, `1 + 1`, `not not x` and `elif`, each link of which has at
/// least one of these; so many fit into a quarter of [`STACK`](super::probation::STACK) even unoptimised. It also takes time with the square of a chain's length.
const MOST_SYMBOLS: usize = 1 << 14;
/// Bytes a prompt may have beyond a small multiple of what went in.
const OUTPUT: usize = 4 << 20;
/// Nested loops, conditions and macro calls. Real templates need less than 30; a thread's stack takes many times this.
const DEEPEST: usize = 150;

/// A compiled template.
#[derive(Debug)]
pub(super) struct Jinja {
    environment: Arc<Environment<'static>>,
    patience: Duration,
    /// It once took longer than that, and still runs.
    endless: AtomicBool,
}

impl Jinja {
    pub(super) fn new(source: &str, date: Date, patience: Duration) -> Result<Jinja, PromptError> {
        let symbols = symbols(source);
        if symbols > MOST_SYMBOLS {
            return Err(PromptError::Template(format!(
                "it has {symbols} words and signs; {MOST_SYMBOLS} are allowed"
            )));
        }
        let source = without_generation_tags(source);
        let environment = within(patience, "made its compiler panic", move || {
            compile(source, date)
        })?;
        Ok(Jinja {
            environment: Arc::new(environment),
            patience,
            endless: AtomicBool::new(false),
        })
    }

    /// Runs the template. `given` is the number of bytes in `context`.
    ///
    /// # Errors
    /// The template's own, too much work, and [`PromptError::Endless`] from then on when it once did not end.
    pub(super) fn render(&self, context: Value, given: usize) -> Result<String, PromptError> {
        self.ends()?;
        let environment = Arc::clone(&self.environment);
        let rendered = within(self.patience, "made its interpreter panic", move || {
            run(&environment, context, given)
        });
        if matches!(rendered, Err(PromptError::Endless { .. })) {
            self.endless.store(true, Ordering::Release);
        }
        rendered
    }

    /// # Errors
    /// [`PromptError::Endless`] if it once did not end, whoever saw that.
    pub(super) fn ends(&self) -> Result<(), PromptError> {
        match self.endless.load(Ordering::Acquire) {
            true => Err(PromptError::Endless {
                seconds: self.patience.as_secs(),
            }),
            false => Ok(()),
        }
    }
}

fn compile(source: String, date: Date) -> Result<Environment<'static>, PromptError> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .map_err(|error| failed(&error))?;
    environment.set_syntax(syntax);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_recursion_limit(DEEPEST);
    environment.set_debug(false);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_formatter(|out, state, value| {
        let text = python::print(value, paper(state))?;
        out.write_str(&text).map_err(Error::from)
    });
    environment.add_filter("tojson", to_json);
    // In Python, strings can be iterated and indexed. Llama 3.1's template asks this to decide that a tool's result is quoted.
    environment.add_test("iterable", |value: &Value| {
        value.kind() == ValueKind::String || value.try_iter().is_ok()
    });
    environment.add_test("sequence", |value: &Value| {
        matches!(
            value.kind(),
            ValueKind::String | ValueKind::Seq | ValueKind::Map
        )
    });
    environment.add_function(
        "raise_exception",
        |message: Cow<'_, str>| -> Result<Value, Error> {
            Err(Error::new(
                ErrorKind::InvalidOperation,
                message.into_owned(),
            ))
        },
    );
    environment.add_function("strftime_now", move |format: Cow<'_, str>| {
        date.format(&format)
    });
    environment
        .add_template_owned(NAME, source)
        .map_err(|error| failed(&error))?;
    Ok(environment)
}

fn run(
    environment: &Environment<'static>,
    context: Value,
    given: usize,
) -> Result<String, PromptError> {
    // Cheap: what is inside is shared.
    let mut environment = environment.clone();
    environment.set_fuel(Some((FUEL + given as u64 / 4).min(MOST_FUEL)));
    let template = environment
        .get_template(NAME)
        .map_err(|error| failed(&error))?;
    let mut out = Bounded {
        bytes: Vec::with_capacity(given + given / 4 + 1024),
        most: OUTPUT + given.saturating_mul(16),
    };
    template
        .render_captured_to(context, &mut out)
        .map_err(|error| match error.kind() {
            // A shorter conversation will tell whether it is the template's fault.
            ErrorKind::OutOfFuel if given >= LONG => PromptError::TooLong { bytes: given },
            _ => failed(&error),
        })?;
    String::from_utf8(out.bytes)
        .map_err(|_| PromptError::Template("wrote text that is not UTF-8".to_owned()))
}

/// Runs of letters and digits, and everything between them but white space.
fn symbols(source: &str) -> usize {
    let mut in_word = false;
    let begins = |character: char| {
        let is_word = character.is_alphanumeric() || character == '_';
        let goes_on = is_word && in_word;
        in_word = is_word;
        !goes_on && !character.is_whitespace()
    };
    source.chars().map(begins).filter(|begins| *begins).count()
}

/// `{% generation %}` marks what `transformers` trains on; for a prompt it is a block that is always there.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at + 2);
        out.push_str(before);
        rest = tag;
        let inner = tag.trim_start_matches(['-', '+']).trim_start();
        for (word, block) in [("generation", "if true"), ("endgeneration", "endif")] {
            if let Some(after) = inner.strip_prefix(word)
                && after
                    .trim_start()
                    .trim_start_matches(['-', '+'])
                    .starts_with("%}")
            {
                out.push_str(&tag[..tag.len() - inner.len()]);
                out.push_str(block);
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

fn paper(state: &State<'_, '_>) -> Paper {
    Paper::new(state.fuel_levels().map(|(_, left)| left))
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "minijinja hands keyword arguments over by value"
)]
fn to_json(state: &State<'_, '_>, value: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    let mut style = python::Style::default();
    if let Some(ascii) = kwargs.get::<Option<bool>>("ensure_ascii")? {
        style.ascii = ascii;
    }
    if let Some(indent) = kwargs.get::<Option<usize>>("indent")? {
        const WIDEST: usize = 16;
        if indent > WIDEST {
            let problem = format!("tojson: indent must be 0 to {WIDEST}, but {indent} came");
            return Err(Error::new(ErrorKind::InvalidOperation, problem));
        }
        style.indent = Some(indent);
    }
    if let Some(separators) = kwargs.get::<Option<Vec<String>>>("separators")? {
        let [item, key] = <[String; 2]>::try_from(separators).map_err(|_| {
            Error::new(
                ErrorKind::InvalidOperation,
                "tojson: separators must be two strings",
            )
        })?;
        style.item_separator = item;
        style.key_separator = key;
    }
    if let Some(sort) = kwargs.get::<Option<bool>>("sort_keys")? {
        style.sort_keys = sort;
    }
    kwargs.assert_all_used()?;
    Ok(Value::from(python::dumps(value, &style, paper(state))?))
}

fn failed(error: &Error) -> PromptError {
    let place = error
        .line()
        .map(|line| format!(" (line {line})"))
        .unwrap_or_default();
    let text = match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => {
            "it does more work than a conversation of this size can need".to_owned()
        }
        (_, Some(detail)) => detail.to_owned(),
        (kind, None) => kind.to_string(),
    };
    PromptError::Template(format!("{text}{place}"))
}

/// Takes no more than a prompt can have.
#[derive(Debug)]
struct Bounded {
    bytes: Vec<u8>,
    most: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.most {
            return Err(io::Error::other(format!(
                "the prompt would be longer than {} bytes",
                self.most
            )));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
