//! Regular expressions seen through the escaping of a JSON string: what matched a text matches, after [`escaped`], the text as `json.dumps` writes it
//! between the quotes. Each character has one spelling: `\n`, `\"`, `\\`, `\u001f`, or itself. So spellings are prefix-free, and a character class
//! becomes a choice of spellings.

use std::fmt::Write;

use regex_syntax::{
    ParserBuilder,
    ast::Error as SyntaxError,
    hir::{Class, ClassUnicode, Hir, HirKind, Look},
};

use super::{custom::Fault, limits::MAX_LEAST_LENGTH};

/// Parses a regular expression with Python's flags `imsux`.
pub(crate) fn parse(source: &str, flags: &str) -> Result<Hir, Fault> {
    if flags.contains('l') {
        return Err(Fault::Unsupported(
            "the flag \"l\" of a regular expression cannot be enforced".to_owned(),
        ));
    }
    let parsed = ParserBuilder::new()
        .nest_limit(100)
        .case_insensitive(flags.contains('i'))
        .multi_line(flags.contains('m'))
        .dot_matches_new_line(flags.contains('s'))
        .ignore_whitespace(flags.contains('x'))
        .build()
        .parse(source);
    let hir = parsed.map_err(|error| match error {
        regex_syntax::Error::Parse(error) => fault(source, &error),
        other => Fault::Malformed(format!("/{}/: {other}", short(source))),
    })?;
    if hir.properties().minimum_len() > Some(MAX_LEAST_LENGTH) {
        return Err(Fault::Malformed(format!(
            "/{}/ needs more than {MAX_LEAST_LENGTH} characters",
            short(source)
        )));
    }
    Ok(hir)
}

fn fault(source: &str, error: &SyntaxError) -> Fault {
    use regex_syntax::ast::ErrorKind;
    let message = format!("/{}/: {}", short(source), error.kind());
    match error.kind() {
        ErrorKind::UnsupportedLookAround | ErrorKind::UnsupportedBackreference => {
            Fault::Unsupported(message)
        }
        _ => Fault::Malformed(message),
    }
}

fn short(source: &str) -> String {
    let mut short: String = source.chars().take(60).collect();
    if short.len() < source.len() {
        short.push('…');
    }
    short
}

/// The expression for a literal text.
pub(crate) fn literal(text: &str, ignore_case: bool) -> Result<Hir, Fault> {
    parse(
        &regex_syntax::escape(text),
        if ignore_case { "i" } else { "" },
    )
}

/// The source of the expression that matches what `hir` matches, escaped. Anchors at its edges say nothing and go.
pub(crate) fn escaped(hir: &Hir) -> Result<String, Fault> {
    let mut out = String::new();
    write(hir, true, true, &mut out)?;
    Ok(out)
}

fn write(hir: &Hir, first: bool, last: bool, out: &mut String) -> Result<(), Fault> {
    match hir.kind() {
        HirKind::Empty => out.push_str("(?:)"),
        HirKind::Literal(literal) => {
            let Ok(text) = std::str::from_utf8(&literal.0) else {
                return Err(not_text());
            };
            text.chars().for_each(|c| write_char(c, out));
        }
        HirKind::Class(class) => out.push_str(&spellings(class)?),
        HirKind::Look(Look::Start | Look::StartLF) if first => {}
        HirKind::Look(Look::End | Look::EndLF) if last => {}
        HirKind::Look(_) => {
            return Err(Fault::Unsupported(
                "an anchor or word boundary inside a regular expression cannot be enforced"
                    .to_owned(),
            ));
        }
        HirKind::Repetition(repetition) => {
            out.push_str("(?:");
            write(&repetition.sub, false, false, out)?;
            out.push(')');
            out.push_str(&bounds(repetition.min, repetition.max));
        }
        HirKind::Capture(capture) => {
            out.push_str("(?:");
            write(&capture.sub, first, last, out)?;
            out.push(')');
        }
        HirKind::Concat(parts) => {
            // Several anchors may stand at an edge.
            let is_look = |part: &Hir| matches!(part.kind(), HirKind::Look(_));
            let first_text = parts.iter().position(|part| !is_look(part));
            let last_text = parts.iter().rposition(|part| !is_look(part));
            for (index, part) in parts.iter().enumerate() {
                let first = first && first_text.is_none_or(|text| index <= text);
                let last = last && last_text.is_none_or(|text| index >= text);
                write(part, first, last, out)?;
            }
        }
        HirKind::Alternation(options) => {
            out.push_str("(?:");
            for (index, option) in options.iter().enumerate() {
                if index > 0 {
                    out.push('|');
                }
                write(option, first, last, out)?;
            }
            out.push(')');
        }
    }
    Ok(())
}

/// `*`, `+`, `?`, `{2,5}`, in a regular expression.
fn bounds(least: u32, most: Option<u32>) -> String {
    match (least, most) {
        (0, None) => "*".to_owned(),
        (1, None) => "+".to_owned(),
        (0, Some(1)) => "?".to_owned(),
        (least, None) => format!("{{{least},}}"),
        (least, Some(most)) => format!("{{{least},{most}}}"),
    }
}

/// The characters of a class.
pub(crate) fn characters(class: &Class) -> Result<ClassUnicode, Fault> {
    match class {
        Class::Unicode(class) => Ok(class.clone()),
        Class::Bytes(class) => class.to_unicode_class().ok_or_else(not_text),
    }
}

fn not_text() -> Fault {
    Fault::Malformed("a regular expression matches bytes that are no text".to_owned())
}

/// A class as a choice of spellings.
fn spellings(class: &Class) -> Result<String, Fault> {
    let class = characters(class)?;
    let mut plain = String::new();
    let mut short = String::new();
    let mut codes: Vec<String> = Vec::new();
    for range in class.iter() {
        let (start, end) = (range.start() as u32, range.end() as u32);
        for code in start..=end.min(0x5c) {
            match short_escape(code) {
                Some(escape) => short.push_str(&format!("\\x{{{:x}}}", escape as u32)),
                None if code < 0x20 => codes.push(format!("{code:02x}")),
                None => {}
            }
        }
        // What is left is spelled as itself, in up to three pieces around the two characters that are not.
        for (from, to) in [(0x20, 0x21), (0x23, 0x5b), (0x5d, 0x10_ffff)] {
            let (from, to) = (from.max(start), to.min(end));
            if from <= to {
                let _ = write!(plain, "\\x{{{from:x}}}-\\x{{{to:x}}}");
            }
        }
    }
    let mut options = Vec::new();
    if !plain.is_empty() {
        options.push(format!("[{plain}]"));
    }
    if !short.is_empty() {
        options.push(format!("\\x{{5c}}[{short}]"));
    }
    if !codes.is_empty() {
        options.push(format!("\\x{{5c}}u00(?:{})", codes.join("|")));
    }
    Ok(match options.len() {
        // No character at all: matches nothing.
        0 => "[a&&b]".to_owned(),
        1 => options.swap_remove(0),
        _ => format!("(?:{})", options.join("|")),
    })
}

/// The letter after the backslash, for characters that have one.
fn short_escape(code: u32) -> Option<char> {
    Some(match code {
        0x08 => 'b',
        0x09 => 't',
        0x0a => 'n',
        0x0c => 'f',
        0x0d => 'r',
        0x22 => '"',
        0x5c => '\\',
        _ => return None,
    })
}

fn write_char(c: char, out: &mut String) {
    let code = c as u32;
    let _ = match short_escape(code) {
        Some(escape) => write!(out, "\\x{{5c}}\\x{{{:x}}}", escape as u32),
        None if code < 0x20 => write!(out, "\\x{{5c}}u{code:04x}"),
        None if c.is_ascii_alphanumeric() => write!(out, "{c}"),
        None => write!(out, "\\x{{{code:x}}}"),
    };
}
