use super::*;

const CONTROLS: [&str; 5] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|python_tag|>",
    "[INST]",
    "</s>",
];

fn guard() -> Guard {
    Guard::new(CONTROLS.into_iter())
}

fn has_control(text: &str) -> bool {
    CONTROLS.iter().any(|control| text.contains(control))
}

#[test]
fn text_comes_back_as_it_was() {
    let guard = guard();
    for text in [
        "",
        "plain",
        "<|eot_id|>",
        "a<b>c",
        "\u{FDD0}",
        "\u{FDD0}\u{FDD1}\u{FDD2}",
        "\u{FDD0}\u{FDD2}<|",
        "|eot_id|>",
        "  >",
        "eot",
        "[[INST]]",
        "é<\u{FDD2}",
    ] {
        assert_eq!(unescape(&guard.escape(text)), text, "{text:?}");
        assert!(!has_control(&guard.escape(text)));
    }
}

#[test]
fn text_without_any_start_of_a_control_token_is_not_copied() {
    assert!(matches!(
        guard().escape("fn main() { a > b }"),
        Cow::Borrowed(_)
    ));
}

#[test]
fn nothing_can_be_pieced_together_from_several_strings_and_a_template() {
    // Every way to cut a control token into what the template writes and what the request brings.
    let guard = guard();
    for control in CONTROLS {
        let cuts: Vec<usize> = (0..=control.len()).collect();
        for &left in &cuts {
            for &right in cuts.iter().filter(|right| **right > left) {
                let middle = guard.escape(&control[left..right]);
                let written = format!("{}{middle}{}", &control[..left], &control[right..]);
                assert!(!has_control(&written), "{control} [{left}..{right}]");
                let (start, end) = (
                    guard.escape(&control[..left]),
                    guard.escape(&control[left..]),
                );
                assert!(!has_control(&format!("{start}{end}")));
            }
        }
    }
}

#[test]
fn blanks_at_both_ends_stay_at_the_ends_so_that_templates_can_trim() {
    let escaped = guard().escape("  > quoted <  ").into_owned();
    assert!(escaped.starts_with("  ") && escaped.ends_with("  "));
    assert_eq!(unescape(escaped.trim()), "> quoted <");
}

#[test]
fn any_text_comes_back_and_brings_no_control_token() {
    let guard = guard();
    let parts = [
        "<", "|", "eot_id", "|>", ">", "[", "INST]", "\u{FDD0}", "\u{FDD1}", "\u{FDD2}", " ", "x",
        "</s", "é",
    ];
    let mut random = crate::testing::Random(9);
    for _ in 0..50_000 {
        let mut text = String::new();
        for _ in 0..8 {
            text.push_str(parts[random.below(parts.len())]);
        }
        let escaped = guard.escape(&text);
        assert_eq!(unescape(&escaped), text);
        assert!(!has_control(&escaped), "{text:?}");
    }
}
