//! The small JSON and text files beside the weights.

use std::{
    io::{ErrorKind, Read},
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::model::{
    ModelError,
    error::{Fault, unreadable},
    file,
};

/// `tokenizer_config.json` of Llama 3 has 56 KiB, the index of its largest model 110 KiB. Parsed JSON can take twenty times its text.
const MOST_BYTES: u64 = 4 << 20;

/// A JSON file that has been read.
#[derive(Debug)]
pub(super) struct Json {
    pub(super) path: PathBuf,
    pub(super) text: String,
    /// An object.
    pub(super) value: Value,
}

impl Json {
    pub(super) fn required(folder: &Path, name: &str) -> Result<Json, ModelError> {
        Json::optional(folder, name)?.ok_or_else(|| {
            Fault::new(
                name,
                "no such file",
                "GGUF files, and Hugging Face folders with config.json and model.safetensors",
            )
            .in_file(folder)
        })
    }

    pub(super) fn optional(folder: &Path, name: &str) -> Result<Option<Json>, ModelError> {
        let path = folder.join(name);
        let Some(text) = text(folder, name)? else {
            return Ok(None);
        };
        let fault = |found: &dyn std::fmt::Display| Fault::new("file", found, "a JSON object");
        match serde_json::from_str(&text) {
            Ok(value @ Value::Object(_)) => Ok(Some(Json { path, text, value })),
            Ok(_) => Err(fault(&"JSON that is no object").in_file(&path)),
            Err(error) => Err(fault(&error).in_file(&path)),
        }
    }
}

/// A file of the folder, if it is there.
pub(super) fn text(folder: &Path, name: &str) -> Result<Option<String>, ModelError> {
    let path = folder.join(name);
    let file = match file::open_regular(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(&path, &error)),
    };
    let mut text = String::new();
    file.take(MOST_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(|error| unreadable(&path, &error))?;
    if text.len() as u64 > MOST_BYTES {
        let fault = Fault::new(
            "file",
            format_args!("more than {MOST_BYTES} bytes"),
            format_args!("files of at most {MOST_BYTES} bytes"),
        );
        return Err(fault.in_file(&path));
    }
    Ok(Some(text))
}

/// A member that is there and not null.
fn member<'a>(json: &'a Value, field: &str) -> Option<&'a Value> {
    json.get(field).filter(|value| !value.is_null())
}

pub(super) fn float(json: &Value, field: &str) -> Result<Option<f32>, Fault> {
    let number = |value: &Value| {
        value
            .as_f64()
            .map(|number| number as f32)
            .ok_or_else(|| Fault::new(field, value, "a number"))
    };
    member(json, field).map(number).transpose()
}

pub(super) fn count(json: &Value, field: &str) -> Result<Option<usize>, Fault> {
    let count = |value: &Value| {
        value
            .as_u64()
            .and_then(|count| u32::try_from(count).ok())
            .map(|count| count as usize)
            .ok_or_else(|| Fault::new(field, value, "a whole number from 0 to 4294967295"))
    };
    member(json, field).map(count).transpose()
}

pub(super) fn flag(json: &Value, field: &str) -> Result<Option<bool>, Fault> {
    let flag = |value: &Value| {
        value
            .as_bool()
            .ok_or_else(|| Fault::new(field, value, "true or false"))
    };
    member(json, field).map(flag).transpose()
}

pub(super) fn name<'a>(json: &'a Value, field: &str) -> Result<Option<&'a str>, Fault> {
    let name = |value: &'a Value| {
        value
            .as_str()
            .ok_or_else(|| Fault::new(field, value, "a text"))
    };
    member(json, field).map(name).transpose()
}

pub(super) fn object<'a>(json: &'a Value, field: &str) -> Result<Option<&'a Value>, Fault> {
    match member(json, field) {
        Some(value) if !value.is_object() => Err(Fault::new(field, value, "an object or null")),
        member => Ok(member),
    }
}
