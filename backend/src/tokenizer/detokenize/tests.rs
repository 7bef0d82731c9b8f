use super::*;
use crate::tokenizer::testing::bytes_only;

/// Feeds `bytes` one token a byte.
fn stream(bytes: &[u8]) -> (Vec<String>, String) {
    let mut detokenizer = Detokenizer::new(&bytes_only());
    let deltas = bytes
        .iter()
        .map(|byte| detokenizer.push(u32::from(*byte)))
        .collect();
    (deltas, detokenizer.finish())
}

#[test]
fn a_character_of_several_tokens_leaves_whole() {
    let text = "zażółć 😀 中文";
    let (deltas, rest) = stream(text.as_bytes());
    assert_eq!(deltas.concat(), text);
    assert!(deltas.iter().all(|delta| !delta.contains('\u{FFFD}')));
    assert_eq!(rest, "");
}

#[test]
fn impossible_bytes_are_replaced_as_soon_as_they_are_certain() {
    let (deltas, rest) = stream(b"a\xFFb\xE4\xB8c");
    assert_eq!(deltas, ["a", "\u{FFFD}", "b", "", "", "\u{FFFD}c"]);
    assert_eq!(rest, "");
}

#[test]
fn a_character_cut_by_the_end_is_replaced_there() {
    let (deltas, rest) = stream(b"x\xF0\x9F\x98");
    assert_eq!(deltas.concat(), "x");
    assert_eq!(rest, "\u{FFFD}");
}

#[test]
fn any_bytes_give_what_a_lossy_decoder_gives_for_all_at_once() {
    let mut seed = 3u64;
    for _ in 0..20_000 {
        let bytes: Vec<u8> = (0..12)
            .map(|_| {
                seed = seed
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let byte = (seed >> 40) as u8;
                if seed >> 60 < 8 { byte | 0x80 } else { byte }
            })
            .collect();
        let (deltas, rest) = stream(&bytes);
        assert_eq!(
            deltas.concat() + &rest,
            String::from_utf8_lossy(&bytes),
            "{bytes:02X?}"
        );
    }
}

#[test]
fn control_tokens_have_no_text() {
    let tokenizer = bytes_only();
    let end = tokenizer.token_id("<|im_end|>").unwrap();
    assert_eq!(Detokenizer::new(&tokenizer).push(end), "");
    assert_eq!(Detokenizer::new(&tokenizer).push(u32::MAX), "");
}
