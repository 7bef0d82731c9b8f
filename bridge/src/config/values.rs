//! Single values of the configuration file: each type can only hold a value that is allowed.

use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use url::Url;

use super::Secret;

/// Longer waits are surely typing errors, and far beyond it clocks overflow.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// What the derived `Deserialize` reports; the fault shown to the user is written from the key table instead.
type Refusal = &'static str;

/// A duration above zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub(super) struct Span(pub(super) Duration);

impl TryFrom<Value> for Span {
    type Error = Refusal;

    fn try_from(value: Value) -> Result<Self, Refusal> {
        SpanOrOff::try_from(value)?.0.map(Self).ok_or("disabled")
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&written(self.0))
    }
}

/// A duration above zero, or "off".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub(super) struct SpanOrOff(pub(super) Option<Duration>);

impl TryFrom<Value> for SpanOrOff {
    type Error = Refusal;

    fn try_from(value: Value) -> Result<Self, Refusal> {
        let duration = match &value {
            Value::String(text) if text == "off" => return Ok(Self(None)),
            Value::String(text) => with_unit(text).ok_or("not a duration")?,
            Value::Number(seconds) => {
                Duration::from_secs(seconds.as_u64().ok_or("not whole seconds")?)
            }
            _ => return Err("not a duration"),
        };
        match duration {
            Duration::ZERO => Ok(Self(None)),
            duration if duration <= LONGEST => Ok(Self(Some(duration))),
            _ => Err("too long"),
        }
    }
}

impl Serialize for SpanOrOff {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.map_or_else(|| "off".to_owned(), written))
    }
}

fn with_unit(text: &str) -> Option<Duration> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    Some(Duration::from_millis(number.checked_mul(milliseconds)?))
}

/// In the largest unit that loses nothing.
fn written(duration: Duration) -> String {
    let milliseconds = duration.as_millis();
    [(3_600_000, "h"), (60_000, "m"), (1_000, "s")]
        .into_iter()
        .find(|(unit, _)| milliseconds.is_multiple_of(*unit))
        .map_or_else(
            || format!("{milliseconds}ms"),
            |(unit, name)| format!("{}{name}", milliseconds / unit),
        )
}

/// An http or https URL to which paths can be appended: no credentials, query or fragment, no slash at the end.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct BaseUrl(pub(super) Url);

impl TryFrom<String> for BaseUrl {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        let text = text.trim();
        let lower = text.to_ascii_lowercase();
        // The parser of `url` repairs `http:host`, and drops tabs and line ends; we want to be told.
        if !(lower.starts_with("http://") || lower.starts_with("https://"))
            || text.contains(char::is_whitespace)
        {
            return Err("not http or https");
        }
        let mut url = Url::parse(text).map_err(|_| "not a URL")?;
        // `http://@host` has no user name for the parser, but an `@` that somebody meant.
        let credentials = text
            .split(['/', '?', '#'])
            .nth(2)
            .is_some_and(|authority| authority.contains('@'));
        if credentials || url.query().is_some() || url.fragment().is_some() {
            return Err("credentials, query or fragment");
        }
        let path = url.path().trim_end_matches('/').to_owned();
        url.set_path(&path);
        Ok(Self(url))
    }
}

impl Serialize for BaseUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.as_str().trim_end_matches('/'))
    }
}

/// A key that can stand in an `authorization: Bearer` header. It serialises as a mask.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct KeyText(pub(super) Secret);

impl TryFrom<String> for KeyText {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("not a bearer key");
        }
        Ok(Self(Secret::new(text)))
    }
}

impl Serialize for KeyText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("********")
    }
}

/// A string with something in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(try_from = "String")]
pub(super) struct Text(pub(super) String);

impl TryFrom<String> for Text {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        if text.trim().is_empty() || text.contains(char::is_control) {
            return Err("empty or with control characters");
        }
        Ok(Self(text))
    }
}

/// A word such as `high`; the set is open, since models differ.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String")]
pub(super) struct Word(pub(super) String);

impl TryFrom<String> for Word {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        let fits =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
        if text.is_empty() || !text.bytes().all(fits) {
            return Err("not a word");
        }
        Ok(Self(text))
    }
}

/// A host name or IP address without port, in its normal form: lower case, no brackets.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String")]
pub(super) struct Host(pub(super) String);

impl TryFrom<String> for Host {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        let text = text.trim();
        let bare = text
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .unwrap_or(text);
        if let Ok(address) = bare.parse::<std::net::IpAddr>() {
            return Ok(Self(address.to_string()));
        }
        match url::Host::parse(text) {
            Ok(host) => Ok(Self(host.to_string())),
            Err(_) => Err("not a host"),
        }
    }
}

/// What a browser sends as `Origin`: scheme, host, and port unless it is the scheme's own.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String")]
pub(super) struct Origin(pub(super) String);

impl TryFrom<String> for Origin {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        let lower = text.to_ascii_lowercase();
        let (scheme, authority) = lower.split_once("://").ok_or("no scheme")?;
        if authority.is_empty()
            || authority.contains(['/', '?', '#', '@', '*'])
            || lower.contains(char::is_whitespace)
        {
            return Err("more than scheme, host and port");
        }
        let url = Url::parse(&lower).map_err(|_| "not a URL")?;
        match scheme {
            "http" | "https" => Ok(Self(url.origin().ascii_serialization())),
            // Pages of editors and apps have schemes of their own, whose origin is the text as it stands.
            _ => Ok(Self(lower)),
        }
    }
}

#[cfg(test)]
mod tests;
