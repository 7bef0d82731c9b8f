//! Values as Python writes them. Models were trained on prompts that Python made, so `{"a": 1}` with its blanks is not a matter of taste: other spacing is
//! other tokens.

use std::fmt::{self, Write as _};

use minijinja::{
    Error, ErrorKind, Value,
    value::{Object, ObjectRepr, ValueKind},
};
use protocol::FieldError;
use serde_json::Number;

use std::sync::Arc;

/// A number that no machine type holds; kept as its digits.
#[derive(Debug)]
struct Digits(String);

impl Object for Digits {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A JSON value for a template; `text` is applied to every string and key.
///
/// By hand: with `arbitrary_precision` a number passed through serde becomes a private map.
pub(super) fn value(json: &serde_json::Value, text: &impl Fn(&str) -> String) -> Value {
    match json {
        serde_json::Value::Null => Value::from(()),
        serde_json::Value::Bool(flag) => Value::from(*flag),
        serde_json::Value::Number(number) => self::number(number),
        serde_json::Value::String(string) => Value::from(text(string)),
        serde_json::Value::Array(list) => list
            .iter()
            .map(|item| value(item, text))
            .collect::<Vec<_>>()
            .into(),
        serde_json::Value::Object(object) => Value::from_pairs(
            object
                .iter()
                .map(|(key, item)| (text(key), value(item, text))),
        ),
    }
}

fn number(number: &Number) -> Value {
    if let Some(integer) = number.as_i64() {
        return Value::from(integer);
    }
    let digits = number.to_string();
    if let Ok(integer) = digits.parse::<i128>() {
        return Value::from(integer);
    }
    let is_integer = !digits.contains(['.', 'e', 'E']);
    match digits.parse::<f64>() {
        Ok(float) if float.is_finite() && !is_integer => Value::from(float),
        _ => Value::from_object(Digits(digits)),
    }
}

/// How `json.dumps` is called.
#[derive(Clone, Debug)]
pub(super) struct Style {
    pub(super) ascii: bool,
    /// Blanks a level; `None`: one line.
    pub(super) indent: Option<usize>,
    pub(super) item_separator: String,
    pub(super) key_separator: String,
    pub(super) sort_keys: bool,
}

impl Default for Style {
    fn default() -> Self {
        Style {
            ascii: false,
            indent: None,
            item_separator: ", ".to_owned(),
            key_separator: ": ".to_owned(),
            sort_keys: false,
        }
    }
}

/// Levels of a value that can be written: far more than anything has that people or models make, and far less than a thread's stack takes.
const DEEPEST: usize = 200;
/// Levels that a schema or arguments of the request may have: what can be written, less what our own declarations put around them.
pub(super) const DEEPEST_OF_REQUEST: usize = DEEPEST - 8;

/// Has `json` more than [`DEEPEST_OF_REQUEST`] levels?
pub(super) fn is_too_deep(json: &serde_json::Value) -> bool {
    fn deeper(json: &serde_json::Value, than: usize) -> bool {
        let mut inner: Box<dyn Iterator<Item = &serde_json::Value>> = match json {
            serde_json::Value::Array(list) => Box::new(list.iter()),
            serde_json::Value::Object(object) => Box::new(object.values()),
            _ => return false,
        };
        than == 0 || inner.any(|item| deeper(item, than - 1))
    }
    deeper(json, DEEPEST_OF_REQUEST)
}

/// The refusal of what [`is_too_deep`].
pub(super) fn too_deep(path: String) -> FieldError {
    let problem = format!("is nested more than {DEEPEST_OF_REQUEST} levels deep, the most allowed");
    FieldError::new(path, problem)
}

/// What is left for writing values: items, and units of 64 bytes. A list of lists that are each other's items is small in memory and without end on paper.
#[derive(Debug)]
pub(super) struct Paper {
    left: u64,
    out: String,
}

impl Paper {
    /// As much as a template's remaining fuel buys; without one the value is ours and as long as it is.
    pub(super) fn new(fuel: Option<u64>) -> Paper {
        Paper {
            left: fuel.unwrap_or(u64::MAX),
            out: String::new(),
        }
    }

    fn item(&mut self, depth: usize) -> Result<(), Error> {
        if depth > DEEPEST {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                "value is nested too deeply to be written",
            ));
        }
        if self.left <= self.out.len() as u64 / 64 {
            return Err(Error::from(ErrorKind::OutOfFuel));
        }
        self.left -= 1;
        Ok(())
    }
}

/// `json.dumps(value, ensure_ascii=False)`, as the `tojson` of `transformers` is.
pub(super) fn dumps(value: &Value, style: &Style, mut paper: Paper) -> Result<String, Error> {
    write_json(value, style, 0, &mut paper)?;
    Ok(paper.out)
}

fn write_json(value: &Value, style: &Style, depth: usize, paper: &mut Paper) -> Result<(), Error> {
    paper.item(depth)?;
    let out = &mut paper.out;
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => write_number(value, ["NaN", "Infinity", "-Infinity"], out),
        ValueKind::String => write_string(value.as_str().unwrap_or_default(), style.ascii, out),
        ValueKind::Map => {
            let mut pairs = Vec::new();
            for key in value.try_iter()? {
                paper.item(depth)?;
                let item = value.get_item(&key)?;
                pairs.push((json_key(&key)?, item));
            }
            if style.sort_keys {
                pairs.sort_by(|left, right| left.0.cmp(&right.0));
            }
            let empty = pairs.is_empty();
            paper.out.push('{');
            for (index, (key, item)) in pairs.iter().enumerate() {
                separate(style, depth + 1, index, &mut paper.out);
                write_string(key, style.ascii, &mut paper.out);
                paper.out.push_str(&style.key_separator);
                write_json(item, style, depth + 1, paper)?;
            }
            close(style, depth, empty, '}', &mut paper.out);
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let mut empty = true;
            paper.out.push('[');
            for (index, item) in value.try_iter()?.enumerate() {
                empty = false;
                separate(style, depth + 1, index, &mut paper.out);
                write_json(&item, style, depth + 1, paper)?;
            }
            close(style, depth, empty, ']', &mut paper.out);
        }
        _ => match value.downcast_object_ref::<Digits>() {
            Some(digits) => out.push_str(&digits.0),
            None => {
                let problem = format!("a value of type {} is not JSON serializable", value.kind());
                return Err(Error::new(ErrorKind::InvalidOperation, problem));
            }
        },
    }
    Ok(())
}

fn separate(style: &Style, depth: usize, index: usize, out: &mut String) {
    if index > 0 {
        out.push_str(match style.indent {
            Some(_) => style.item_separator.trim_end(),
            None => &style.item_separator,
        });
    }
    if let Some(blanks) = style.indent {
        new_line(blanks * depth, out);
    }
}

fn close(style: &Style, depth: usize, empty: bool, bracket: char, out: &mut String) {
    if let (Some(blanks), false) = (style.indent, empty) {
        new_line(blanks * depth, out);
    }
    out.push(bracket);
}

fn new_line(blanks: usize, out: &mut String) {
    out.push('\n');
    out.extend(std::iter::repeat_n(' ', blanks));
}

fn json_key(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
        ValueKind::None | ValueKind::Bool | ValueKind::Number => {
            dumps(key, &Style::default(), Paper::new(None))
        }
        kind => Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("keys must be strings, not {kind}"),
        )),
    }
}

fn write_string(text: &str, ascii: bool, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{C}' => out.push_str("\\f"),
            control if control < ' ' => push_unit(u16::from(control as u8), out),
            other if ascii && !(' '..='~').contains(&other) => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    push_unit(*unit, out);
                }
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

fn push_unit(unit: u16, out: &mut String) {
    // Writing to a string cannot fail.
    let _ = write!(out, "\\u{unit:04x}");
}

fn write_number(value: &Value, names: [&str; 3], out: &mut String) {
    if value.is_integer() {
        let _ = write!(out, "{value}");
        return;
    }
    match f64::try_from(value.clone()) {
        Ok(float) => write_float(float, names, out),
        Err(_) => {
            let _ = write!(out, "{value}");
        }
    }
}

/// `repr(float)`: the shortest digits, with an exponent below 1e-4 and from 1e16 on.
fn write_float(float: f64, [nan, infinite, negative]: [&str; 3], out: &mut String) {
    if float.is_nan() {
        out.push_str(nan);
    } else if float.is_infinite() {
        out.push_str(if float > 0.0 { infinite } else { negative });
    } else {
        let scientific = format!("{float:e}");
        let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        if (-4..16).contains(&exponent) {
            let _ = write!(out, "{float:?}");
        } else {
            let sign = if exponent < 0 { '-' } else { '+' };
            let _ = write!(out, "{digits}e{sign}{:02}", exponent.abs());
        }
    }
}

/// What `{{ value }}` prints: `str(value)`.
pub(super) fn print(value: &Value, mut paper: Paper) -> Result<String, Error> {
    match value.kind() {
        ValueKind::String => Ok(value.as_str().unwrap_or_default().to_owned()),
        ValueKind::Undefined => Ok(String::new()),
        _ => {
            write_repr(value, 0, &mut paper)?;
            Ok(paper.out)
        }
    }
}

/// `repr(value)`.
pub(super) fn repr(value: &Value, mut paper: Paper) -> Result<String, Error> {
    write_repr(value, 0, &mut paper)?;
    Ok(paper.out)
}

fn write_repr(value: &Value, depth: usize, paper: &mut Paper) -> Result<(), Error> {
    paper.item(depth)?;
    let out = &mut paper.out;
    match value.kind() {
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => write_number(value, ["nan", "inf", "-inf"], out),
        ValueKind::String => write_quoted(value.as_str().unwrap_or_default(), out),
        ValueKind::Seq | ValueKind::Iterable => {
            let [open, end] = if value.is_tuple() {
                ['(', ')']
            } else {
                ['[', ']']
            };
            out.push(open);
            let mut count = 0;
            for item in value.try_iter()? {
                paper.out.push_str(if count > 0 { ", " } else { "" });
                write_repr(&item, depth + 1, paper)?;
                count += 1;
            }
            if value.is_tuple() && count == 1 {
                paper.out.push(',');
            }
            paper.out.push(end);
        }
        ValueKind::Map => {
            out.push('{');
            for (index, key) in value.try_iter()?.enumerate() {
                paper.out.push_str(if index > 0 { ", " } else { "" });
                write_repr(&key, depth + 1, paper)?;
                paper.out.push_str(": ");
                write_repr(&value.get_item(&key)?, depth + 1, paper)?;
            }
            paper.out.push('}');
        }
        _ => {
            let _ = write!(out, "{value}");
        }
    }
    Ok(())
}

/// `repr(str)`: single quotes unless the text has some and no double ones.
fn write_quoted(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.push(quote);
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            other if other == quote => out.extend(['\\', other]),
            control if control < ' ' || control == '\u{7F}' => {
                let _ = write!(out, "\\x{:02x}", control as u32);
            }
            other => out.push(other),
        }
    }
    out.push(quote);
}

#[cfg(test)]
mod tests;
