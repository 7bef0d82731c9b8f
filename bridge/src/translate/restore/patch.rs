//! The optional repair of decorated patch markers. Models write `*** Begin Patch ***`, Codex wants the bare line.

/// `patch` with its first and last line as Codex wants them; none when they are so already, or are no markers. Every
/// line between stays as it is, byte for byte.
pub fn repaired(patch: &str) -> Option<String> {
    let end = patch.trim_end().len();
    let last_start = patch[..end].rfind('\n')? + 1;
    let first_end = patch.find('\n')?;
    let first = repaired_line(&patch[..first_end], "Begin Patch");
    let last = repaired_line(&patch[last_start..end], "End Patch");
    if first.is_none() && last.is_none() {
        return None;
    }
    Some(
        [
            first.as_deref().unwrap_or(&patch[..first_end]),
            &patch[first_end..last_start],
            last.as_deref().unwrap_or(&patch[last_start..end]),
            &patch[end..],
        ]
        .concat(),
    )
}

/// The bare marker, when `line` is a decorated one. A line that begins with a blank may be a line of a hunk.
fn repaired_line(line: &str, marker: &str) -> Option<String> {
    let text = line.trim_end();
    let bare = format!("*** {marker}");
    let core = text.strip_prefix('*')?.trim_matches(['*', ' ']);
    (core == marker && text != bare).then(|| format!("{bare}{}", &line[text.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_marker_lines_change() {
        assert_eq!(
            repaired("*** Begin Patch ***\r\n@@\n- *** End Patch ***\n+x \n*** End Patch ***\n\n")
                .as_deref(),
            Some("*** Begin Patch\r\n@@\n- *** End Patch ***\n+x \n*** End Patch\n\n")
        );
    }

    #[test]
    fn a_patch_with_bare_markers_or_none_is_left_alone() {
        for patch in [
            "*** Begin Patch\n*** Delete File: a\n*** End Patch",
            "*** Begin Patch\n*** Update File: a\n@@\n *** End Patch ***",
            "*** Begin Patch ***",
            "",
            "\n\n",
            "text\nmore",
        ] {
            assert_eq!(repaired(patch), None, "{patch:?}");
        }
    }
}
