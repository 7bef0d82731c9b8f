//! Is a text a patch of the grammar that Codex ships with `apply_patch`? Read off that grammar by hand, line by line, so that it
//! shares nothing with what holds a model to it.
//!
//! ```text
//! start: "*** Begin Patch" LF hunk+ "*** End Patch" LF?
//! hunk:  "*** Add File: "    /(.+)/ LF ("+" /(.*)/ LF)+
//!      | "*** Delete File: " /(.+)/ LF
//!      | "*** Update File: " /(.+)/ LF ("*** Move to: " /(.+)/ LF)? (change+ ("*** End of File" LF)?)?
//! change: ("@@" | "@@ " /(.+)/ | ("+" | "-" | " ") /(.*)/) LF
//! ```

use anyhow::{Context, Result, bail, ensure};

const ADD: &str = "*** Add File: ";
const DELETE: &str = "*** Delete File: ";
const UPDATE: &str = "*** Update File: ";
const MOVE: &str = "*** Move to: ";

/// # Errors
/// The first line that is not of the grammar.
pub fn check(text: &str) -> Result<()> {
    let mut lines: Vec<&str> = text.split('\n').collect();
    if lines.last() == Some(&"") {
        lines.pop();
    }
    let [first, hunks @ .., last] = lines.as_slice() else {
        bail!("{} lines are no patch", lines.len());
    };
    ensure!(*first == "*** Begin Patch", "begins with {first:?}");
    ensure!(*last == "*** End Patch", "ends with {last:?}");
    ensure!(!hunks.is_empty(), "changes nothing");
    let mut rest = hunks;
    while let Some((head, body)) = rest.split_first() {
        let at = 2 + hunks.len() - rest.len();
        rest = hunk(head, body).with_context(|| format!("the hunk at line {at}"))?;
    }
    Ok(())
}

/// Reads one hunk; what is behind it.
fn hunk<'a>(head: &str, body: &'a [&'a str]) -> Result<&'a [&'a str]> {
    let names = |prefix| has_more(head, prefix);
    if names(ADD) {
        let rest = skip(body, |line| line.starts_with('+'));
        ensure!(rest.len() < body.len(), "adds a file without a line");
        return Ok(rest);
    }
    if names(DELETE) {
        return Ok(body);
    }
    ensure!(names(UPDATE), "{head:?} begins no hunk");
    let body = match body.split_first() {
        Some((line, rest)) if has_more(line, MOVE) => rest,
        _ => body,
    };
    let rest = skip(body, is_change);
    match rest.split_first() {
        Some((&"*** End of File", after)) if rest.len() < body.len() => Ok(after),
        _ => Ok(rest),
    }
}

fn is_change(line: &str) -> bool {
    line == "@@" || has_more(line, "@@ ") || line.starts_with(['+', '-', ' '])
}

/// The prefix, and at least one character behind it.
fn has_more(line: &str, prefix: &str) -> bool {
    line.len() > prefix.len() && line.starts_with(prefix)
}

fn skip<'a>(lines: &'a [&'a str], which: impl Fn(&str) -> bool) -> &'a [&'a str] {
    let count = lines.iter().take_while(|line| which(line)).count();
    &lines[count..]
}

#[cfg(test)]
mod tests {
    use super::check;

    fn patch(lines: &[&str]) -> String {
        format!("*** Begin Patch\n{}*** End Patch", lines.concat())
    }

    #[test]
    fn patches_of_the_grammar_pass() {
        for lines in [
            &["*** Add File: a b\n", "+\n", "++x\n"][..],
            &["*** Delete File: *** Add File: x\n"],
            &["*** Update File: a\n"],
            &["*** Update File: a\n", "*** Move to: b\n"],
            &[
                "*** Update File: a\n",
                "@@\n",
                "@@ fn f\n",
                " x\n",
                "-\n",
                "+\r\n",
                "*** End of File\n",
                "*** Delete File: b\n",
            ],
        ] {
            let text = patch(lines);
            check(&text).unwrap_or_else(|error| panic!("{text}: {error:#}"));
            check(&format!("{text}\n")).unwrap_or_else(|error| panic!("{text}: {error:#}"));
        }
    }

    #[test]
    fn what_the_grammar_does_not_have_fails() {
        let mut wrong: Vec<String> = [
            &[][..],
            &["*** Add File: a\n"],
            &["*** Add File: \n", "+x\n"],
            &["*** Add File: a\n", "x\n"],
            &["*** Add File: a\n", "+x\n", "*** End of File\n"],
            &["*** Delete File: a\n", "+x\n"],
            &["*** Update File: a\n", "*** End of File\n"],
            &["*** Update File: a\n", "@@ \n"],
            &["*** Update File: a\n", "@@x\n"],
            &["*** Update File: a\n", "+x\n", "*** Move to: b\n"],
            &["*** Update File: a\n", "+x\n", "\n"],
            &["+x\n"],
        ]
        .iter()
        .map(|lines| patch(lines))
        .collect();
        let right = patch(&["*** Delete File: a\n"]);
        wrong.extend([
            String::new(),
            format!("{right}\n\n"),
            format!("\n{right}"),
            right.replace(" End", " Stop"),
        ]);
        for text in wrong {
            assert!(check(&text).is_err(), "{text:?} passes");
        }
    }
}
