//! Wire names: the flat, legal function name under which the upstream knows a tool.
//!
//! A wire name depends on the tool's own names only, so that it is the same in every turn, whatever else is declared,
//! and also for a call in the history whose tool is no longer declared.

/// Longest name the API allows.
const LONGEST: usize = 64;
/// Hexadecimal digits of the hash that ends a shortened name.
const DIGITS: usize = 8;

/// The wire name of a tool.
pub(super) fn wire_name(namespace: Option<&str>, name: &str) -> String {
    let flat = match namespace {
        Some(namespace) => format!("{}__{}", sanitise(namespace), sanitise(name)),
        None => sanitise(name),
    };
    if flat.len() <= LONGEST {
        return flat;
    }
    let kept = &flat[..LONGEST - DIGITS - 1];
    format!("{kept}_{:08x}", folded_fnv(flat.as_bytes()))
}

/// `name` with every UTF-16 unit outside `[A-Za-z0-9_-]` as `_`. The result is ASCII.
pub(super) fn sanitise(name: &str) -> String {
    let mut clean = String::with_capacity(name.len());
    for letter in name.chars() {
        if letter.is_ascii_alphanumeric() || letter == '_' || letter == '-' {
            clean.push(letter);
        } else {
            clean.extend(std::iter::repeat_n('_', letter.len_utf16()));
        }
    }
    clean
}

/// FNV-1a, folded to 32 bits: stable over versions and platforms, which the standard hasher is not.
fn folded_fnv(bytes: &[u8]) -> u32 {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    #[expect(clippy::cast_possible_truncation, reason = "folding keeps both halves")]
    {
        (hash >> 32) as u32 ^ hash as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_illegal_utf16_unit_becomes_one_underscore() {
        assert_eq!(sanitise("docs/append"), "docs_append");
        assert_eq!(sanitise("lista plików"), "lista_plik_w");
        assert_eq!(sanitise("a😀b"), "a__b");
        assert_eq!(sanitise("-A_9-"), "-A_9-");
    }

    #[test]
    fn a_namespace_is_always_prefixed() {
        assert_eq!(wire_name(Some("mcp__a"), "mcp__a__b"), "mcp__a__mcp__a__b");
    }

    #[test]
    fn a_long_name_is_shortened_to_the_limit_and_stays_distinct() {
        let long = "x".repeat(64);
        assert_eq!(wire_name(None, &long), long);
        let (one, two) = (format!("{long}a"), format!("{long}b"));
        assert_eq!(wire_name(None, &one).len(), LONGEST);
        assert_ne!(wire_name(None, &one), wire_name(None, &two));
        assert_eq!(
            wire_name(None, &one),
            format!("{}_340097a9", "x".repeat(55))
        );
    }
}
